package orchestrator_test

import (
	"context"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/rollout"
)

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
	if now.Document.Phase != rollout.Canary {
		t.Errorf("after its event the rollout is %+v", now.Document)
	}
}

// TestOvertaken: an operator who changes the rollout while it is decided does not
// put the decision off until the next cycle.
func TestOvertaken(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.host("a", "10.0.0.1", "passing", "passing")
	s.join("a", "web")
	s.must(s.rollouts.Trigger(t.Context(), rollout.Request{Version: "v1", Policy: canaryFirst}))
	inner, asked := orchestrator.ForRollout(s.rollouts), 0
	d := &recorder{name: "rollout", decide: func(ctx context.Context, in orchestrator.Input) ([]orchestrator.Decision, error) {
		decisions, err := inner.Decide(ctx, in)
		if asked++; asked == 1 {
			_, _, err := s.rollouts.Promote(ctx, "ann")
			s.must(nil, err)
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
			return errEventsPending
		}
		return nil
	})
	first := s.reports()[0]
	if first.Decided != 1 || first.Decisions[0].Dropped != "" {
		t.Errorf("the first cycle's report is %+v, want that it decided after all", first)
	}
}
