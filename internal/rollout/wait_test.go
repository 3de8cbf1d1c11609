package rollout_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/rollout"
)

// TestWaitLooksAgain: a read that Consul answers with a failure of its own is
// repeated, also the first, and also when nothing else changes.
func TestWaitLooksAgain(t *testing.T) {
	t.Parallel()
	server := consultest.Start(t)
	proxy := server.Proxy()
	client := proxy.Client()
	f := newSystem(t, &shared{server, server.Client()})
	f.join("w1")
	f.trigger(rollout.Request{Version: "v1"})
	var electing atomic.Int64
	proxy.Do(func(r *http.Request) (fault consultest.Fault) {
		if r.URL.Path == "/v1/txn" && electing.Add(1) < 3 { // when the wait begins
			fault.Status = http.StatusInternalServerError
		}
		return fault
	})
	looked, done := make(chan struct{}, 100), make(chan error, 1)
	go func() {
		done <- rollout.New(client, "jorc", f.name).Wait(t.Context(), func(rollout.Status, []rollout.HostProgress) { looked <- struct{}{} })
	}()
	<-looked
	if n := electing.Load(); n < 3 {
		t.Errorf("it asked %d times before it had an answer", n)
	}
	var failed atomic.Int64
	proxy.Do(func(r *http.Request) (fault consultest.Fault) {
		if r.URL.Path == "/v1/txn" {
			fault.Status = []int{http.StatusInternalServerError, http.StatusTooManyRequests}[failed.Add(1)%2]
		}
		return fault
	})
	f.report("v1", "w1")
	consultest.Eventually(t, "looks that fail", func(context.Context) error {
		if n := failed.Load(); n < 3 {
			return fmt.Errorf("%d have", n)
		}
		return nil
	})
	proxy.Do(nil)
	if err := <-done; err != nil {
		t.Errorf("Wait: %v", err)
	}
}
