package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/orchestrator"
)

// recorder is a decider that decides what the test says and notes what it was asked.
type recorder struct {
	name   string
	mu     sync.Mutex
	inputs []orchestrator.Input
	decide func(ctx context.Context, in orchestrator.Input) ([]orchestrator.Decision, error)
}

func (r *recorder) Name() string { return r.name }

func (r *recorder) Decide(ctx context.Context, in orchestrator.Input) error {
	r.mu.Lock()
	r.inputs = append(r.inputs, in)
	r.mu.Unlock()
	if r.decide == nil {
		return nil
	}
	decisions, err := r.decide(ctx, in)
	if err != nil || len(decisions) == 0 {
		return err
	}
	return in.Record(ctx, decisions, nil)
}

func (r *recorder) asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.inputs)
}

// TestDeciders: decisions are journalled with what carries them out, of one that
// no longer holds nothing happens, and a decider that fails stops no other.
func TestDeciders(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.join("a", "db")
	count := kv.NewText(s.store, "counter")
	bad := &recorder{name: "bad", decide: func(context.Context, orchestrator.Input) ([]orchestrator.Decision, error) {
		return nil, errors.New("no idea")
	}}
	good := &recorder{name: "good"}
	good.decide = func(ctx context.Context, in orchestrator.Input) ([]orchestrator.Decision, error) {
		e, err := count.Get(ctx)
		if err != nil || len(e.Value) >= 3 {
			return nil, err
		}
		swap := func(t *kv.Txn) { count.In(in.Store).SwapIn(t, e, e.Value+"x") }
		counted := []orchestrator.Decision{{Kind: "counted", Text: fmt.Sprint(len(e.Value) + 1), Reason: "not yet three"}}
		if err := in.Record(ctx, counted, swap); err != nil {
			return nil, err
		}
		if err := in.Record(ctx, []orchestrator.Decision{{Kind: "twice", Text: "never"}}, swap); !errors.Is(err, kv.ErrConflict) {
			t.Errorf("a decision on what the first has changed: %v", err)
		}
		return []orchestrator.Decision{{Kind: "thought", Node: "a", Text: "nothing to do"}}, nil
	}
	o := quick(s.client)
	o.Interval, o.Deciders = 50*time.Millisecond, []orchestrator.Decider{bad, good}
	orch, _ := s.start(o)
	events := s.wantEvents(0, "cluster_created", "cluster_changed", "leaders_changed", "member_joined a",
		"counted", "thought a", "counted", "thought a", "counted", "thought a")
	if e := events[4]; e.Text != "1: not yet three" {
		t.Errorf("%+v", e)
	}
	good.mu.Lock()
	first := good.inputs[0]
	good.mu.Unlock()
	if len(first.Members) != 1 || first.State.Control.Paused != nil || first.Session == "" {
		t.Errorf("the first question was %+v", first)
	}
	s.eventually("reports of six decisions", func() error { // a report comes after its events
		decided := 0
		for _, r := range s.reports() {
			decided += r.Decided
		}
		if decided != 6 {
			return fmt.Errorf("%d: %+v", decided, s.reports())
		}
		return nil
	})
	if names, err := kv.NewTextTree(s.store, "orchestrate/decided/").Names(t.Context()); err != nil || len(names) > 0 {
		t.Errorf("not journalled yet: %v, %v", names, err)
	}
	s.cyclesPass(orch, 1)
	if last := orch.Status().Last; last.Outcome != orchestrator.OutcomePartial || len(last.Problems) != 1 || last.Problems[0].Why != "no idea" {
		t.Errorf("last report %+v", last)
	}
	before := s.index()
	s.cyclesPass(orch, 3)
	if now := s.index(); now != before {
		t.Error("a decider that always fails in the same way makes cycles write")
	}
	s.must(s.cluster.Pause(t.Context(), cluster.Hold{Since: time.Now()}))
	s.eventually("a question with the pause", func() error {
		good.mu.Lock()
		defer good.mu.Unlock()
		if good.inputs[len(good.inputs)-1].State.Control.Paused == nil {
			return errEventsPending
		}
		return nil
	})
}

// TestObserveOnly: views, events and reports continue, and no decider is asked.
func TestObserveOnly(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.must(s.cluster.SetObserveOnly(t.Context(), true, cluster.Hold{Since: time.Now(), Reason: "look"}))
	d := &recorder{}
	o := quick(s.client)
	o.Interval, o.Deciders = 50*time.Millisecond, []orchestrator.Decider{d}
	orch, _ := s.start(o)
	s.wantEvents(0, "cluster_created", "cluster_changed", "cluster_changed")
	s.join("a")
	s.wantEvents(3, "leaders_changed", "member_joined a")
	s.cyclesPass(orch, 1)
	if idle := orch.Status().Last.Idle; !strings.HasPrefix(idle, "observe only: since ") || d.asked() != 0 {
		t.Errorf("idle: %q, asked %d times", idle, d.asked())
	}
	s.must(s.cluster.SetObserveOnly(t.Context(), false, cluster.Hold{}))
	s.eventually("the decider to be asked", func() error {
		if d.asked() == 0 {
			return errEventsPending
		}
		return nil
	})
}

// TestAsk: a cycle that is asked for runs at once and is reported; while one
// runs the request is discarded; without an orchestrator that is said.
func TestAsk(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if _, err := orchestrator.Ask(t.Context(), s.store, "me"); !errors.Is(err, orchestrator.ErrNoOrchestrator) {
		t.Errorf("Ask without an orchestrator: %v", err)
	}
	begin, end := make(chan struct{}), make(chan struct{})
	d := &recorder{decide: func(ctx context.Context, in orchestrator.Input) ([]orchestrator.Decision, error) {
		for _, c := range []chan struct{}{begin, end} {
			select {
			case c <- struct{}{}:
			case <-ctx.Done():
			}
		}
		return nil, nil
	}}
	o := quick(s.client)
	o.Interval, o.Deciders = time.Hour, []orchestrator.Decider{d}
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

// TestSlowCluster: a cluster whose deciders take for ever delays no other.
func TestSlowCluster(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	slow, asked := &recorder{}, make(chan struct{})
	slow.decide = func(ctx context.Context, _ orchestrator.Input) ([]orchestrator.Decision, error) {
		close(asked)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	other := cluster.New(s.client, "jorc", "other")
	s.must(other.Init(t.Context(), cluster.InitOptions{}))
	o := quick(s.client)
	o.Cluster, o.Deciders = "other", []orchestrator.Decider{slow}
	s.start(o)
	<-asked
	s.start(quick(s.client))
	s.wantEvents(0, "cluster_created", "cluster_changed")
	s.join("a")
	s.wantEvents(2, "leaders_changed", "member_joined a")
}
