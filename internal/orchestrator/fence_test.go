package orchestrator_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/event"
)

// TestFenced: an orchestrator that loses the lock between a plan and what it writes writes nothing more, neither grants nor
// decisions, also before it has noticed; its next term writes each once.
func TestFenced(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.host("a", "10.0.0.1", "passing", "passing")
	s.join("a")
	s.worker("a")
	proxy := s.server.Proxy()
	var epoch atomic.Uint64
	carryOut := func(r *http.Request) error { // when the lock is lost, and before another term begins
		ctx := context.WithoutCancel(t.Context())
		lock, _, err := s.client.KVGet(ctx, s.store.Path(cluster.OrchestratorLock), consul.Query{})
		if err != nil {
			return err
		}
		epoch.Store(lock.ModifyIndex)
		if err := s.client.SessionDestroy(ctx, lock.Session); err != nil {
			return err
		}
		late, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+s.server.HTTPAddr+r.URL.String(), r.Body)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(late)
		if err != nil {
			return err
		}
		if answer.StatusCode != http.StatusConflict || s.has("r") || s.undelivered(event.ChangeStepBegan) > 0 {
			t.Errorf("a job is granted, or a decision kept, without the lock: %s", answer.Status)
		}
		return answer.Body.Close()
	}
	proxy.Do(func(r *http.Request) consultest.Fault {
		for key, value := range consultest.Writes(r) {
			if strings.HasSuffix(key, "/host/a/grants") && strings.Contains(value, cluster.RunChange("r")) && epoch.Load() == 0 {
				if err := carryOut(r); err != nil {
					t.Error(err)
				}
				return consultest.Fault{Status: http.StatusInternalServerError}
			}
		}
		return consultest.Fault{}
	})
	s.asksFor("r")
	o := s.deciding()
	o.Client = proxy.Client()
	orch, _ := s.start(o)
	s.eventually("the events of the run", func() error {
		if st := orch.Status(); !st.Active || st.Epoch <= epoch.Load() {
			return errEventsPending
		}
		kinds := map[string]int{}
		for _, e := range s.events() {
			kinds[e.Kind]++
		}
		if kinds[event.ChangeDone] == 0 {
			return errEventsPending
		}
		if kinds[event.ChangeBegan] != 1 || kinds[event.ChangeStepBegan] != 1 || kinds[event.ChangeDone] != 1 {
			t.Errorf("got %v", kinds)
		}
		return nil
	})
}
