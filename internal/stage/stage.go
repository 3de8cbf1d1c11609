// Package stage brings new content of files to hosts one after the other. A host
// whose staged files would change says so in its report and waits for a turn. The
// orchestrator gives turns (Plan, Apply); the host takes its turn in one fenced
// transaction, replaces its files and ends the turn when its checks have passed
// (Hosts). If they do not, its old files return or the new ones stay for
// inspection, and the change is stopped: no other host takes it.
//
// docs/stages.md is the guide, and docs/adr/0015 says why.
package stage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/text"
)

// ErrNone: the cluster has no such stage.
var ErrNone = errors.New("no such stage")

// ErrNotStopped: nothing stops the stage.
var ErrNotStopped = errors.New("not stopped")

// ErrNotWaiting: no step of the stage waits for approval.
var ErrNotWaiting = errors.New("no step waits for approval")

const format = 1 // of all documents

// Stages are the stages of one cluster in Consul's KV. It is safe for concurrent use.
type Stages struct {
	store *kv.Store
}

// New returns the stages in the store of a cluster.
func New(s *kv.Store) *Stages { return &Stages{s} }

func (s *Stages) turns(stage string) kv.Doc[Turns] {
	return kv.NewDoc[Turns](s.store, cluster.StageTurnsKey(stage), format)
}

func (s *Stages) stops(stage string) kv.Doc[Stops] {
	return kv.NewDoc[Stops](s.store, cluster.StageStopsKey(stage), format)
}

func (s *Stages) turn(node, stage string) kv.Doc[Turn] {
	return kv.NewDoc[Turn](s.store, cluster.TurnKey(node, stage), format)
}

// Documents are the documents of one stage, read at one moment.
type Documents struct {
	Stage string
	Turns Turns
	Stops Stops

	turns kv.Entry[Turns]
	stops kv.Entry[Stops]
}

// Load reads the documents of a stage, as no server that lost its leadership can
// answer. It returns kv.ErrDamaged or kv.ErrNewer, or a class of package consul.
func (s *Stages) Load(ctx context.Context, stage string) (d Documents, err error) {
	turns, stops := s.turns(stage), s.stops(stage)
	r, err := s.store.Consistent().Txn().Get(turns.Key()).Get(stops.Key()).Commit(ctx)
	if err != nil {
		return d, err
	}
	if d.turns, err = turns.From(r); err != nil {
		return d, err
	}
	if d.stops, err = stops.From(r); err != nil {
		return d, err
	}
	d.Stage, d.Turns, d.Stops = stage, d.turns.Value, d.stops.Value
	return d, nil
}

// Parse decodes the documents of a stage. It returns kv.ErrDamaged or kv.ErrNewer.
func (s *Stages) Parse(stage string, stored cluster.StageDocuments) (d Documents, err error) {
	if d.turns, err = s.turns(stage).Parse(stored.Turns); err != nil {
		return d, err
	}
	if d.stops, err = s.stops(stage).Parse(stored.Stops); err != nil {
		return d, err
	}
	d.Stage, d.Turns, d.Stops = stage, d.turns.Value, d.stops.Value
	return d, nil
}

// Write returns what carries out a plan that was made of d; it commits only if
// nothing of d has changed. control is the index of the cluster's control. It is
// nil when there is nothing to write.
func (s *Stages) Write(d Documents, p Planned, control uint64) func(*kv.Txn) {
	turns, stops := !text.SameJSON(p.Turns, d.Turns), !text.SameJSON(p.Stops, d.Stops)
	// Consul lets a host check only a key that exists, unless it may write it.
	stops = stops || len(p.Offers) > 0 && !d.stops.Exists
	if !turns && !stops {
		return nil
	}
	return func(t *kv.Txn) {
		s.turns(d.Stage).SwapIn(t, d.turns, p.Turns)
		if stops {
			s.stops(d.Stage).SwapIn(t, d.stops, p.Stops)
		} else {
			t.CheckIndex(cluster.StageStopsKey(d.Stage), d.stops.Index)
		}
		if len(p.Offers) > 0 {
			t.CheckIndex(cluster.KeyControl, control)
		}
		for _, node := range slices.Concat(p.Withdrawals, p.Offers) {
			s.turn(node, d.Stage).SetIn(t, p.Turns.Open[node])
		}
	}
}

