package nodes_test

import (
	"context"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/nodes"
)

func TestDesired(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	if v, err := l.Desired(t.Context()); v != "" || err != nil {
		t.Errorf("before any trigger: %q, %v", v, err)
	}
	for _, step := range []struct {
		version string
		dry     bool
		want    nodes.Triggered
		after   string
	}{
		{"v1", true, nodes.Triggered{Version: "v1", Changed: true}, ""},
		{"v1", false, nodes.Triggered{Version: "v1", Changed: true}, "v1"},
		{"v1", false, nodes.Triggered{Version: "v1", Previous: "v1"}, "v1"},
		{"v2", true, nodes.Triggered{Version: "v2", Previous: "v1", Changed: true}, "v1"},
		{"v2", false, nodes.Triggered{Version: "v2", Previous: "v1", Changed: true}, "v2"},
	} {
		got, err := l.Trigger(t.Context(), step.version, step.dry)
		if err != nil || got != step.want {
			t.Errorf("Trigger(%s, %v) = %+v, %v", step.version, step.dry, got, err)
		}
		if v, err := l.Desired(t.Context()); v != step.after || err != nil {
			t.Errorf("after Trigger(%s, %v): %q, %v", step.version, step.dry, v, err)
		}
	}
	unwritten(t, s, "triggering what is desired", func() {
		if _, err := l.Trigger(t.Context(), "v2", false); err != nil {
			t.Error(err)
		}
	})
	_, err := l.Trigger(t.Context(), "a/b", false)
	wantIs(t, "a bad name", err, nodes.ErrBadName)
	put(t, s, "jorc/default/current_version", " v3\n")
	if v, err := l.Desired(t.Context()); v != "v3" || err != nil {
		t.Errorf("written by hand: %q, %v", v, err)
	}
	put(t, s, "jorc/default/current_version", "no version")
	_, err = l.Desired(t.Context())
	wantIs(t, "rubbish", err, kv.ErrDamaged)
	if got, err := l.Trigger(t.Context(), "v4", false); err != nil || !got.Changed {
		t.Errorf("over rubbish: %+v, %v", got, err)
	}
}

func TestWatchDesired(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	ctx, cancel := context.WithCancel(t.Context())
	seen := make(chan string)
	var watching sync.WaitGroup
	watching.Go(func() {
		_ = l.WatchDesired(ctx, func(v string, err error) { // ends with ctx
			if err != nil {
				v = "error"
			}
			select {
			case seen <- v:
			case <-ctx.Done():
			}
		})
	})
	for _, step := range []struct{ put, want string }{{"", ""}, {"v1", "v1"}, {"a b", "error"}, {"v2\n", "v2"}} {
		if step.put != "" {
			put(t, s, "jorc/default/current_version", step.put)
		}
		if got := <-seen; got != step.want {
			t.Errorf("after %q: %q, want %q", step.put, got, step.want)
		}
	}
	cancel()
	watching.Wait()
}
