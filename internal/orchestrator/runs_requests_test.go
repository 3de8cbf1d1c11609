package orchestrator_test

import (
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/runs"
)

// TestRunsInState: which runs are in progress, and the queues, are part of the state that the
// watcher reads: cycles without news read no keys by themselves, also while a run is in
// progress.
func TestRunsInState(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.host("a", "10.0.0.1", "passing", "passing")
	s.join("a")
	proxy := s.server.Proxy()
	o := quick(proxy.Client())
	o.Interval, o.Grants = 50*time.Millisecond, true
	orch, _ := s.start(o)
	all := runs.New(s.store)
	_, _, err := all.Ask(t.Context(), "r", runs.Request{Workflow: "good"}, "ann") // there is no worker yet
	s.must(nil, err)
	s.eventually("the run to wait for the member", func() error {
		r, err := all.Run(t.Context(), "r")
		if err == nil && r.Counts.Pending != 1 {
			err = errors.New(string(r.State))
		}
		return err
	})
	s.cyclesPass(orch, 2)
	var mu sync.Mutex
	read := map[string]int{} // the lists of keys with their values that were read
	proxy.Do(func(r *http.Request) consultest.Fault {
		if r.URL.Query().Has("recurse") {
			mu.Lock()
			defer mu.Unlock()
			read[r.URL.Path]++
		}
		return consultest.Fault{}
	})
	s.cyclesPass(orch, 5)
	proxy.Do(nil)
	if len(read) > 0 {
		t.Errorf("cycles without news read %v", read)
	}
	s.worker("a")
	s.done("r")
}
