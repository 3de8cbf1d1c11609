package cluster

import (
	"context"
	"hash/fnv"
	"maps"
	"reflect"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
)

// catalogWatch keeps what the catalog says of all hosts current. Health changes
// all the time in a large fleet, and an answer with all checks is as long as all
// others together. So it watches the checks that do not pass, reads again only the
// hosts of which these have changed, and reads everything again only after a node
// or a service was registered or removed. One goroutine reads, so a later answer
// is never older than the one before.
type catalogWatch struct {
	cluster *Cluster
	wake    concurrency.Signal

	mu    sync.Mutex
	errs  map[string]error             // of the last answer, by query
	nodes []consul.NodeInfo            // as of the last answer, without services and checks
	seen  map[string]map[string]uint64 // digests of the checks in a state, by state and node
	stale map[string]bool              // hosts to be read again
	whole bool                         // everything is to be read again
	all   map[string]consul.NodeInfo   // with services and checks; nil: not read yet
	hosts map[string]catalogHost       // never changed, only replaced
}

// Queries of a catalogWatch beside those for checks in a state.
const (
	queryNodes    = "nodes"
	queryServices = "services"
	queryRead     = "read"
)

// gatherRegistrations is for how long registrations are gathered before all
// services are read again: an agent that starts registers several at once.
const gatherRegistrations = 100 * time.Millisecond

// mostHosts is how many hosts are read one by one; for more, everything is read.
const mostHosts = 64

// Pauses after a read that failed.
const firstReadRetry, lastReadRetry = 100 * time.Millisecond, 10 * time.Second

func newCatalogWatch(c *Cluster) *catalogWatch {
	return &catalogWatch{
		cluster: c, wake: concurrency.NewSignal(), errs: map[string]error{}, seen: map[string]map[string]uint64{}, stale: map[string]bool{},
	}
}

// run watches until ctx ends and returns ctx's error. It calls changed after each
// change, and gather before a query asks again.
func (w *catalogWatch) run(ctx context.Context, changed func(), gather func(context.Context)) error {
	client := w.cluster.client
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return consul.Watch(ctx, client, consul.Query{}, client.CatalogHosts, func(u consul.Update[[]consul.NodeInfo]) {
			nodes, err := whole(u.Value, u.Meta, u.Err)
			w.answered(queryNodes, err, func() {
				w.whole = w.whole || u.Reset || !reflect.DeepEqual(w.nodes, nodes)
				w.nodes = nodes
			})
			gather(ctx)
		})
	})
	g.Go(func() error {
		source := func(ctx context.Context, q consul.Query) (struct{}, consul.Meta, error) {
			meta, err := client.ServicesIndex(ctx, q)
			return struct{}{}, meta, err
		}
		return consul.Watch(ctx, client, consul.Query{}, source, func(u consul.Update[struct{}]) {
			w.answered(queryServices, u.Err, func() { w.whole = true })
			gather(ctx)
		})
	})
	for _, state := range []string{consul.HealthCritical, consul.HealthWarning} {
		g.Go(func() error {
			source := func(ctx context.Context, q consul.Query) ([]consul.CheckState, consul.Meta, error) {
				return client.ChecksInState(ctx, state, q)
			}
			return consul.Watch(ctx, client, consul.Query{}, source, func(u consul.Update[[]consul.CheckState]) {
				checks, err := whole(u.Value, u.Meta, u.Err)
				w.answered(state, err, func() { w.compare(state, checks) })
				gather(ctx)
			})
		})
	}
	g.Go(func() error { return w.read(ctx, changed) })
	return g.Wait()
}

// answered records the answer of a query, and wakes the reader.
func (w *catalogWatch) answered(query string, err error, accept func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.errs[query] = err; err == nil {
		accept()
		w.wake.Notify()
	}
}

// compare marks the hosts of which the checks in a state have changed. w.mu is held.
func (w *catalogWatch) compare(state string, checks []consul.CheckState) {
	now := map[string]uint64{}
	for _, c := range checks {
		h := fnv.New64a()
		_, _ = h.Write([]byte(c.CheckID + "\x00" + c.ServiceID + "\x00" + c.Notes)) // it cannot fail
		now[c.Node] += h.Sum64()
	}
	before := w.seen[state]
	for node, digest := range now {
		if before[node] != digest {
			w.stale[node] = true
		}
	}
	for node := range before {
		if _, still := now[node]; !still {
			w.stale[node] = true
		}
	}
	w.seen[state] = now
}