// Resume approves what is stopped: hosts take it again. With a node only what
// failed there. It returns ErrNotStopped, or what kv.Doc.CompareAndSwap returns.
func (s *Stages) Resume(ctx context.Context, stage, node string, by cluster.Hold) (resumed []Stop, err error) {
	doc := s.stops(stage)
	err = kv.RetryConflicts(ctx, func() error {
		old, err := doc.Get(ctx)
		if err != nil {
			return err
		}
		next := old.Value
		next.Stops = slices.Clone(next.Stops)
		resumed = nil
		for i := range next.Stops {
			if stop := &next.Stops[i]; stop.Resumed == nil && (node == "" || stop.Node == node) {
				stop.Resumed = &by
				resumed = append(resumed, *stop)
			}
		}
		if len(resumed) == 0 {
			return fmt.Errorf("stage %q: %w", stage, ErrNotStopped)
		}
		_, err = doc.CompareAndSwap(ctx, old, next)
		return err
	})
	return resumed, err
}

// Approve consents to the step after the present one. It returns ErrNotWaiting if
// nothing is left to approve, or the step is stopped, or what kv.Txn.Commit returns.
func (s *Stages) Approve(ctx context.Context, stage string, by cluster.Hold) (step Step, err error) {
	doc := s.turns(stage)
	err = kv.RetryConflicts(ctx, func() error {
		d, err := s.Load(ctx, stage)
		if err != nil {
			return err
		}
		next := d.Turns
		if next.Step == nil || next.Step.Approved != nil {
			return fmt.Errorf("stage %q: %w", stage, ErrNotWaiting)
		}
		if i := slices.IndexFunc(d.Stops.Stops, next.Step.stoppedBy); i >= 0 {
			return fmt.Errorf("stage %q: %w: %s is stopped, the change failed %s; nothing was approved: set another value, or run 'jorc stage resume %s'",
				stage, ErrNotWaiting, next.Step, d.Stops.Stops[i].Place(), stage)
		}
		next.Step = next.Step.clone()
		next.Step.Approved = &by
		step = *next.Step
		t := s.store.Txn().CheckIndex(cluster.StageStopsKey(stage), d.stops.Index)
		doc.SwapIn(t, d.turns, next)
		_, err = t.Commit(ctx)
		return err
	})
	return step, err
}

// permit is what decides whether a host may take its turn, read at one moment.
type permit struct {
	node, stage string
	turn        kv.Entry[Turn]
	stops       kv.Entry[Stops]
	control     kv.Entry[cluster.Control]
	report      cluster.Report
	roles       []string // of the node
}

// permit reads what is said to the node of a report. A damaged turn or report counts as absent.
func (s *Stages) permit(ctx context.Context, w *cluster.ReportWriter, stage string) (p permit, err error) {
	node, report := w.Node(), w.Document()
	turn, stops := s.turn(node, stage), s.stops(stage)
	control := kv.NewDoc[cluster.Control](s.store, cluster.KeyControl, 1)
	r, err := s.store.Consistent().Txn().Get(turn.Key()).Get(stops.Key()).Get(control.Key()).Get(report.Key()).Commit(ctx)
	if err != nil {
		return p, err
	}
	p.node, p.stage = node, stage
	if p.turn, err = turn.From(r); err != nil && !errors.Is(err, kv.ErrDamaged) {
		return p, err
	}
	if p.stops, err = stops.From(r); err != nil {
		return p, err
	}
	if p.control, err = control.From(r); err != nil {
		return p, err
	}
	e, err := report.From(r)
	if err != nil && !errors.Is(err, kv.ErrDamaged) {
		return p, err
	}
	p.report = e.Value
	return p, nil
}

// refuses returns why the host cannot take its turn for content now; empty: it can.
func (p permit) refuses(content string, changed cluster.StageInputs) string {
	now := time.Now()
	turn, c := p.turn.Value, p.control.Value.At(now)
	frozen, isFrozen := c.Frozen(p.roles, now)
	stop, stopped := p.stops.Value.Blocking(p.node, content, changed)
	switch {
	case stopped:
		return fmt.Sprintf("the change is stopped: it failed %s; 'jorc stage show %s'", stop.Place(), p.stage)
	case c.Paused != nil:
		return "the cluster is paused " + c.Paused.String()
	case c.ObserveOnly != nil:
		return "the cluster is only observed " + c.ObserveOnly.String()
	case isFrozen && !turn.DuringFreeze:
		return frozen.String()
	case !turn.Until.IsZero() && !now.Before(turn.Until):
		return "a freeze began, or the window closed, at " + turn.Until.UTC().Format(time.RFC3339)
	case !p.turn.Exists, turn.Session == "", turn.Withdrawn, turn.Content != content, turn.ID == "", turn.ID == p.report.Stages[p.stage].Turn:
		return "waits for its turn"
	}
	return ""
}

// fence adds to t what the turn depends on.
func (p permit) fence(t *kv.Txn) {
	t.CheckSession(cluster.OrchestratorLock, p.turn.Value.Session).CheckIndex(cluster.TurnKey(p.node, p.stage), p.turn.Index)
	t.CheckIndex(cluster.StageStopsKey(p.stage), p.stops.Index).CheckIndex(cluster.KeyControl, p.control.Index)
}
