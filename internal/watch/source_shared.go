package watch

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	dep "github.com/hashicorp/consul-template/dependency"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
)

// watchShared follows many services with a few blocking queries: one on all
// checks, which says whose health changed, one on all nodes, which says whose
// address changed, and one on the names of all services, which wakes up for
// every registration but does not say of what. Only services that changed are
// read again. Two queries on the checks that do not pass have short answers, which say
// sooner whose state changed; where few nodes have all services, one on each says
// sooner what was registered.
func (s *sources) watchShared(ctx context.Context, deps []*dependency) {
	w := &sharedWatcher{
		sources: s, deps: deps, byName: map[string][]*dependency{},
		trackers: make(map[string]*sharedTracker, len(deps)), places: newPlaces(),
		sweep: concurrency.NewSignal(), all: concurrency.NewSignal(), found: concurrency.NewSignal(), ready: make(chan struct{}), pace: newPace(),
		failed: map[string]*dependency{}, retry: time.NewTimer(retryShared),
	}
	defer w.retry.Stop()
	for _, d := range deps {
		w.byName[d.name] = append(w.byName[d.name], d)
		w.trackers[d.id] = &sharedTracker{fetch: s.fetcher(d)}
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		s.follow(gctx, consul.Query{}, w.readChecks, w.checked(gctx))
		return gctx.Err()
	})
	g.Go(func() error {
		s.follow(gctx, consul.Query{}, w.awaitRegistration, w.registered)
		return gctx.Err()
	})
	g.Go(func() error {
		s.follow(gctx, consul.Query{}, w.readNodes, w.moved(gctx))
		return gctx.Err()
	})
	for _, state := range []string{consul.HealthCritical, consul.HealthWarning} {
		g.Go(func() error {
			f := &stateWatcher{sharedWatcher: w, state: state, pace: newPace()}
			s.follow(gctx, consul.Query{}, f.read, f.changed(gctx))
			return gctx.Err()
		})
	}
	g.Go(func() error { return w.sweeper(gctx) })
	_ = g.Wait() // all end with ctx's error only
}

type sharedWatcher struct {
	*sources
	deps     []*dependency
	byName   map[string][]*dependency
	trackers map[string]*sharedTracker

	places *places

	// Of the goroutine that follows the checks.
	checks map[checkKey]uint64 // → index
	took   time.Duration       // since pace was last asked
	pace   *rate.Limiter

	sweep  concurrency.Signal // asks for a search for what was registered
	all    concurrency.Signal // asks for all services to be read again
	ready  chan struct{}      // closed when all services were read once
	isRead bool               // ready is closed

	followed []string           // nodes with a query of their own; set before ready is closed
	found    concurrency.Signal // something was registered on one of them

	hostsMu sync.Mutex
	hosts   map[hostKey]bool // of all services that are followed; nil: not known

	stamps map[string]uint64 // node → index; of the goroutine that follows the nodes

	mu     sync.Mutex
	failed map[string]*dependency // those whose last reading failed
	retry  *time.Timer            // when they are read again
}

// retryShared is the pause before a service that could not be read is read again.
const retryShared = 2 * time.Second

// sharedTracker is a tracker that the followers of checks and of registrations
// both use.
type sharedTracker struct {
	mu    sync.Mutex
	fetch consul.Source[any]
	tracker
}

type checkKey struct{ node, check, service string }

func (w *sharedWatcher) readChecks(ctx context.Context, q consul.Query) (any, consul.Meta, error) {
	if err := spend(ctx, w.pace, w.took); err != nil {
		return nil, consul.Meta{}, err
	}
	w.took = 0
	list, meta, err := w.client.CheckIndexes(ctx, q)
	return list, meta, err
}

func (w *sharedWatcher) readNodes(ctx context.Context, q consul.Query) (any, consul.Meta, error) {
	indexes, meta, err := w.client.NodeIndexes(ctx, q)
	return indexes, meta, err
}

// moved reads the services of nodes again that were registered again or are gone, and forgets the latter.
func (w *sharedWatcher) moved(ctx context.Context) func(consul.Update[any]) {
	return func(u consul.Update[any]) {
		if u.Err != nil {
			return // the query of the checks reports it
		}
		now := u.Value.(map[string]uint64)
		names := map[string]bool{}
		for node, before := range w.stamps {
			index, here := now[node]
			if here && index == before {
				continue
			}
			for _, name := range w.places.on(node) {
				names[name] = true
			}
			if !here {
				w.places.compare(node, nil)
			}
		}
		w.stamps = now
		w.refresh(ctx, w.named(names), false)
	}
}

// named are the dependencies on services of these names.
func (w *sharedWatcher) named(names map[string]bool) []*dependency {
	var deps []*dependency
	for name := range names {
		deps = append(deps, w.byName[name]...)
	}
	return deps
}

func (w *sharedWatcher) awaitRegistration(ctx context.Context, q consul.Query) (any, consul.Meta, error) {
	meta, err := w.client.ServicesIndex(ctx, q)
	return nil, meta, err
}

// checked finds out whose checks changed, came or went, and reads those
// services again.
func (w *sharedWatcher) checked(ctx context.Context) func(consul.Update[any]) {
	return func(u consul.Update[any]) {
		if u.Err != nil {
			var all []change
			for _, d := range w.deps {
				t := w.trackers[d.id]
				t.mu.Lock()
				all = append(all, t.changes(u, d)...)
				t.mu.Unlock()
			}
			w.send(ctx, all)
			w.checks = nil
			return
		}
		start := time.Now()
		first := w.checks == nil
		names := w.compare(u.Value.([]consul.CheckIndex))
		if first || u.Reset {
			w.readAll(ctx, u.Reset)
		} else {
			w.refresh(ctx, w.named(names), false)
		}
		w.took += time.Since(start)
	}
}

