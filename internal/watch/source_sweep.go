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

// registered asks for a sweep: the names of the services do not tell which of
// them was registered again.
func (w *sharedWatcher) registered(u consul.Update[any]) {
	if u.Err != nil || !w.known {
		w.known = true // the first answer is not a change; the checks' query reports failures
		return
	}
	w.sweep.Notify()
}

// sweepAgain is how long after a registration was found on a known node all
// services are read once more: at the same time another one may have come to a
// node that is not known yet.
const sweepAgain = 10 * time.Second

// sweeper looks for what was registered: on the nodes that are known to serve
// the services; when it is not there, by reading all services again, which
// counts five times against its share of the time.
func (w *sharedWatcher) sweeper(ctx context.Context) error {
	pace := newPace()
	again := time.NewTimer(0)
	defer again.Stop()
	again.Stop()
	waiting := false
	for {
		var start time.Time
		weight := 1
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.retry.C:
			start = time.Now()
			w.refresh(ctx, w.takeFailed(), false)
		case <-again.C:
			start, weight, waiting = time.Now(), 5, false
			w.refresh(ctx, w.deps, false)
		case <-w.sweep.C():
			start = time.Now()
			if w.sweepNodes(ctx) {
				if !waiting {
					waiting = true
					again.Reset(sweepAgain)
				}
				break
			}
			w.refresh(ctx, w.deps, false)
			weight, waiting = 5, false
			again.Stop()
		}
		if err := spend(ctx, pace, time.Duration(weight)*time.Since(start)); err != nil {
			return err
		}
	}
}

// sweepNodes refreshes the services that changed on the known nodes; it is
// false when none did, or not all nodes could be asked.
func (w *sharedWatcher) sweepNodes(ctx context.Context) (found bool) {
	changed, all := w.readNodeServices(ctx)
	if !all {
		return false
	}
	w.refresh(ctx, w.named(changed), false)
	return len(changed) > 0 // also of services that no template uses: that was the registration
}

// readNodeServices reads what the known nodes have registered and returns the names
// of the services that changed since the last time; all is false when nodes
// could not be read, or are too many.
func (w *sharedWatcher) readNodeServices(ctx context.Context) (changed map[string]bool, all bool) {
	changed = map[string]bool{}
	names := w.places.nodes()
	if len(names) > maxNodes {
		return changed, false
	}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(4)
	for _, name := range names {
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

func keys[V any](m map[string]V) []string {
	list := make([]string, 0, len(m))
	for k := range m {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}
