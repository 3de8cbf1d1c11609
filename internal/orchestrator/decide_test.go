package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/runs"
)

// asksFor asks for a run that has a job for each member.
func (s *site) asksFor(id string) {
	s.t.Helper()
	_, _, err := runs.New(s.store).Ask(s.t.Context(), id, runs.Request{Workflow: "good"}, "ann")
	s.must(nil, err)
}

// done waits until a run has ended well.
func (s *site) done(id string) {
	s.t.Helper()
	s.eventually("the end of run "+id, func() error {
		r, err := runs.New(s.store).Run(s.t.Context(), id)
		if err == nil && r.State != runs.Done {
			err = fmt.Errorf("it is %s: %s", r.State, r.Why)
		}
		return err
	})
}

// granted waits until a run has begun.
func (s *site) granted(id string) {
	s.t.Helper()
	s.eventually("run "+id+" to be granted", func() error {
		if !s.has(id) {
			return errEventsPending
		}
		return nil
	})
}

// has reports whether a host has a grant of a run.
func (s *site) has(id string) bool {
	s.t.Helper()
	pairs, _, err := s.client.KVList(s.t.Context(), s.store.Path(cluster.PrefixHosts), consul.Query{Consistent: true})
	s.must(nil, err)
	return slices.ContainsFunc(pairs, func(p *consul.KVPair) bool {
		return strings.HasSuffix(p.Key, "/grants") && strings.Contains(string(p.Value), fmt.Sprintf("%q", cluster.RunChange(id)))
	})
}

// TestDecisions: decisions are journalled and reported, what is planned of one kind of changes does not wait for another that cannot
// be planned, and cycles that always find the same problem write nothing.
func TestDecisions(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.host("a", "10.0.0.1", "passing", "passing")
	s.join("a", "db")
	s.worker("a")
	s.put(cluster.ReportKey("a"), `{"format":1,"stages":{"edge":{"policy":{"max_parallel":"1"},"wants":"c","changed":{"list":[{"name":"key a","digest":"d"}]}}}}`)
	s.put(cluster.StageStateKey("edge"), "garbage")
	orch, _ := s.start(s.deciding())
	s.asksFor("r")
	s.wantEvents(0, "cluster_created", "cluster_changed", "leaders_changed", "member_joined a", "service_up web", "change_began", "change_step_began", "change_done")
	s.eventually("reports of three decisions", func() error { // a report comes after its events
		decided := 0
		for _, r := range s.reports() {
			decided += r.Decided
		}
		if decided != 3 {
			return fmt.Errorf("%d: %+v", decided, s.reports())
		}
		return nil
	})
	if n := s.undelivered(""); n > 0 {
		t.Errorf("%d decisions are not journalled", n)
	}
	s.cyclesPass(orch, 1)
	if last := orch.Status().Last; last.Outcome != orchestrator.OutcomePartial || len(last.Problems) != 1 || last.Problems[0].Name != "stages" {
		t.Errorf("last report %+v", last)
	}
	before := s.index()
	s.cyclesPass(orch, 3)
	if now := s.index(); now != before {
		t.Error("a kind of changes that can never be planned makes cycles write")
	}
}

// TestObserveOnly: views, events and reports continue, and nothing is granted.
func TestObserveOnly(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.must(s.cluster.SetObserveOnly(t.Context(), true, cluster.Hold{Since: time.Now(), Reason: "look"}))
	orch, _ := s.start(s.deciding())
	s.wantEvents(0, "cluster_created", "cluster_changed", "cluster_changed")
	s.join("a")
	s.wantEvents(3, "leaders_changed", "member_joined a")
	s.asksFor("r")
	s.cyclesPass(orch, 3)
	if idle := orch.Status().Last.Idle; !strings.HasPrefix(idle, "observe only: since ") || s.has("r") {
		t.Errorf("idle: %q; the run is granted: %v", idle, s.has("r"))
	}
	s.host("a", "10.0.0.1", "passing", "passing")
	s.must(s.cluster.SetObserveOnly(t.Context(), false, cluster.Hold{}))
	s.granted("r")
}

