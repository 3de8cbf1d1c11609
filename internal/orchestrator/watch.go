package orchestrator

import (
	"context"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
)

// settle is for how long changes are gathered before anybody looks at them.
// Consul goes through all keys of a prefix to tell when it changed: for the
// larger fleet, and while it is busy, that takes it longer, and changes are
// gathered for so many times as long, up to a bound.
const (
	settle      = 50 * time.Millisecond
	settleShare = 5
	settleMost  = time.Second
)

// relevant are the keys of the cluster, or their prefixes, of which a change
// calls for a cycle: what people and nodes write. What follows from others is
// not among them, nor what changes all the time, such as the slots of reloads.
func relevant() []string {
	return []string{
		cluster.KeyProfile, cluster.PrefixCurrent, cluster.PrefixHosts, cluster.PrefixReports, cluster.PrefixRuns,
	}
}

// watchKeys wakes cycles when relevant keys change. One query tells that
// anything of the cluster changed, and a few that do not block whether it was
// relevant; none of them answers with more than a few names.
func (t *tenure) watchKeys(ctx context.Context) error {
	prefix := t.Orchestrator.store.Path("")
	source := func(ctx context.Context, q consul.Query) ([]string, consul.Meta, error) {
		return t.o.Client.KVKeys(ctx, prefix, "/", q)
	}
	var last map[string]uint64
	gather := settle
	return consul.Watch(ctx, t.o.Client, consul.Query{}, source, func(u consul.Update[[]string]) {
		if u.Err != nil || concurrency.Sleep(ctx, gather) != nil {
			return
		}
		begin := time.Now()
		marks, err := t.marks(ctx)
		gather = min(max(settle, settleShare*time.Since(begin)), settleMost)
		if err != nil {
			tell(t.news) // rather once too often
			return
		}
		if !maps.Equal(marks, last) {
			last = marks
			tell(t.news)
			t.grants.news.Notify()
		}
	})
}

// marks are the indexes of what is relevant; what is missing has none.
func (t *tenure) marks(ctx context.Context) (map[string]uint64, error) {
	marks := map[string]uint64{}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	for _, key := range relevant() {
		g.Go(func() error {
			// With the slash as separator all keys of a directory are one name.
			path := t.Orchestrator.store.Path(key)
			if path[len(path)-1] == '/' {
				path = path[:len(path)-1]
			}
			names, meta, err := t.o.Client.KVKeys(ctx, path, "/", consul.Query{})
			if err == nil && len(names) > 0 {
				mu.Lock()
				defer mu.Unlock()
				marks[key] = meta.Index
			}
			return err
		})
	}
	return marks, g.Wait()
}

// watchChecks wakes cycles when checks in a state, critical or warning, become
// more, fewer or others; that a check's output changed is no news. Consul has an
// index of the states: those that pass cost it nothing.
func (t *tenure) watchChecks(ctx context.Context, state string) error {
	source := func(ctx context.Context, q consul.Query) (uint64, consul.Meta, error) {
		checks, meta, err := t.o.Client.HealthState(ctx, state, q)
		return digestOf(checks), meta, err
	}
	var last uint64
	return consul.Watch(ctx, t.o.Client, consul.Query{}, source, func(u consul.Update[uint64]) {
		if u.Err == nil && u.Value != last {
			last = u.Value
			tell(t.news)
			t.grants.news.Notify()
		}
		_ = concurrency.Sleep(ctx, settle) // ends with ctx
	})
}

func digestOf(checks consul.HealthChecks) uint64 {
	lines := make([]string, 0, len(checks))
	for _, c := range checks {
		lines = append(lines, c.Node+"\x00"+c.CheckID+"\x00"+c.Status+"\x00"+c.Notes+"\n")
	}
	slices.Sort(lines)
	h := fnv.New64a()
	for _, line := range lines {
		_, _ = h.Write([]byte(line)) // it cannot fail
	}
	return h.Sum64()
}

// watchServices wakes cycles when services are registered or deregistered.
func (t *tenure) watchServices(ctx context.Context) error {
	source := func(ctx context.Context, q consul.Query) (struct{}, consul.Meta, error) {
		meta, err := t.o.Client.ServicesIndex(ctx, q)
		return struct{}{}, meta, err
	}
	return consul.Watch(ctx, t.o.Client, consul.Query{}, source, func(u consul.Update[struct{}]) {
		if u.Err == nil {
			tell(t.news)
			t.grants.news.Notify()
		}
		_ = concurrency.Sleep(ctx, settle) // ends with ctx
	})
}
