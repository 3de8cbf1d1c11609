package orchestrator_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/slots"
)

// group are the slots of the site's rollout.
func (s *site) group() (*slots.Slots, *kv.Doc[slots.Group]) {
	s.t.Helper()
	all := slots.New(s.store, slots.Options{})
	s.t.Cleanup(func() { all.Close(context.Background()) })
	doc := kv.NewDoc[slots.Group](s.store, "slots/"+rollout.Slots, 1)
	return all, &doc
}

func canaryFirst(p *rollout.Policy) { p.Canary, p.MaxParallel = 1, rollout.Amount{N: 1} }

// TestRolloutDecided: what was decided of a rollout happens with its event or
// not at all: an orchestrator that is killed in between loses neither.
func TestRolloutDecided(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, node := range []string{"a", "b"} {
		s.host(node, "10.0.0.1", "passing", "passing")
		s.join(node, "web")
	}
	s.must(s.rollouts.Trigger(t.Context(), rollout.Request{Version: "v1", Policy: canaryFirst}))
	inner := orchestrator.ForRollout(s.rollouts)
	killed := false
	d := &recorder{name: "rollout", decide: func(ctx context.Context, in orchestrator.Input) ([]orchestrator.Decision, error) {
		decisions, err := inner.Decide(ctx, in)
		if err != nil || killed || len(decisions) == 0 {
			return decisions, err
		}
		killed = true // before it could journal anything
		now, err := s.rollouts.Load(ctx)
		if err == nil && now.Document.Phase != rollout.Waiting {
			t.Errorf("the rollout is in phase %s before that is journalled", now.Document.Phase)
		}
		return nil, err
	}}
	o := quick(s.client)
	o.Interval, o.Deciders = 50*time.Millisecond, []orchestrator.Decider{d}
	s.start(o)
	s.wantEvents(0, "cluster_created", "cluster_changed", "leaders_changed", "desired_version_changed",
		"member_joined a", "member_joined b", "service_up web", "rollout_admitted")
	now, err := s.rollouts.Load(t.Context())
	s.must(nil, err)
	if now.Document.Phase != rollout.Canary || now.Group.Max != 1 {
		t.Errorf("after its event the rollout is %+v with %d slots", now.Document, now.Group.Max)
	}
}

// TestOvertaken: somebody who takes a slot while it is decided is no reason to
// put the decision off until the next cycle.
func TestOvertaken(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.host("a", "10.0.0.1", "passing", "passing")
	s.join("a", "web")
	s.must(s.rollouts.Trigger(t.Context(), rollout.Request{Version: "v1", Policy: canaryFirst}))
	all, _ := s.group()
	inner, asked := orchestrator.ForRollout(s.rollouts), 0
	d := &recorder{name: "rollout", decide: func(ctx context.Context, in orchestrator.Input) ([]orchestrator.Decision, error) {
		decisions, err := inner.Decide(ctx, in)
		if asked++; asked == 1 {
			s.must(all.Acquire(ctx, rollout.Slots, slots.Keep, slots.Holder{Node: "stranger", ID: rollout.ClaimID, Durable: true}))
		}
		return decisions, err
	}}
	o := quick(s.client)
	o.Interval, o.Deciders = time.Hour, []orchestrator.Decider{d}
	s.start(o)
	s.wantEvents(0, "cluster_created", "cluster_changed", "leaders_changed", "desired_version_changed",
		"member_joined a", "service_up web", "rollout_admitted")
	s.eventually("the report", func() error {
		if len(s.reports()) == 0 {
			return errNotYet
		}
		return nil
	})
	first := s.reports()[0]
	if first.Decided != 1 || first.Decisions[0].Dropped != "" {
		t.Errorf("the first cycle's report is %+v, want that it decided after all", first)
	}
}

// TestStalled: who waits for a slot that was made free by somebody who was
// killed before letting anybody go, goes.
func TestStalled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	all, doc := s.group()
	holder := func(node string) slots.Holder {
		return slots.Holder{Node: node, ID: rollout.ClaimID, Durable: true}
	}
	s.must(all.Acquire(t.Context(), rollout.Slots, 1, holder("a")))
	var waiting sync.WaitGroup
	defer waiting.Wait()
	waiting.Go(func() {
		if _, err := all.Acquire(t.Context(), rollout.Slots, slots.Keep, holder("b")); err != nil {
			t.Error(err)
		}
	})
	var e kv.Entry[slots.Group]
	s.eventually("b to wait", func() (err error) {
		if e, err = doc.Get(t.Context()); err == nil && len(e.Value.Queue) == 0 {
			err = errNotYet
		}
		return err
	})
	s.must(doc.CompareAndSwap(t.Context(), e, e.Value.Resize(2)))
	o := quick(s.client)
	o.Deciders = []orchestrator.Decider{orchestrator.ForRollout(s.rollouts)}
	s.start(o)
	s.eventually("b to go", func() error {
		now, err := doc.Get(t.Context())
		if err == nil && !now.Value.Holds("b/"+rollout.ClaimID) {
			err = errNotYet
		}
		return err
	})
}

// TestDeadHolder: a holder that the document still has, although it gave its slot
// back, does not keep a rollout from its end.
func TestDeadHolder(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.host("a", "10.0.0.1", "passing", "passing")
	s.join("a", "web")
	s.must(s.rollouts.Trigger(t.Context(), rollout.Request{Version: "v1", Policy: func(p *rollout.Policy) { p.MaxParallel = rollout.Amount{N: 1} }}))
	s.put("slots/"+rollout.Slots, `{"format":1,"max":1,"queue":[],"holders":{"a/`+rollout.ClaimID+`":{"since":"2026-01-01T00:00:00Z"}}}`)
	s.must(s.ledger.Report(t.Context(), "a", "v1"))
	o := quick(s.client)
	o.Interval, o.Deciders = 50*time.Millisecond, []orchestrator.Decider{orchestrator.ForRollout(s.rollouts)}
	s.start(o)
	s.eventually("the rollout to end", func() error {
		now, err := s.rollouts.Load(t.Context())
		if err == nil && now.Document.Phase != rollout.Done {
			err = fmt.Errorf("%+v", now.Document)
		}
		return err
	})
}
