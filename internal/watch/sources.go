package watch

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/filewatch"
	"github.com/jorc/jorc/internal/profile"
)

// sources keeps a watcher running for everything that templates depend on, and
// no other.
type sources struct {
	client  *consul.Client
	foreign *foreignSource
	rights  *rights
	params  Params
	places  int                          // blocking queries at the same time
	maxData int                          // that one template reads together
	users   func(deps []*dependency) int // how many templates use any of deps
	changes chan<- batch
	log     hclog.Logger

	mu      sync.Mutex
	running map[string]*watcher
	wg      sync.WaitGroup
}

// batch is what one watcher found out.
type batch struct {
	changes []change
	watcher context.Context // of the watcher
}

// watcher is one goroutine that fetches one or many dependencies.
type watcher struct {
	cancel context.CancelFunc
	ids    []string
	empty  *emptyGroups // of a family; else nil
	task   func(ctx context.Context)
}

// want brings the watchers in line with what templates depend on. They run
// until ctx ends or they are no longer wanted.
func (s *sources) want(ctx context.Context, wanted map[string]*dependency) {
	next := s.watchers(makePlan(wanted, s.places))
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, w := range s.running {
		if n, ok := next[key]; !ok || !slices.Equal(n.ids, w.ids) {
			w.cancel()
			delete(s.running, key)
		}
	}
	for key, w := range next {
		if _, ok := s.running[key]; ok {
			continue
		}
		wctx, cancel := context.WithCancel(ctx)
		w.cancel = cancel
		s.running[key] = w
		s.wg.Go(func() { w.task(wctx) })
	}
}

// emptyGroupsOf returns what follows the names below a prefix; nil: nothing does.
func (s *sources) emptyGroupsOf(in scope, prefix string) *emptyGroups {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.running {
		if e := w.empty; e != nil && e.family.scope == in && strings.HasPrefix(prefix, e.family.prefix) {
			return e
		}
	}
	return nil
}

// restart ends the watcher of a dependency; the next want starts it again.
func (s *sources) restart(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, w := range s.running {
		if slices.Contains(w.ids, id) {
			w.cancel()
			delete(s.running, key)
		}
	}
}

// stop ends all watchers and waits for them.
func (s *sources) stop() {
	s.mu.Lock()
	for key, w := range s.running {
		w.cancel()
		delete(s.running, key)
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// watchers returns the watchers of a plan by their keys.
func (s *sources) watchers(p plan) map[string]*watcher {
	next := map[string]*watcher{}
	for _, g := range p.groups {
		most := s.maxData * s.users(g.deps)
		next[g.id()] = &watcher{ids: ids(g.deps), task: func(ctx context.Context) { s.watchGroup(ctx, g, most) }}
	}
	for _, f := range p.families {
		e := newEmptyGroups(s, f)
		next[f.id()] = &watcher{empty: e, task: e.run}
	}
	for _, d := range p.own {
		next[d.id] = &watcher{ids: []string{d.id}, task: func(ctx context.Context) { s.watchOne(ctx, d) }}
	}
	if len(p.shared) > 0 {
		next["shared services"] = &watcher{ids: ids(p.shared), task: func(ctx context.Context) { s.watchShared(ctx, p.shared) }}
	}
	return next
}

// watchOne fetches a dependency that has a query of its own.
func (s *sources) watchOne(ctx context.Context, d *dependency) {
	switch d.kind {
	case kindFile:
		s.watchFile(ctx, d)
	case kindParams:
		s.watchParams(ctx, d)
	case kindForeign:
		s.watchForeign(ctx, d)
	case kindDatacenter:
		s.watchDatacenters(ctx, d)
	default:
		fetch := s.fetcher(d)
		w := &tracker{}
		s.follow(ctx, consul.Query{Near: d.near}, fetch, func(u consul.Update[any]) {
			s.send(ctx, w.changes(u, d))
		})
	}
}

// follow runs the blocking-query loop until ctx ends.
func (s *sources) follow(ctx context.Context, q consul.Query, source consul.Source[any], handle func(consul.Update[any])) {
	_ = consul.Watch(ctx, s.client, q, source, handle) // it ends with ctx's error only
}

// send hands changes to the engine, unless ctx ends.
func (s *sources) send(ctx context.Context, c []change) {
	if len(c) == 0 || ctx.Err() != nil {
		return
	}
	select {
	case s.changes <- batch{c, ctx}:
		// The engine's loop and its job run next, in this thread: another would have to wake up first.
		runtime.Gosched()
	case <-ctx.Done():
	}
}

// tracker turns the updates of one watcher into changes.
type tracker struct {
	failed bool // since the last answer
}

func (w *tracker) changes(u consul.Update[any], deps ...*dependency) []change {
	c := make([]change, len(deps))
	for i, d := range deps {
		c[i] = change{id: d.id, value: u.Value, index: u.Meta.Index, err: u.Err, doubt: w.doubt(u.Reset), at: time.Now()}
	}
	w.failed = u.Err != nil
	return c
}

// doubt is why losses in an answer are not believed.
func (w *tracker) doubt(reset bool) doubt {
	switch {
	case reset:
		return afterReset
	case w.failed:
		return afterFailure
	}
	return noDoubt
}

func ids(deps []*dependency) []string {
	list := make([]string, len(deps))
	for i, d := range deps {
		list[i] = d.id
	}
	return list
}

// watchParams follows the params of this host's member, once for all templates.
func (s *sources) watchParams(ctx context.Context, d *dependency) {
	_ = s.params.Watch(ctx, func(p profile.Params, err error) { // it ends with ctx's error only
		s.send(ctx, []change{{id: d.id, value: p, err: err, at: time.Now()}})
	})
}

// maxFile bounds what is read of a source, and by the function file.
const maxFile = 16 << 20

// watchFile follows a local file.
func (s *sources) watchFile(ctx context.Context, d *dependency) {
	filewatch.Watch(ctx, d.name, func(ctx context.Context) { s.send(ctx, []change{readFile(d)}) }, s.log)
}

func readFile(d *dependency) change {
	c := change{id: d.id, at: time.Now()}
	data, err := durable.ReadFile(d.name, maxFile)
	refused := new(durable.LinkError)
	switch {
	case errors.As(err, &refused):
		c.value = refused // the template fails for it, and does not wait
	case err != nil:
		c.err = err
	default:
		c.value = string(data)
	}
	return c
}
