package runs

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/rollout"
)

// TestAwaitLooksAgain: a read that Consul answers with a failure of its own is
// repeated, also the first one, and also when nothing changes later.
func TestAwaitLooksAgain(t *testing.T) {
	t.Parallel()
	x := newSite(t, "a")
	proxy := x.server.Proxy()
	client := proxy.Client()
	var electing atomic.Int64
	proxy.Do(func(r *http.Request) (f consultest.Fault) {
		if r.URL.Path == "/v1/txn" && electing.Add(1) < 3 { // when the wait begins
			f.Status = http.StatusInternalServerError
		}
		return f
	})
	waits := make(chan string, 100)
	w := &Waiter{
		Client: client, Cluster: fleet.New(client, "jorc", x.name), Rollouts: rollout.New(client, "jorc", x.name),
		Missing: func(what string) { waits <- what },
	}
	done := make(chan error, 1)
	x.background(func(ctx context.Context) {
		v, err := w.Await(ctx, Goal{Members: 2})
		if err == nil && !v.Over {
			err = fmt.Errorf("got %+v", v)
		}
		done <- err
	})
	if got := <-waits; got != "1 of 2 members" {
		t.Errorf("it waits for %q", got)
	}
	var failed atomic.Int64
	proxy.Do(func(r *http.Request) (f consultest.Fault) {
		if r.URL.Path == "/v1/txn" {
			failed.Add(1)
			f.Status = http.StatusInternalServerError
		}
		return f
	})
	x.join("b")
	consultest.Eventually(t, "looks that fail", func(context.Context) error {
		if n := failed.Load(); n < 3 {
			return fmt.Errorf("%d have", n)
		}
		return nil
	})
	proxy.Do(nil)
	if err := <-done; err != nil {
		t.Errorf("Await: %v", err)
	}
}
