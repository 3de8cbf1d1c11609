package watch_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/watch"
)

// told are params that a test tells of.
type told struct {
	news    chan toldParams
	watches atomic.Int32
}

type toldParams struct {
	params profile.Params
	err    error
}

func (m *told) Watch(ctx context.Context, handle func(profile.Params, error)) error {
	m.watches.Add(1)
	for {
		select {
		case n := <-m.news:
			handle(n.params, n.err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (m *told) tell(t *testing.T, text string) {
	t.Helper()
	p, err := profile.ParseParams(text)
	if err != nil {
		t.Fatal(err)
	}
	m.news <- toldParams{params: p}
}

// TestParams: the functions of params see them as they are now, one watch serves
// all templates, and neither a failed read nor a missing param changes a file.
func TestParams(t *testing.T) {
	t.Parallel()
	h := newSharedHost(t)
	m := &told{news: make(chan toldParams)}
	h.edit = func(o *watch.Options) { o.Params = m }
	e, stop := h.run(
		h.tmpl("one", `{{ param "size" }} {{ param "list" }}{{ range param "list" }} <{{ . }}>{{ end }}`),
		h.tmpl("other", `{{ paramExists "extra" }} {{ paramOr "extra" 7 }} {{ with param "o" }}{{ .k }}{{ end }} {{ param "size" | toJSON }}`),
	)
	wantStatus(t, e, "one", "waits", func(s watch.Status) bool { return mentions(s.Waiting, "params") })
	m.tell(t, `{"size": 1.10, "list": ["a", 2], "o": {"k": true}}`)
	h.want("one", `1.10 ["a",2] <a> <2>`)
	h.want("other", `false 7 true 1.10`)
	m.tell(t, `{"size": 2, "list": [], "o": {"k": true}, "extra": null}`)
	h.want("one", `2 []`)
	h.want("other", "true <no value> true 2")

	m.news <- toldParams{err: errors.New("Consul is away")}
	wantStatus(t, e, "one", "is stale", func(s watch.Status) bool { return mentions(s.Stale, "Consul is away") })
	m.tell(t, `{"size": 3, "list": [], "o": {"k": true}, "extra": null}`)
	h.want("one", `3 []`)
	m.tell(t, `{"list": [], "o": {"k": false}, "extra": null}`)
	wantStatus(t, e, "one", "failed", func(s watch.Status) bool {
		return mentions([]string{s.Error}, `param "size" does not exist: set it`)
	})
	h.want("one", `3 []`)
	m.tell(t, `{"size": 4, "list": [], "o": {"k": true}, "extra": null}`)
	h.want("one", `4 []`)
	if n := m.watches.Load(); n != 1 {
		t.Errorf("got %d watches, want 1", n)
	}
	stop()

	// A start without news renders what has no file yet from the last good data.
	h.edit = func(o *watch.Options) { o.Params = &told{news: make(chan toldParams)} }
	h.run(h.tmpl("new", `{{ param "size" }}`))
	h.want("new", "4")
}

// TestNoParams: without a cluster the functions are an error, and a template
// that uses them is refused by no check of its syntax.
func TestNoParams(t *testing.T) {
	t.Parallel()
	h := newSharedHost(t)
	c := h.tmpl("one", `{{ param "size" }}`)
	if err := watch.Check(&c); err != nil {
		t.Error(err)
	}
	if err := h.once(c); err == nil || !mentions([]string{err.Error()}, "this jorc has no cluster") {
		t.Errorf("got %v", err)
	}
}
