package nodes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
)

// mayRead returns consul.ErrDenied unless the token may read all keys below
// each of prefixes. Consul leaves out what a token may not see, and tells that
// only to tokens that it knows: to the others emptiness proves nothing.
func (l *Ledger) mayRead(ctx context.Context, prefixes ...string) error {
	rights := make([]consul.Right, len(prefixes))
	for i, p := range prefixes {
		rights[i] = consul.Right{Resource: "key", Access: "read", Segment: l.store.Path(p)}
	}
	return l.may(ctx, rights)
}

// maySeeCatalog returns consul.ErrDenied unless the token sees all nodes and
// services.
func (l *Ledger) maySeeCatalog(ctx context.Context) error {
	return l.may(ctx, []consul.Right{{Resource: "node", Access: "read"}, {Resource: "service", Access: "read"}})
}

func (l *Ledger) may(ctx context.Context, rights []consul.Right) error {
	allowed, err := l.client.Authorize(ctx, rights...)
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

// whole turns an answer that ACLs made smaller into a failure.
func whole[T any](v T, meta consul.Meta, err error) (T, error) {
	if err == nil && meta.Filtered {
		err = fmt.Errorf("read the catalog: %w: %w, it needs node:read and service:read", consul.ErrDenied, errHidden)
	}
	return v, err
}

var errHidden = errors.New("the token may not see all of it")

// read reads keys, as many as a transaction takes at a time, and returns the
// result that holds each.
func (l *Ledger) read(ctx context.Context, keys []string) (map[string]*kv.Result, error) {
	results := make(map[string]*kv.Result, len(keys))
	for len(keys) > 0 {
		n := min(len(keys), kv.MaxOps)
		t := l.store.Txn()
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
