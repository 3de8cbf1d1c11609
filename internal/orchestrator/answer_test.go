package orchestrator_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/orchestrator"
)

// TestAnsweredLater: who asked for a cycle is answered by the next one when Consul
// refused the answer, be it a report or that a cycle was running.
func TestAnsweredLater(t *testing.T) {
	t.Parallel()
	for _, running := range []bool{false, true} {
		s := newSite(t)
		proxy := s.server.Proxy()
		var failed atomic.Int64
		begun, asked := make(chan struct{}), make(chan struct{})
		goOn := sync.OnceFunc(func() { close(asked) })
		t.Cleanup(goOn)
		wait := sync.OnceFunc(func() { // the first cycle does
			close(begun)
			<-asked
		})
		var refuses atomic.Bool
		proxy.Do(func(r *http.Request) (f consultest.Fault) {
			switch {
			case cycleReads(r):
				f.Late = wait
			case refuses.Load() && r.URL.Path == "/v1/kv/"+s.store.Path("orchestrate/next") && !r.URL.Query().Has("index") && failed.Add(1) == 1:
				f.Status = http.StatusInternalServerError
			}
			return f
		})
		refuse := func() { refuses.Store(true) }
		o := quick(proxy.Client())
		o.Interval = time.Hour
		orch, stop := s.start(o)
		<-begun
		if running {
			refuse()
		} else {
			goOn()
			s.eventually("the first cycle to be over", func() error {
				if orch.Status().Cycles == 0 {
					return errEventsPending
				}
				return nil
			})
			refuse()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		answered := make(chan error, 1)
		go func() {
			_, err := orchestrator.Ask(ctx, s.store, "me")
			answered <- err
		}()
		s.eventually("an answer that is refused", func() error {
			if failed.Load() == 0 {
				return errEventsPending
			}
			return nil
		})
		if running {
			goOn()
		}
		s.join("a") // makes another cycle run
		if err := <-answered; err != nil {
			t.Errorf("a cycle was running: %v; Ask: %v", running, err)
		}
		stop()
	}
}