// stepped returns a client with which each cycle of an orchestrator that grants nothing sends to begin when it reads, and then to end
// before it continues.
func (s *site) stepped() (client *consul.Client, begin, end chan struct{}) {
	proxy := s.server.Proxy()
	begin, end = make(chan struct{}), make(chan struct{})
	over := make(chan struct{})
	s.t.Cleanup(func() { close(over) })
	proxy.Do(func(r *http.Request) consultest.Fault {
		if !cycleReads(r) {
			return consultest.Fault{}
		}

		return consultest.Fault{Late: func() {
			for _, c := range []chan struct{}{begin, end} {
				select {
				case c <- struct{}{}:
				case <-over:
				case <-r.Context().Done():
				}
			}
		}}
	})
	return proxy.Client(), begin, end
}

// cycleReads reports whether a request is one that each cycle makes once, and nothing else.
func cycleReads(r *http.Request) bool {
	return r.URL.Path == "/v1/catalog/services" && r.URL.Query().Has("node-meta")
}

// TestAsk: a cycle that is asked for runs at once and is reported; while one
// runs the request is discarded; without an orchestrator that is said.
func TestAsk(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if _, err := orchestrator.Ask(t.Context(), s.store, "me"); !errors.Is(err, orchestrator.ErrNoOrchestrator) {
		t.Errorf("Ask without an orchestrator: %v", err)
	}
	client, begin, end := s.stepped()
	o := quick(client)
	o.Interval = time.Hour
	orch, stop := s.start(o)
	<-begin // the first cycle runs
	if r, err := orchestrator.Ask(t.Context(), s.store, "me"); err != nil || r != nil {
		t.Errorf("Ask during a cycle = %+v, %v; want that it is discarded", r, err)
	}
	<-end
	s.cyclesPass(orch, 0)
	type answer struct {
		r   *orchestrator.Report
		err error
	}
	got := make(chan answer)
	ask := func() {
		r, err := orchestrator.Ask(context.Background(), s.store, "me")
		got <- answer{r, err}
	}
	s.eventually("the first cycle to be over", func() error {
		if orch.Status().Cycles == 0 {
			return errEventsPending
		}
		return nil
	})
	go ask()
	<-begin
	<-end
	if a := <-got; a.err != nil || a.r == nil || a.r.Trigger != "request" || a.r.Number == 0 || a.r.Outcome != orchestrator.OutcomeUnchanged {
		t.Errorf("Ask = %+v, %v", a.r, a.err)
	}
	go ask()
	<-begin
	stop() // the next orchestrator answers
	d2 := quick(s.client)
	d2.Interval = time.Hour
	s.start(d2)
	if a := <-got; a.err != nil || a.r == nil {
		t.Errorf("Ask over a take-over = %+v, %v", a.r, a.err)
	}
	if orch.Status().Discarded != 1 {
		t.Errorf("status %+v", orch.Status())
	}
}

// TestDamagedRequests: damage of the requests and of the
// reports does not block requests for long.
func TestDamagedRequests(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	o := quick(s.client)
	o.Interval = time.Hour
	s.start(o)
	s.wantEvents(0, "cluster_created", "cluster_changed")
	s.put("orchestrate/next", "garbage")
	s.put("orchestrate/reports", "garbage")
	s.eventually("a report", func() error {
		r, err := orchestrator.Ask(t.Context(), s.store, "me")
		if err == nil && r == nil {
			err = errEventsPending // discarded
		}
		return err
	})
}

// TestSlowCluster: a cluster whose cycle takes for ever delays no other.
func TestSlowCluster(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	other := fleet.New(s.client, "jorc", "other")
	s.must(other.Init(t.Context(), fleet.InitOptions{}))
	client, begin, _ := s.stepped()
	o := quick(client)
	o.Cluster = "other"
	s.start(o)
	<-begin
	s.start(quick(s.client))
	s.wantEvents(0, "cluster_created", "cluster_changed")
	s.join("a")
	s.wantEvents(2, "leaders_changed", "member_joined a")
}
