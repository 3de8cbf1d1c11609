package cluster_test

import (
	"context"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/kv"
)

func TestDesired(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	if v, err := l.Desired(t.Context()); v != "" || err != nil {
		t.Errorf("before any trigger: %q, %v", v, err)
	}
	put(t, s, "jorc/default/current_version", " v3\n")
	if v, err := l.Desired(t.Context()); v != "v3" || err != nil {
		t.Errorf("written by hand: %q, %v", v, err)
	}
	put(t, s, "jorc/default/current_version", "no version")
	_, err := l.Desired(t.Context())
	wantIs(t, "rubbish", err, kv.ErrDamaged)
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