// read reads what is marked until ctx ends.
func (w *catalogWatch) read(ctx context.Context, changed func()) error {
	retry := concurrency.NewBackoff(firstReadRetry, lastReadRetry)
	for {
		if err := w.wake.Wait(ctx); err != nil {
			return err
		}
		w.mu.Lock()
		everything := w.whole
		w.mu.Unlock()
		if everything {
			if err := concurrency.Sleep(ctx, gatherRegistrations); err != nil {
				return err
			}
		}
		err := concurrency.Retry(ctx, retry, func(ctx context.Context) error {
			news, err := w.readMarked(ctx)
			if news {
				changed()
			}
			return err
		}, nil) // current is false meanwhile, and State reports the error
		if err != nil {
			return err
		}
		retry.Reset()
	}
}

// readMarked reads what is marked once. What cannot be read stays marked.
func (w *catalogWatch) readMarked(ctx context.Context) (news bool, err error) {
	w.mu.Lock()
	stale, everything := w.stale, w.whole || w.all == nil || len(w.stale) > mostHosts
	w.stale, w.whole = map[string]bool{}, false
	w.mu.Unlock()
	var inventory []consul.NodeInfo
	hosts := map[string][]consul.CheckState{}
	if everything {
		inventory, err = whole(w.cluster.client.Inventory(ctx, consul.Query{}))
	} else {
		hosts, err = w.readHosts(ctx, stale)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	failed := w.errs[queryRead] != nil
	w.errs[queryRead] = err
	switch {
	case err != nil:
		w.whole = w.whole || everything
		maps.Copy(w.stale, stale)
		return !failed, err
	case everything:
		w.all = make(map[string]consul.NodeInfo, len(inventory))
		for _, n := range inventory {
			w.all[n.Node] = n
		}
		w.hosts = w.cluster.catalogHosts(w.nodes, inventory, NeedState)
		return true, nil
	}
	w.hosts = maps.Clone(w.hosts)
	for node, checks := range hosts {
		n, known := w.all[node]
		if !known || removed(n.Checks, checks) {
			// A node or a service was removed or is new: its checks alone would show
			// one that is gone as one that passes.
			w.whole = true
			w.wake.Notify()
			continue
		}
		n.Checks = checks
		w.all[node] = n
		host := w.cluster.catalogHosts([]consul.NodeInfo{w.hosts[node].NodeInfo}, []consul.NodeInfo{n}, NeedState)
		w.hosts[node] = host[node]
	}
	return failed || len(hosts) > 0, nil
}

// readHosts reads the checks of some hosts.
func (w *catalogWatch) readHosts(ctx context.Context, nodes map[string]bool) (map[string][]consul.CheckState, error) {
	all := make(map[string][]consul.CheckState, len(nodes))
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readsAtATime)
	for node := range nodes {
		g.Go(func() error {
			list, err := whole(w.cluster.client.HealthNode(ctx, node, consul.Query{}))
			if err != nil {
				return err
			}
			checks := make([]consul.CheckState, 0, len(list))
			for _, c := range list {
				checks = append(checks, consul.CheckState{
					Node: node, CheckID: c.CheckID, Status: c.Status, Notes: c.Notes, ServiceID: c.ServiceID, ServiceName: c.ServiceName,
				})
			}
			mu.Lock()
			defer mu.Unlock()
			all[node] = checks
			return nil
		})
	}
	return all, g.Wait()
}

// removed reports whether a node's gossip check or a check of a service is in
// before and not in now.
func removed(before, now []consul.CheckState) bool {
	type id struct{ check, service string }
	has := map[id]bool{}
	for _, c := range now {
		has[id{c.CheckID, c.ServiceID}] = true
	}
	for _, c := range before {
		if !has[id{c.CheckID, c.ServiceID}] && (c.ServiceID != "" || c.CheckID == consul.GossipCheck) {
			return true
		}
	}
	return false
}

// current returns what is known of all hosts, by name; ok is false before the
// first answers and while a query fails.
func (w *catalogWatch) current() (hosts map[string]catalogHost, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, err := range w.errs {
		if err != nil {
			return nil, false
		}
	}
	return w.hosts, w.hosts != nil && len(w.seen) == 2
}
