package orchestrator_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
)

func canaryFirst(p *pace.Policy) { p.Canary, p.MaxParallel = 1, pace.Amount{N: 1} }

// dieAtStep runs an orchestrator that ends at its n-th transaction: before it is carried out, or late, when
// nothing learns any longer that it was. One that has less to do is stopped after a few cycles.
func (s *site) dieAtStep(o orchestrator.Options, n int64, late bool) {
	s.t.Helper()
	proxy := s.server.Proxy()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var steps atomic.Int64
	proxy.Do(func(r *http.Request) consultest.Fault {
		if r.URL.Path != "/v1/txn" || ctx.Err() != nil { // then it gives the lock back
			return consultest.Fault{}
		}
		switch step := steps.Add(1); {
		case step < n:
			return consultest.Fault{}
		case step == n && late:
			return consultest.Fault{Cut: 1}
		}
		cancel()
		return consultest.Fault{Status: http.StatusInternalServerError}
	})
	o.Client = proxy.Client()
	orch := orchestrator.New(o)
	ended := make(chan error, 1)
	go func() { ended <- orch.Run(ctx) }()
	s.eventually("the orchestrator to end, or to have nothing to do", func() error {
		if ctx.Err() == nil && orch.Status().Cycles < 4 {
			return errEventsPending
		}
		return nil
	})
	cancel()
	s.must(nil, <-ended)
}

// TestRolloutDecidedOnce: what is decided of a rollout becomes one event, whichever step of an orchestrator is its
// last: neither the decision nor its event is lost, and none is there twice.
func TestRolloutDecidedOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	nodes := []string{"a", "b"}
	for _, node := range nodes {
		s.host(node, "10.0.0.1", "passing", "passing")
		s.join(node, "web")
	}
	o := quick(s.client)
	o.Interval, o.Grants = 100*time.Millisecond, true
	s.must(s.rollouts.Trigger(t.Context(), rollout.Request{Version: "v1", Policy: func(p *pace.Policy) { p.MaxParallel = pace.Amount{N: 1} }}))
	const steps = 12
	arrive := sync.OnceFunc(func() {
		s.must(s.cluster.ReportVersion(t.Context(), "a", "v1"))
		s.must(s.cluster.ReportVersion(t.Context(), "b", "v1"))
	})
	for n := range int64(steps) {
		for _, late := range []bool{false, true} {
			s.dieAtStep(o, n+1, late)
			d, err := s.rollouts.Load(t.Context())
			s.must(nil, err)
			if admitted := s.kinds()["change_step_began"] + s.undelivered("change_step_began"); (d.Document.Phase == pace.Waiting) != (admitted == 0) {
				t.Fatalf("step %d, late %v: the rollout is %s, and that is decided %d times", n+1, late, d.Document.Phase, admitted)
			}
			if n >= steps/2 && d.Document.Phase != pace.Waiting { // a rollout that all have reached before is never admitted
				arrive()
			}
		}
	}
	arrive()
	s.start(o)
	s.wantKnown("v1", true)
	s.eventually("the last event", func() error {
		if s.kinds()["change_done"] == 0 {
			return errEventsPending
		}
		return nil
	})
	if n := s.undelivered(""); n > 0 {
		t.Errorf("%d decisions are not journalled", n)
	}
	for kind, n := range s.kinds() {
		if n != 1 && strings.HasPrefix(kind, "change_") {
			t.Errorf("%d events %s", n, kind)
		}
	}
}

// kinds counts the events by kind, but for those of runs.
func (s *site) kinds() map[string]int {
	s.t.Helper()
	all := map[string]int{}
	for _, e := range s.events() {
		if !strings.HasPrefix(e.Change, cluster.KindRun+".") {
			all[e.Kind]++
		}
	}
	return all
}

// undelivered counts the decisions that no cycle has journalled yet, of a kind or of all.
func (s *site) undelivered(kind string) (n int) {
	s.t.Helper()
	pairs, _, err := s.client.KVList(s.t.Context(), s.store.Path("orchestrate/decided/"), consul.Query{Consistent: true})
	s.must(nil, err)
	for _, p := range pairs {
		n += strings.Count(string(p.Value), fmt.Sprintf(`"kind":"%s`, cmp.Or(kind, "change_")))
	}
	return n
}

// TestDecidedBetween: an operator who changes the rollout while it is planned puts the decision off only until
// it is planned again.
func TestDecidedBetween(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.host("a", "10.0.0.1", "passing", "passing")
	s.join("a", "web")
	s.must(s.rollouts.Trigger(t.Context(), rollout.Request{Version: "v1", Policy: canaryFirst}))
	proxy := s.server.Proxy()
	var promoted atomic.Bool
	proxy.Do(func(r *http.Request) consultest.Fault {
		// The names of the records are read between the plan and what it writes.
		if strings.HasSuffix(r.URL.Path, "/history/rollouts/") && !promoted.Swap(true) {
			if _, _, err := s.rollouts.Promote(t.Context(), "ann"); err != nil {
				t.Error(err)
			}
		}
		return consultest.Fault{}
	})
	o := quick(proxy.Client())
	o.Interval, o.Grants = time.Hour, true
	s.start(o)
	s.eventually("the decision", func() error {
		d, err := s.rollouts.Load(t.Context())
		if err == nil && (d.Document.Phase != pace.Canary || !d.Document.Promoted) {
			err = errEventsPending
		}
		return err
	})
	s.wantEvents(0, "cluster_created", "cluster_changed", "leaders_changed", "desired_version_changed",
		"member_joined a", "service_up web", "change_step_began")
}
