package cluster

import (
	"context"
	"maps"
	"reflect"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
)

// catalogWatch keeps what the catalog says of all hosts current with blocking
// queries. Health changes all the time in a large fleet, and an answer with all
// checks is as long as all others together. So it watches the checks that do not
// pass, and reads all services and checks again only after a node or a service
// was registered or removed.
type catalogWatch struct {
	cluster    *Cluster
	registered concurrency.Signal

	mu       sync.Mutex
	answered map[string]bool                  // queries on registrations that were answered
	errs     map[string]error                 // of the last answer, by query
	nodes    []consul.NodeInfo                // nil: not known yet
	all      map[string]consul.NodeInfo       // with services and checks, as of the last full read
	failing  map[string]map[string]nodeChecks // checks by state and node; a state that is missing is not known yet
	hosts    map[string]catalogHost           // never changed, only replaced
}

// nodeChecks are the checks of one node in one state.
type nodeChecks []consul.CheckState

// Queries of a catalogWatch.
const (
	queryNodes     = "nodes"
	queryServices  = "services"
	queryInventory = "inventory"
)

// gatherRegistrations is for how long registrations are gathered before all
// services are read again: an agent that starts registers several at once.
const gatherRegistrations = 100 * time.Millisecond

// Pauses after a full read that failed.
const firstInventoryRetry, lastInventoryRetry = 100 * time.Millisecond, 10 * time.Second

func newCatalogWatch(c *Cluster) *catalogWatch {
	return &catalogWatch{cluster: c, registered: concurrency.NewSignal(), answered: map[string]bool{}, errs: map[string]error{}, failing: map[string]map[string]nodeChecks{}}
}

// run watches until ctx ends and returns ctx's error. It calls changed after each
// change, and gather before a query asks again.
func (w *catalogWatch) run(ctx context.Context, changed func(), gather func(context.Context)) error {
	heard := func(query string, err error, accept func() (news bool)) {
		w.mu.Lock()
		before := w.errs[query]
		w.errs[query] = err
		news := (before == nil) != (err == nil)
		if err == nil && accept() {
			news = true
		}
		w.mu.Unlock()
		if news {
			changed()
		}
		gather(ctx)
	}
	client := w.cluster.client
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return consul.Watch(ctx, client, consul.Query{}, client.CatalogHosts, func(u consul.Update[[]consul.NodeInfo]) {
			nodes, err := whole(u.Value, u.Meta, u.Err)
			heard(queryNodes, err, func() bool {
				if u.Reset || !w.answered[queryNodes] || !reflect.DeepEqual(w.nodes, nodes) {
					w.nodes = nodes
					w.readAgain(queryNodes)
				}
				return false // the full read that follows is the news
			})
		})
	})
	g.Go(func() error {
		source := func(ctx context.Context, q consul.Query) (struct{}, consul.Meta, error) {
			meta, err := client.ServicesIndex(ctx, q)
			return struct{}{}, meta, err
		}
		return consul.Watch(ctx, client, consul.Query{}, source, func(u consul.Update[struct{}]) {
			heard(queryServices, u.Err, func() bool { w.readAgain(queryServices); return false })
		})
	})
	for _, state := range []string{consul.HealthCritical, consul.HealthWarning} {
		g.Go(func() error {
			source := func(ctx context.Context, q consul.Query) ([]consul.CheckState, consul.Meta, error) {
				return client.ChecksInState(ctx, state, q)
			}
			return consul.Watch(ctx, client, consul.Query{}, source, func(u consul.Update[[]consul.CheckState]) {
				checks, err := whole(u.Value, u.Meta, u.Err)
				heard(state, err, func() bool { return w.accept(state, checks) })
			})
		})
	}
	g.Go(func() error {
		retry := concurrency.NewBackoff(firstInventoryRetry, lastInventoryRetry)
		for {
			if err := w.registered.Wait(ctx); err != nil {
				return err
			}
			if err := concurrency.Sleep(ctx, gatherRegistrations); err != nil {
				return err
			}
			select {
			case <-w.registered.C(): // what was gathered
			default:
			}
			err := concurrency.Retry(ctx, retry, func(ctx context.Context) error {
				list, err := whole(client.Inventory(ctx, consul.Query{}))
				heard(queryInventory, err, func() bool { w.rebuild(list); return true })
				return err
			}, nil) // State reports the error
			if err != nil {
				return err
			}
			retry.Reset()
		}
	})
	return g.Wait()
}

// readAgain has everything read again, once both queries on registrations have
// been answered. w.mu is held.
func (w *catalogWatch) readAgain(query string) {
	w.answered[query] = true
	if len(w.answered) == 2 {
		w.registered.Notify()
	}
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
	return w.hosts, w.hosts != nil && len(w.failing) == 2
}

// rebuild takes over a full read. w.mu is held.
func (w *catalogWatch) rebuild(inventory []consul.NodeInfo) {
	w.all = make(map[string]consul.NodeInfo, len(inventory))
	for _, n := range inventory {
		w.all[n.Node] = n
	}
	merged := make([]consul.NodeInfo, 0, len(inventory))
	for node := range w.all {
		merged = append(merged, w.merged(node))
	}
	w.hosts = w.cluster.catalogHosts(w.nodes, merged, NeedState)
}

// accept takes over the checks in one state and reports whether they are news.
// w.mu is held.
func (w *catalogWatch) accept(state string, checks []consul.CheckState) (news bool) {
	before, known := w.failing[state]
	now := map[string]nodeChecks{}
	for _, c := range checks {
		now[c.Node] = append(now[c.Node], c)
	}
	w.failing[state] = now
	if w.hosts == nil {
		return !known
	}
	next := w.hosts
	renew := func(node string) {
		if _, exists := w.all[node]; !exists || reflect.DeepEqual(before[node], now[node]) {
			return
		}
		if !news {
			next, news = maps.Clone(w.hosts), true
		}
		host := w.cluster.catalogHosts([]consul.NodeInfo{w.hosts[node].NodeInfo}, []consul.NodeInfo{w.merged(node)}, NeedState)
		next[node] = host[node]
	}
	for node := range before {
		renew(node)
	}
	for node := range now {
		renew(node)
	}
	w.hosts = next
	return news || !known
}

// merged returns a node with its checks as they are now: those of the last full
// read, of which the ones that are in no watched state pass, or were removed,
// which is the same for a host's condition except for maintenance.
func (w *catalogWatch) merged(node string) consul.NodeInfo {
	n := w.all[node]
	if len(w.failing) < 2 {
		return n
	}
	type id struct{ check, service string }
	failing := map[id]consul.CheckState{}
	var order []id
	for _, state := range []string{consul.HealthCritical, consul.HealthWarning} {
		for _, c := range w.failing[state][node] {
			k := id{c.CheckID, c.ServiceID}
			failing[k] = c
			order = append(order, k)
		}
	}
	checks := make([]consul.CheckState, 0, len(n.Checks)+len(order))
	for _, c := range n.Checks {
		k := id{c.CheckID, c.ServiceID}
		now, fails := failing[k]
		switch {
		case fails:
			c = now
			delete(failing, k)
		case consul.IsMaintenance(c.CheckID):
			continue
		default:
			c.Status = consul.HealthPassing
		}
		checks = append(checks, c)
	}
	for _, k := range order {
		if c, left := failing[k]; left {
			checks = append(checks, c)
			delete(failing, k)
		}
	}
	n.Checks = checks
	return n
}