// readAll reads all services, and what the sweeper compares later answers with. What is
// registered meanwhile may be in neither: then all are read again.
func (w *sharedWatcher) readAll(ctx context.Context, reset bool) {
	before, err := w.client.ServicesIndex(ctx, consul.Query{})
	w.newHosts(ctx)
	w.refresh(ctx, w.deps, reset)
	w.readNodeServices(ctx, w.places.nodes())
	after, afterErr := w.client.ServicesIndex(ctx, consul.Query{})
	if err != nil || afterErr != nil || after.Index != before.Index {
		w.all.Notify()
	}
	if !w.isRead {
		w.isRead = true
		if nodes := w.places.nodes(); len(nodes) <= maxFollowed {
			w.followed = nodes
		}
		close(w.ready)
	}
}

// stateWatcher follows the checks in one state. Most checks pass, so its answers are
// short, and come before those of the query on all checks.
type stateWatcher struct {
	*sharedWatcher
	state  string
	checks map[checkKey]uint64 // → index; nil: not known
	took   time.Duration       // since pace was last asked
	pace   *rate.Limiter
}

func (f *stateWatcher) read(ctx context.Context, q consul.Query) (any, consul.Meta, error) {
	if err := spend(ctx, f.pace, f.took); err != nil {
		return nil, consul.Meta{}, err
	}
	f.took = 0
	list, meta, err := f.client.CheckIndexesIn(ctx, f.state, q)
	return list, meta, err
}

// changed reads the services again that have a check which came into the state, changed or left
// it. Checks of nodes, which concern many services, are left to the query on all checks.
func (f *stateWatcher) changed(ctx context.Context) func(consul.Update[any]) {
	return func(u consul.Update[any]) {
		if u.Err != nil {
			f.checks = nil // the query on all checks reports it
			return
		}
		start := time.Now()
		before := f.checks
		f.checks = indexesOf(u.Value.([]consul.CheckIndex))
		names := map[string]bool{}
		if before != nil {
			differences(before, f.checks, func(k checkKey) { names[k.service] = true })
		}
		f.refresh(ctx, f.named(names), false)
		f.took += time.Since(start)
	}
}

func indexesOf(list []consul.CheckIndex) map[checkKey]uint64 {
	all := make(map[checkKey]uint64, len(list))
	for _, c := range list {
		all[checkKey{node: c.Node, check: c.CheckID, service: c.ServiceName}] = c.ModifyIndex
	}
	return all
}

// differences calls note with the checks that are not the same in both.
func differences(before, now map[checkKey]uint64, note func(checkKey)) {
	for k, index := range now {
		if old, ok := before[k]; !ok || old != index {
			note(k)
		}
	}
	for k := range before {
		if _, ok := now[k]; !ok {
			note(k)
		}
	}
}

// compare takes in all checks and returns the names of the services that the
// differences concern; a check of a node concerns all services on it.
func (w *sharedWatcher) compare(list []consul.CheckIndex) map[string]bool {
	now := indexesOf(list)
	names := map[string]bool{}
	differences(w.checks, now, func(k checkKey) {
		if k.service != "" {
			names[k.service] = true
			return
		}
		for _, name := range w.places.on(k.node) {
			names[name] = true
		}
	})
	w.checks = now
	return names
}

// refresh reads services again, several at a time.
func (w *sharedWatcher) refresh(ctx context.Context, deps []*dependency, reset bool) {
	var g errgroup.Group
	g.SetLimit(4)
	for _, d := range deps {
		g.Go(func() error {
			t := w.trackers[d.id]
			t.mu.Lock()
			defer t.mu.Unlock() // an older answer must not come after a newer
			value, meta, err := t.fetch(ctx, consul.Query{})
			if list, ok := value.([]*dep.HealthService); ok {
				w.places.note(d.name, list)
			}
			if ctx.Err() == nil {
				w.note(d, err)
				w.send(ctx, t.changes(consul.Update[any]{Value: value, Meta: meta, Err: err, Reset: reset}, d))
			}
			return nil
		})
	}
	_ = g.Wait() // its functions return nil: failures are changes too
}

// note remembers a dependency that could not be read, until it could. One that Consul
// refuses is read again with all others, after Consul was away.
func (w *sharedWatcher) note(d *dependency, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil || consul.IsPermanent(err) {
		delete(w.failed, d.id)
		return
	}
	w.failed[d.id] = d
	w.retry.Reset(retryShared)
}

// takeFailed returns what note remembers.
func (w *sharedWatcher) takeFailed() []*dependency {
	w.mu.Lock()
	defer w.mu.Unlock()
	deps := slices.Collect(maps.Values(w.failed))
	clear(w.failed)
	return deps
}

// newPace keeps a busy catalog from taking all of a host's time: a reader gets
// half of the time in the long run, and a second at once after a rest.
func newPace() *rate.Limiter {
	const unit = float64(time.Second / time.Microsecond)
	return rate.NewLimiter(rate.Limit(unit/2), int(unit))
}

// spend returns when d was affordable, or ctx's error.
func spend(ctx context.Context, pace *rate.Limiter, d time.Duration) error {
	return pace.WaitN(ctx, min(int(d/time.Microsecond), pace.Burst()))
}
