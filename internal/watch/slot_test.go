package watch_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/replace"
	"github.com/jorc/jorc/internal/watch"
)

// fleet hands out slots when the test says so, and notes what happens.
type fleet struct {
	free chan struct{} // a value for each slot that may be taken
	mu   sync.Mutex
	log  []string
}

func (f *fleet) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, fmt.Sprintf(format, args...))
}

func (f *fleet) notes() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.log)
}

func (f *fleet) slot(ctx context.Context, group string, limit int, reason string) (func(), error) {
	select {
	case <-f.free:
		f.note("%s of %d: %s", group, limit, reason)
		return func() { f.note("%s is free", group) }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func inSlot(slot string, limit int) func(*config.Template) {
	return func(c *config.Template) { c.Slot, c.MaxParallel, c.Reload = slot, limit, []string{"true"} }
}

func TestSlot(t *testing.T) {
	t.Parallel()
	h, f := newSharedHost(t), &fleet{free: make(chan struct{})}
	h.edit = func(o *watch.Options) { o.Slot = f.slot }
	together := func(c *config.Template) { c.Together = "pair" }
	e, _ := h.run(
		h.tmpl("b", "new", inSlot("two", 5), together), h.tmpl("a", "new", inSlot("one", -1), together),
		h.tmpl("plain", "at once"), h.tmpl("c", "other", inSlot("two", 3)),
	)
	h.want("plain", "at once")
	wantStatus(t, e, "a", "waits for its slot", func(s watch.Status) bool {
		return s.State == watch.StateWaiting && mentions(s.Waiting, `a slot of "one"`)
	})
	wantStatus(t, e, "c", "waits for its slot", func(s watch.Status) bool { return mentions(s.Waiting, `a slot of "two"`) })
	if _, err := os.Stat(h.path("a")); err == nil {
		t.Error("the file was replaced without a slot")
	}
	for range 3 {
		f.free <- struct{}{}
	}
	wantStatus(t, e, "a", "is rendered", inState(watch.StateRendered))
	wantStatus(t, e, "c", "is rendered", inState(watch.StateRendered))
	all := strings.Join(f.notes(), "\n")
	for _, want := range []string{"one of -1: reload of together pair", "two of 3: reload of together pair", "two of 3: reload of template c"} {
		if !strings.Contains(all, want) {
			t.Errorf("it went\n%s\nwithout %q", all, want)
		}
	}
	if n := strings.Count(all, "is free"); n != 3 {
		t.Errorf("%d slots were given back; want 3:\n%s", n, all)
	}
}

// TestSlotTakenWhileHeld: a host that was held while it waited replaces nothing.
func TestSlotTakenWhileHeld(t *testing.T) {
	t.Parallel()
	h, f := newSharedHost(t), &fleet{free: make(chan struct{})}
	var held sync.Map
	h.edit = func(o *watch.Options) {
		o.Slot = f.slot
		o.Held = func() string {
			why, _ := held.LoadOrStore("why", "")
			return why.(string)
		}
	}
	e, _ := h.run(h.tmpl("a", "new", inSlot("s", 1)))
	wantStatus(t, e, "a", "waits", func(s watch.Status) bool { return mentions(s.Waiting, "slot") })
	held.Store("why", "maintenance")
	f.free <- struct{}{}
	wantStatus(t, e, "a", "is held", func(s watch.Status) bool { return strings.Contains(s.Error, "maintenance") })
	if got := f.notes(); len(got) != 2 || got[1] != "s is free" {
		t.Errorf("it went %q; want the slot given back", got)
	}
	held.Store("why", "")
	f.free <- struct{}{}
	h.want("a", "new")
}

func TestSlotCannotBeHad(t *testing.T) {
	t.Parallel()
	h := newSharedHost(t)
	refused := errors.New("no such luck")
	h.edit = func(o *watch.Options) {
		o.Slot = func(context.Context, string, int, string) (func(), error) { return nil, refused }
	}
	if err := h.once(h.tmpl("a", "new", inSlot("s", 1))); err == nil || !strings.Contains(err.Error(), refused.Error()) {
		t.Errorf("Once = %v; want %v", err, refused)
	}
	_, err := watch.New(watch.Options{Client: h.client, Templates: []config.Template{h.tmpl("a", "new", inSlot("s", 1))}})
	if err == nil || !strings.Contains(err.Error(), `slot "s" cannot be taken`) {
		t.Errorf("New without slots = %v", err)
	}
}

// TestGateOfARecovery: what a crash left is reloaded in its slot.
func TestGateOfARecovery(t *testing.T) {
	t.Parallel()
	h, f := newSharedHost(t), &fleet{free: make(chan struct{}, 1)}
	h.edit = func(o *watch.Options) { o.Slot = f.slot }
	e := h.engine(h.tmpl("a", "new", inSlot("s", 1)), h.tmpl("plain", "new"))
	var gate func(context.Context, string) (func(), error) = e.Gate
	_ = replace.RecoverOptions{Gate: gate}
	f.free <- struct{}{}
	release, err := e.Gate(t.Context(), "template a")
	if err != nil || release == nil {
		t.Fatalf("Gate = %v", err)
	}
	release()
	for _, unit := range []string{"template plain", "template of another time"} {
		if release, err := e.Gate(t.Context(), unit); err != nil || release != nil {
			t.Errorf("Gate(%q) = %v; want none", unit, err)
		}
	}
}
