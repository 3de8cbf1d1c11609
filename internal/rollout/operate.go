package rollout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jorc/jorc/internal/kv"
)

// Pause stops the rollout: nobody begins any more, and those who are under way
// go on. It tells whether that was news. It returns ErrNone also for a rollout
// that is over, or what Load and kv.Txn.Commit return.
func (r *Rollouts) Pause(ctx context.Context, s Stop) (Document, bool, error) {
	return r.operate(ctx, "pause", func(d Document, now time.Time) Document { return d.paused(s, now) })
}

// Resume lets the rollout go on; what failed until now is accepted. Its errors
// are those of Pause.
func (r *Rollouts) Resume(ctx context.Context) (Document, bool, error) {
	return r.operate(ctx, "resume", func(d Document, now time.Time) Document { return d.resumed(now) })
}

// Promote lets the rollout go on after its canary as soon as that is done. Its
// errors are those of Pause.
func (r *Rollouts) Promote(ctx context.Context) (Document, bool, error) {
	return r.operate(ctx, "promote", func(d Document, _ time.Time) Document { return d.promoted() })
}

// Abort ends the rollout: nobody begins any more, the desired version stays.
// Its errors are those of Pause, but aborting again is none.
func (r *Rollouts) Abort(ctx context.Context, s Stop) (Document, bool, error) {
	return r.operate(ctx, "abort", func(d Document, now time.Time) Document { return d.aborted(s, now) })
}

// operate replaces the document by what change makes of it.
func (r *Rollouts) operate(ctx context.Context, verb string, change func(Document, time.Time) Document) (Document, bool, error) {
	for {
		s, err := r.Load(ctx)
		if err == nil {
			err = s.usable(r)
		}
		if err != nil {
			return Document{}, false, err
		}
		d := s.Document
		if d.Over() && (d.Phase != Aborted || verb != "abort") {
			return d, false, fmt.Errorf("%w: that of %s is %s, there is nothing to %s", ErrNone, d.Version, d.Phase, verb)
		}
		next := change(d, r.now())
		if next.equal(d) {
			return d, false, nil
		}
		err = r.write(ctx, s, next)
		if !errors.Is(err, kv.ErrConflict) {
			return next, err == nil, err
		}
	}
}

// write replaces the document, and makes its version the desired one, if both
// are as they were read.
func (r *Rollouts) write(ctx context.Context, s State, next Document) error {
	t := r.store.Txn()
	if s.Desired == next.Version && !s.badDesired {
		t.CheckIndex(keyDesired, s.desired.Index)
	} else {
		r.desired.SwapIn(t, s.desired, next.Version)
	}
	r.doc.SwapIn(t, s.doc, next)
	_, err := t.Commit(ctx)
	return err
}
