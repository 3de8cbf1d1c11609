package cluster

import (
	"context"
	"fmt"
	"strings"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"golang.org/x/sync/errgroup"
)

// mayRead returns consul.ErrDenied unless the token may read all keys below
// each of prefixes. Consul leaves out what a token may not see, and tells that
// only to tokens that it knows: to the others emptiness proves nothing.
func (c *Cluster) mayRead(ctx context.Context, prefixes ...string) error {
	rights := make([]consul.Right, len(prefixes))
	for i, p := range prefixes {
		rights[i] = consul.Right{Resource: "key", Access: "read", Segment: c.store.Path(p)}
	}
	return c.authorize(ctx, rights)
}

// maySeeCatalog returns consul.ErrDenied unless the token sees all nodes and
// services.
func (c *Cluster) maySeeCatalog(ctx context.Context) error {
	return c.authorize(ctx, []consul.Right{{Resource: "node", Access: "read"}, {Resource: "service", Access: "read"}})
}

func (c *Cluster) authorize(ctx context.Context, rights []consul.Right) error {
	allowed, err := c.client.Authorize(ctx, rights...)
	if err != nil {
		return err
	}
	var missing []string
	for i, ok := range allowed {
		if !ok {
			right := fmt.Sprintf("%s:%s on everything", rights[i].Resource, rights[i].Access)
			if rights[i].Segment != "" {
				right += fmt.Sprintf(" that begins with %q", rights[i].Segment)
			}
			missing = append(missing, right)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("%w: the token needs %s", consul.ErrDenied, strings.Join(missing, ", "))
}

// read reads keys, as many as a transaction takes at a time, and returns the
// result that holds each.
func (c *Cluster) readKeys(ctx context.Context, keys []string) (map[string]*kv.Result, error) {
	results := make(map[string]*kv.Result, len(keys))
	for len(keys) > 0 {
		n := min(len(keys), kv.MaxOps)
		t := c.store.Txn()
		for _, key := range keys[:n] {
			t.Get(key)
		}
		r, err := t.Commit(ctx)
		if err != nil {
			return nil, err
		}
		for _, key := range keys[:n] {
			results[key] = r
		}
		keys = keys[n:]
	}
	return results, nil
}

// conditions reads the conditions of hosts, with three requests whatever their
// number.
func (c *Cluster) conditions(ctx context.Context, hosts []string) (all map[string]Condition, err error) {
	if len(hosts) == 0 {
		return nil, nil
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.maySeeCatalog(ctx) })
	g.Go(func() (err error) { all, err = c.Conditions(ctx, hosts); return err })
	return all, g.Wait()
}
