package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
)

// known is the rollout that the orchestrator knows as the present one.
func (s *site) known() rollout.Known {
	s.t.Helper()
	e, err := kv.NewDoc[rollout.Known](s.store, "history/current", 1).Get(s.t.Context())
	s.must(nil, err)
	return e.Value
}

// wantKnown waits until the orchestrator knows the rollout of a version, recorded or
// not.
func (s *site) wantKnown(version string, recorded bool) {
	s.t.Helper()
	s.eventually("the rollout of "+version+" to be known", func() error {
		if k := s.known(); k.Document.Version != version || k.Recorded != recorded {
			return fmt.Errorf("it is that of %s, recorded %v", k.Document.Version, k.Recorded)
		}
		return nil
	})
}

// history are the records by version, those of rollbacks left out.
func (s *site) history() map[string]rollout.Finished {
	s.t.Helper()
	all, bad, err := s.rollouts.History(s.t.Context())
	s.must(nil, errors.Join(append(bad, err)...))
	byVersion := map[string]rollout.Finished{}
	for _, f := range all {
		if f.RollbackOf != nil {
			continue
		}
		if _, twice := byVersion[f.Version]; twice {
			s.t.Errorf("two records of %s", f.Version)
		}
		byVersion[f.Version] = f
	}
	return byVersion
}

// TestHistory: each way in which a rollout can end leaves one record.
func TestHistory(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.host("a", "10.0.0.1", "passing", "passing")
	s.join("a", "web")
	o := quick(s.client)
	o.Grants = true
	s.start(o)
	trigger := func(version string, policy func(*pace.Policy)) {
		t.Helper()
		s.must(s.rollouts.Trigger(t.Context(), rollout.Request{Version: version, Policy: policy, By: "ann", Reason: "because of " + version}))
		s.wantKnown(version, false)
	}
	trigger("v1", nil)
	s.must(s.cluster.ReportVersion(t.Context(), "a", "v1"))
	s.wantKnown("v1", true)
	trigger("v2", canaryFirst)
	_, _, err := s.rollouts.Abort(t.Context(), rollout.Stop{By: "bob", Reason: "wrong"})
	s.must(nil, err)
	s.wantKnown("v2", true)
	trigger("v3", canaryFirst)
	trigger("v4", func(p *pace.Policy) { p.OnFailure = pace.OnFailureRollback })
	s.must(s.cluster.SetState(t.Context(), "a", "config", cluster.CategoryState{State: cluster.StateFailed, Version: "v4", Detail: "no disk"}))
	s.eventually("the record of v4", func() error {
		if all := s.history(); len(all) < 4 {
			now, err := s.rollouts.Load(t.Context())
			return errors.Join(err, fmt.Errorf("there are %d; the rollout is %+v", len(all), now.Document))
		}
		return nil
	})
	all := s.history()
	for version, want := range map[string]rollout.Finished{
		"v1": {Outcome: rollout.OutcomeDone, Counts: pace.Counts{Members: 1, Done: 1}},
		"v2": {Outcome: rollout.OutcomeAborted, Why: "by bob: wrong", Counts: pace.Counts{Members: 1, Waiting: 1}},
		"v3": {Outcome: rollout.OutcomeSuperseded, Why: "superseded by v4, triggered by ann at ", Counts: pace.Counts{Members: 1, Waiting: 1}},
		"v4": {Outcome: rollout.OutcomeRolledBack, Counts: pace.Counts{Members: 1, Failed: 1}},
	} {
		got := all[version]
		if got.Outcome != want.Outcome || got.Counts != want.Counts || !strings.HasPrefix(got.Why, want.Why) ||
			got.By != "ann" || got.Reason != "because of "+version || len(got.Hosts) != 1 || got.Hosts[0].Node != "a" || got.Finished.Before(got.Started) {
			t.Errorf("%s: %+v", version, got)
		}
	}
}

// TestHistoryKept: 100 records are kept.
func TestHistoryKept(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i := range 120 {
		s.put(fmt.Sprintf("history/rollouts/20200101T000%03dZ-old", i), `{"format":1,"id":"x","version":"old"}`)
	}
	s.host("a", "10.0.0.1", "passing", "passing")
	s.join("a", "web")
	s.must(s.rollouts.Trigger(t.Context(), rollout.Request{Version: "v1"}))
	s.must(s.cluster.ReportVersion(t.Context(), "a", "v1"))
	o := quick(s.client)
	o.Grants = true
	s.start(o)
	s.wantKnown("v1", true)
	names, err := s.rollouts.RecordNames(t.Context())
	s.must(nil, err)
	if len(names) != 100 || names[0] != "20200101T000021Z-old" {
		t.Errorf("%d records are kept, the first is %s", len(names), names[0])
	}
}

// TestHistoryExactlyOnce kills orchestrators while rollouts begin and end, and puts
// others in their place: each rollout has one record and one event of its end, and each
// change of an author one event.
func TestHistoryExactlyOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.host("a", "10.0.0.1", "passing", "passing")
	s.join("a", "web")
	p, other := s.granting(), s.granting()
	ctx := fleet.WithAuthor(t.Context(), fleet.Author{Command: "test", By: func(context.Context) (string, error) { return "ann", nil }})
	const rounds = 12
	for i := range rounds {
		s.must(s.rollouts.Trigger(ctx, rollout.Request{Version: fmt.Sprintf("v%d", i), Policy: canaryFirst}))
		s.wantKnown(fmt.Sprintf("v%d", i), false)
		if i%2 == 0 {
			_, _, err := s.rollouts.Abort(ctx, rollout.Stop{By: "ann"})
			s.must(nil, err)
		}
		if p.name() != s.holder() {
			p, other = other, p
		}
		p.kill() // the one that works, at any point of the record of the rollout's end
		p = s.granting()
		if i%2 == 0 {
			s.wantKnown(fmt.Sprintf("v%d", i), true)
		}
	}
	s.eventually("all records", func() error {
		if n := len(s.history()); n < rounds-1 {
			return fmt.Errorf("%d of %d", n, rounds-1)
		}
		return nil
	})
	s.eventually("the last changes", func() error {
		for _, e := range s.events() {
			if e.Audit != nil && e.Audit.Number == rounds+rounds/2 {
				return nil
			}
		}
		return errEventsPending
	})
	ends, changes := map[string]int{}, map[uint64]int{}
	for _, e := range s.events() {
		switch {
		case e.Kind == "change_ended":
			ends[e.Before]++
		case e.Kind == event.OperatorChange:
			changes[e.Audit.Number]++
		}
	}
	all := s.history()
	for i := range rounds - 1 {
		version, want := fmt.Sprintf("v%d", i), rollout.OutcomeSuperseded
		if i%2 == 0 {
			want = rollout.OutcomeAborted
		}
		if ends[version] != 1 || all[version].Outcome != want {
			t.Errorf("%s: %d events of its end, record %+v", version, ends[version], all[version])
		}
	}
	for n := range uint64(rounds + rounds/2) {
		if changes[n+1] != 1 {
			t.Errorf("change %d is journalled %d times", n+1, changes[n+1])
		}
	}
	audit, err := orchestrator.ReadAudit(t.Context(), s.store, s.cluster)
	s.must(nil, errors.Join(err, audit.Problems))
	if len(audit.Events) != rounds+rounds/2 {
		t.Errorf("%d audit events, want %d", len(audit.Events), rounds+rounds/2)
	}
}
