// Package stage brings new content of files to hosts one after the other. A host
// whose staged files would change says so in its report and waits for a grant of package change.
// The orchestrator decides who gets one (Plan); the host accepts it and replaces its files, and the
// grant ends when its checks have passed (Hosts). If they do not, its old files return or the new
// ones stay for inspection, and the change is stopped: no other host takes it.
//
// docs/stages.md is the guide, and docs/adr/0015 says why.
package stage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/fleet"
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

func (s *Stages) book(stage string) kv.Doc[Book] {
	return kv.NewDoc[Book](s.store, cluster.StageStateKey(stage), format)
}

func (s *Stages) stops(stage string) kv.Doc[Stops] {
	return kv.NewDoc[Stops](s.store, cluster.StageStopsKey(stage), format)
}

// Documents are the documents of one stage, read at one moment.
type Documents struct {
	Stage string
	Book  Book
	Stops Stops

	book  kv.Entry[Book]
	stops kv.Entry[Stops]
}

// Spec is the index of the stops, on which each offer depends.
func (d Documents) Spec() uint64 { return d.stops.Index }

// Load reads the documents of a stage, as no server that lost its leadership can
// answer. It returns kv.ErrDamaged or kv.ErrNewer, or a class of package consul.
func (s *Stages) Load(ctx context.Context, stage string) (d Documents, err error) {
	book, stops := s.book(stage), s.stops(stage)
	r, err := s.store.Consistent().Txn().Get(book.Key()).Get(stops.Key()).Commit(ctx)
	if err != nil {
		return d, err
	}
	if d.book, err = book.From(r); err != nil {
		return d, err
	}
	if d.stops, err = stops.From(r); err != nil {
		return d, err
	}
	d.Stage, d.Book, d.Stops = stage, d.book.Value, d.stops.Value
	return d, nil
}

// Parse decodes the documents of a stage. It returns kv.ErrDamaged or kv.ErrNewer.
func (s *Stages) Parse(stage string, stored cluster.StageDocuments) (d Documents, err error) {
	if d.book, err = s.book(stage).Parse(stored.State); err != nil {
		return d, err
	}
	if d.stops, err = s.stops(stage).Parse(stored.Stops); err != nil {
		return d, err
	}
	d.Stage, d.Book, d.Stops = stage, d.book.Value, d.stops.Value
	return d, nil
}

// Write returns what carries out a plan that was made of d, but for its grants, which depend on it; it commits only if
// nothing of d has changed. It is nil when there is nothing to write.
func (s *Stages) Write(d Documents, p Planned) func(*kv.Txn) {
	book := !text.SameJSON(p.Book, d.Book)
	// Consul lets a host check only a key that exists, unless it may write it.
	stops := !d.stops.Exists || !text.SameJSON(p.Stops, d.Stops)
	if !book && !stops && len(p.Grants) == 0 {
		return nil
	}
	return func(t *kv.Txn) {
		if book {
			s.book(d.Stage).SwapIn(t, d.book, p.Book)
		} else if d.book.Exists {
			t.CheckIndex(cluster.StageStateKey(d.Stage), d.book.Index)
		}
		if stops {
			s.stops(d.Stage).SwapIn(t, d.stops, p.Stops)
		} else {
			t.CheckIndex(cluster.StageStopsKey(d.Stage), d.stops.Index)
		}
	}
}

// Granted is what of a plan made of d is granted now: nothing before there are stops on which an offer depends.
func (d Documents) Granted(p Planned) []change.Next {
	if !d.stops.Exists {
		return nil
	}
	return p.Grants
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

// GiveUp gives up on the grants that a host has: it no longer counts as out of service for them, and its place is free. by
// is who does, and reason why. It returns the stages; without one change.ErrNoGrant, or what kv.Doc.Update
// returns.
func GiveUp(ctx context.Context, c *fleet.Cluster, node, by, reason string) (stages []string, err error) {
	report, _, err := c.Report(ctx, node)
	if err != nil {
		return nil, err
	}
	for _, a := range report.Grants {
		stage, files := cluster.StageOf(a.Change)
		if !files || !a.Open() {
			continue
		}
		if _, err := change.GiveUp(ctx, c.Store(), node, a, by, reason, time.Now()); err != nil {
			return stages, err
		}
		stages = append(stages, stage)
	}
	if len(stages) == 0 {
		return nil, fmt.Errorf("host %q: %w of a stage", node, change.ErrNoGrant)
	}
	return stages, nil
}

// Approve consents to the step after the present one. It returns ErrNotWaiting if
// nothing is left to approve, or the step is stopped, or what kv.Txn.Commit returns.
func (s *Stages) Approve(ctx context.Context, stage string, by cluster.Hold) (step Step, err error) {
	doc := s.book(stage)
	err = kv.RetryConflicts(ctx, func() error {
		d, err := s.Load(ctx, stage)
		if err != nil {
			return err
		}
		next := d.Book
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
		doc.SwapIn(t, d.book, next)
		_, err = t.Commit(ctx)
		return err
	})
	return step, err
}
