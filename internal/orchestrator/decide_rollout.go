package orchestrator

import (
	"context"
	"fmt"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/rollout"
)

// deciderRollout is the name under which reports show what was decided of the rollout.
const deciderRollout = "rollout"

// rolloutDecision is what is to be written of the rollout, with the decisions that it carries out.
type rolloutDecision struct {
	do        func(*kv.Txn)
	decisions []event.Decision
}

// write carries a decision out, unless it could not be made.
func (g *granter) write(ctx context.Context, r *round, d *rolloutDecision, err error) error {
	g.history = nil // it changes with it, or what was decided was made of an old one
	if err != nil {
		return err
	}
	return r.grant(ctx, deciderRollout, d.decisions, nil, d.do, func(*kv.Txn) {})
}

// withHistory is s with what the orchestrators know of the rollouts before.
func (g *granter) withHistory(ctx context.Context, s rollout.Stored) (rollout.Stored, error) {
	if g.history == nil {
		read, err := g.places.rollouts.Load(ctx)
		if err != nil {
			return s, err
		}
		g.history = &read
	}
	return s.Knowing(*g.history), nil
}

// begun returns what is to be written before the rollout can be planned: a version that was written past
// it, a policy that the budget gives it, the record of one that a command ended. nil: nothing is.
func (g *granter) begun(ctx context.Context, s rollout.Stored, state rollout.State, now time.Time) (*rolloutDecision, error) {
	rollouts := g.places.rollouts
	if next, ok := s.Adopted(now); ok {
		return &rolloutDecision{rollouts.Replace(s, next), []event.Decision{{
			Kind: event.ChangeBegan, Change: cluster.ChangeID(cluster.KindVersion, next.Version), AuthorUnknown: true, Before: s.Document.Version, After: next.Version,
			Text: fmt.Sprintf("version %s was written past the rollout: %s", next.Version, adoptedText(s, next)),
		}}}, nil
	}
	if next, ok := s.Budgeted(now); ok {
		return &rolloutDecision{rollouts.Replace(s, next), []event.Decision{{
			Kind: event.ChangePaced, Change: cluster.ChangeID(cluster.KindVersion, next.Version), After: next.Version,
			Text: fmt.Sprintf("the rollout of %s had no policy: %s it from now on", next.Version, pacedBy(s)),
		}}}, nil
	}
	if s.Unrecorded() {
		return g.ended(ctx, s, state)
	}
	return nil, nil //nolint:nilnil // nil: nothing is to be written
}

// next returns what a plan makes of the rollout; nil: it stays as it is, and the history knows it so.
func (g *granter) next(ctx context.Context, s rollout.Stored, state rollout.State, plan rollout.Planned, now time.Time) (*rolloutDecision, error) {
	rollouts := g.places.rollouts
	if rollouts.Replace(s, plan.Document) == nil {
		if do := rollouts.Know(s); do != nil {
			return &rolloutDecision{do: do}, nil
		}
		return nil, nil //nolint:nilnil // nil: nothing is to be written
	}
	names, err := rollouts.RecordNames(ctx)
	if err != nil {
		return nil, err
	}
	decided := rolloutDecision{do: rollouts.ReplaceRecorded(s, plan.Document, state, names, now)}
	for _, p := range plan.Decisions {
		d := p.Decision
		d.Change, d.After = cluster.ChangeID(cluster.KindVersion, s.Document.Version), plan.Document.Version
		decided.decisions = append(decided.decisions, d)
	}
	return &decided, nil
}

func adoptedText(s rollout.Stored, d rollout.Document) string {
	if d.Paced() {
		return pacedBy(s) + " it"
	}
	return "all hosts begin at once"
}

// pacedBy says what paces a rollout without a policy of its own.
func pacedBy(s rollout.Stored) string {
	if s.Control.Budget == nil {
		return "the orchestrator, because of a freeze, paces"
	}
	return "the budget of the cluster paces"
}

// ended records a rollout that a command ended.
func (g *granter) ended(ctx context.Context, s rollout.Stored, state rollout.State) (*rolloutDecision, error) {
	names, err := g.places.rollouts.RecordNames(ctx)
	if err != nil {
		return nil, err
	}
	f := s.Ended(state)
	ended := rolloutDecision{do: g.places.rollouts.Record(s, f, names)}
	one := event.Decision{Kind: event.ChangeEnded, Change: cluster.ChangeID(cluster.KindVersion, f.Version), Reason: f.Why, Before: f.Version}
	switch f.Outcome {
	case rollout.OutcomeDone: // its event was journalled when it was decided
		return &ended, nil
	case rollout.OutcomeAborted:
		one.Text = "the rollout of " + f.Version + " is aborted"
	default:
		one.Text = "the rollout of " + f.Version + " ended before all members ran it"
	}
	ended.decisions = []event.Decision{one}
	return &ended, nil
}

// downSince fills in since when members are down, as far as that is known: of
// one whose host is up, but whose agent is not, since it got its grant. One that the last
// cycle saw up is down since now: the next cycle says when that was.
func downSince(members []rollout.Member, v View) {
	for i := range members {
		m := &members[i]
		if m.Up() {
			continue
		}
		m.DownSince = m.Answer.Since
		switch n := v.Nodes[m.Node]; {
		case n.Life == cluster.LivenessDown:
			m.DownSince = n.LifeSince
		case m.Condition.Liveness == cluster.LivenessDown:
			m.DownSince = time.Now()
		}
	}
}

// awaySince fills in since when members are absent from the catalog.
func awaySince(members []rollout.Member, v View) {
	for i := range members {
		if n := v.Nodes[members[i].Node]; n.Life == cluster.LivenessAbsent {
			members[i].Away = n.LifeSince
		}
	}
}
