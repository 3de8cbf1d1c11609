package watch

import (
	"context"
	"slices"
	"sync"
	"time"

	dep "github.com/hashicorp/consul-template/dependency"
	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/consul"
)

// maxNodes is the number of nodes up to which a registration is looked for on
// each of them, before all services are read again.
const maxNodes = 64

// maxFollowed is the number of nodes up to which each has a query of its own.
const maxFollowed = 2

// registered asks for a sweep: the names of the services do not tell which of
// them was registered again.
func (w *sharedWatcher) registered(u consul.Update[any]) {
	if u.Err == nil { // the checks' query reports failures
		w.sweep.Notify()
	}
}

// followNodes follows the services of nodes, each with a query of its own.
func (w *sharedWatcher) followNodes(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for _, node := range w.followed {
		read := func(ctx context.Context, q consul.Query) (any, consul.Meta, error) {
			services, meta, err := w.client.NodeServiceIndexes(ctx, node, q)
			return services, meta, err
		}
		running.Go(func() {
			w.follow(ctx, consul.Query{}, read, func(u consul.Update[any]) {
				if u.Err != nil {
					return // the checks' query reports failures
				}
				if changed := w.places.compare(node, u.Value.(map[string]consul.ServiceIndex)); len(changed) > 0 {
					w.found.Notify()
					w.refresh(ctx, w.named(setOf(changed)), false)
				}
			})
		})
	}
}

// sweepAgain is how long after a registration was found on a known node the nodes of all
// services are read: at the same time another one may have come to a
// node that is not known yet.
const sweepAgain = 10 * time.Second

// sweeper looks for what was registered: on the nodes that are known to serve
// the services; when it is not there, for services that came to another node. Where
// neither can be known all services are read again, which
// counts five times against its share of the time.
func (w *sharedWatcher) sweeper(ctx context.Context) error {
	select {
	case <-w.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { w.followNodes(ctx) })
	pace := newPace()
	again := time.NewTimer(0)
	defer again.Stop()
	again.Stop()
	waiting, whole := false, false
	for {
		var start time.Time
		weight := 1
		everything := func() {
			weight, waiting, whole = 5, false, false
			again.Stop()
			w.refresh(ctx, w.deps, false)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.retry.C:
			start = time.Now()
			w.refresh(ctx, w.takeFailed(), false)
		case <-w.all.C():
			whole = true
			again.Reset(sweepAgain)
			continue
		case <-again.C:
			start, waiting = time.Now(), false
			if whole || !w.sweepHosts(ctx) {
				everything()
			}
		case <-w.sweep.C():
			start = time.Now()
			found, all := w.sweepNodes(ctx)
			switch {
			case found && !waiting:
				waiting = true
				again.Reset(sweepAgain)
			case !found && (!all || !w.sweepHosts(ctx)):
				everything()
			}
		}
		if err := spend(ctx, pace, time.Duration(weight)*time.Since(start)); err != nil {
			return err
		}
	}
}

// sweepNodes refreshes the services that changed on the known nodes. found: some did,
// also if no template uses them. all: every node could be asked.
func (w *sharedWatcher) sweepNodes(ctx context.Context) (found, all bool) {
	nodes := slices.DeleteFunc(w.places.nodes(), func(n string) bool { return slices.Contains(w.followed, n) })
	changed, all := w.readNodeServices(ctx, nodes)
	if len(w.followed) > 0 && len(changed) == 0 {
		late := time.NewTimer(followedWithin)
		defer late.Stop()
		select {
		case <-w.found.C():
			found = true
		case <-late.C:
		case <-ctx.Done():
		}
	}
	if all {
		w.refresh(ctx, w.named(changed), false)
	}
	return found || all && len(changed) > 0, all
}

// followedWithin is how long a registration on a followed node may take to be noticed. One
// on another node is looked for only then.
const followedWithin = 50 * time.Millisecond

// readNodeServices reads what nodes have registered and returns the names
// of the services that changed since the last time; all is false when nodes
// could not be read, or are too many.
func (w *sharedWatcher) readNodeServices(ctx context.Context, nodes []string) (changed map[string]bool, all bool) {
	changed = map[string]bool{}
	if len(nodes) > maxNodes {
		return changed, false
	}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(4)
	for _, name := range nodes {
		g.Go(func() error {
			n, _, err := w.client.NodeServiceIndexes(ctx, name, consul.Query{})
			if err != nil {
				return err
			}
			services := w.places.compare(name, n)
			mu.Lock()
			defer mu.Unlock()
			for _, s := range services {
				changed[s] = true
			}
			return nil
		})
	}
	return changed, g.Wait() == nil
}

// hostKey is a service on a node.
type hostKey struct{ service, node string }

// sweepHosts refreshes the services that came to a node since the last time; it is false
// if that cannot be known.
func (w *sharedWatcher) sweepHosts(ctx context.Context) bool {
	names, ok := w.newHosts(ctx)
	w.refresh(ctx, w.named(names), false)
	return ok
}

// newHosts reads the nodes of all services, with one request, and returns the names of those
// that came to a node since the last time; ok is false if that cannot be known.
func (w *sharedWatcher) newHosts(ctx context.Context) (names map[string]bool, ok bool) {
	w.hostsMu.Lock()
	defer w.hostsMu.Unlock()
	list, _, err := w.client.ServiceHosts(ctx, consul.Query{})
	if err != nil {
		w.hosts = nil
		return nil, false
	}
	before := w.hosts
	w.hosts, names = map[hostKey]bool{}, map[string]bool{}
	for _, h := range list {
		if w.byName[h.Service] == nil {
			continue
		}
		for _, node := range h.Nodes {
			k := hostKey{h.Service, node}
			w.hosts[k] = true
			if !before[k] {
				names[h.Service] = true
			}
		}
	}
	return names, before != nil
}

// places remembers which node serves what.
type places struct {
	mu       sync.Mutex
	services map[string]map[string]bool                // node → names of services that were asked for
	indexes  map[string]map[string]consul.ServiceIndex // node → service id →
}

func newPlaces() *places {
	return &places{services: map[string]map[string]bool{}, indexes: map[string]map[string]consul.ServiceIndex{}}
}

// note takes in the instances of a service.
func (p *places) note(service string, list []*dep.HealthService) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range list {
		if p.services[s.Node] == nil {
			p.services[s.Node] = map[string]bool{}
		}
		p.services[s.Node][service] = true
	}
}

// on returns the names of the services on node.
func (p *places) on(node string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return keys(p.services[node])
}

func (p *places) nodes() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return keys(p.services)
}

// compare takes in what a node has registered and returns the names of the
// services that changed since the last time. now is nil when the node is gone.
func (p *places) compare(node string, now map[string]consul.ServiceIndex) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.indexes[node]
	var changed []string
	for id, s := range now {
		if before[id] != s {
			changed = append(changed, s.Service)
		}
	}
	for id, s := range before {
		if _, ok := now[id]; !ok {
			changed = append(changed, s.Service)
		}
	}
	p.indexes[node] = now
	if now == nil {
		delete(p.indexes, node)
		delete(p.services, node)
	}
	return changed
}

func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

func keys[V any](m map[string]V) []string {
	list := make([]string, 0, len(m))
	for k := range m {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}
