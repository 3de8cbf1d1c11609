package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/text"
)

// Check returns ErrInvalid, or a *cluster.FilterError, for a request that
// cannot be carried out.
func (q Request) Check() error {
	if q.Workflow == "" {
		return fmt.Errorf("run: %w: the name of the workflow is missing", ErrInvalid)
	}
	if q.OnManager && (q.Filter != "" || q.Role != "" || q.MaxParallel.N > 0) {
		return fmt.Errorf("run: %w: on a manager it is run once: no filter, role or limit applies", ErrInvalid)
	}
	_, err := cluster.ParseFilter(q.Filter)
	return err
}

// awaitsOrchestrator is why a run waits that no orchestrator has seen.
const awaitsOrchestrator = "waits for the orchestrator"

// Ask asks for a run. If the same run exists under this ID, it is returned
// unchanged, and created is false. by is the user.
// It returns ErrInvalid, ErrTaken (nothing was written), or what kv.Txn.Commit
// returns.
func (r *Runs) Ask(ctx context.Context, id string, q Request, by string) (run Run, created bool, err error) {
	if err := CheckID(id); err != nil {
		return Run{}, false, err
	}
	if err := q.Check(); err != nil {
		return Run{}, false, err
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	run = Run{ID: id, Request: q, By: by, Created: now, State: Pending, Why: awaitsOrchestrator}
	if q.NeedsApproval {
		run.State, run.Why = NeedsApproval, fmt.Sprintf("'jorc cluster approve %s' lets it begin", id)
	}
	run.History = noted(nil, Change{At: now, State: run.State, By: by})
	spec := r.spec(id)
	t := r.store.Txn()
	spec.SwapIn(t, kv.Entry[Run]{}, run)
	r.touch(t, id, now)
	_, err = t.Commit(ctx)
	if err == nil || !errors.Is(err, kv.ErrConflict) && !errors.Is(err, consul.ErrOutcomeUnknown) {
		return run, err == nil, err
	}
	e, readErr := spec.Get(ctx)
	switch {
	case readErr != nil || !e.Exists:
		return Run{}, false, err
	case !e.Value.Request.Same(q):
		return Run{}, false, fmt.Errorf("run %q: %w: nothing was written; see 'jorc cluster runs %s'", id, ErrTaken, id)
	}
	return e.Value, e.Value.Created.Equal(now) && e.Value.By == by, nil
}

// touch wakes the orchestrator for a run.
func (r *Runs) touch(t *kv.Txn, id string, now time.Time) {
	r.active.At(id).SetIn(t, now.Format(time.RFC3339Nano))
}

// Approve lets a run start that needs approval. If it was approved before, changed
// is false. It returns the run as it is now; ErrNoRun, or ErrState for a run that
// was cancelled.
func (r *Runs) Approve(ctx context.Context, id, by string) (run Run, changed bool, err error) {
	return r.change(ctx, id, func(run Run, now time.Time) (Run, bool, error) {
		switch {
		case run.State == Cancelled:
			return run, false, fmt.Errorf("run %q: %w: it was cancelled; ask for another", id, ErrState)
		case run.State != NeedsApproval:
			return run, false, nil
		}
		run.State, run.Why = Pending, awaitsOrchestrator
		run.History = noted(run.History, Change{At: now, State: Pending, By: by, Text: "approved"})
		return run, true, nil
	})
}

// Cancel ends a run: members that have not started do not, the others end after
// the task that is running, or with kill at once. It is not an error if the run
// has ended, or was cancelled already; changed is false then. It returns the run as it is now;
// ErrNoRun, and ErrState for a run of a rule, which would come back.
func (r *Runs) Cancel(ctx context.Context, id, by string, kill bool) (run Run, changed bool, err error) {
	return r.change(ctx, id, func(run Run, now time.Time) (Run, bool, error) {
		switch {
		case run.Rule != nil && !run.Rule.Gone:
			return run, false, fmt.Errorf("run %q: %w: rule %q asks for it: change the param %s", id, ErrState, run.Rule.Name, ParamRules)
		case run.State.Ended() || run.Cancel != "" && (run.Kill || !kill):
			return run, false, nil
		}
		run.Cancel, run.Kill = cmp.Or(by, "unknown user"), kill
		if run.State != Running {
			run.State, run.Why, run.Ended = Cancelled, "by "+run.Cancel, now
		}
		run.History = noted(run.History, Change{At: now, State: run.State, By: by, Text: "cancelled"})
		return run, true, nil
	})
}

// change changes a run's document and wakes the orchestrator.
func (r *Runs) change(ctx context.Context, id string, change func(Run, time.Time) (Run, bool, error)) (run Run, changed bool, err error) {
	if err := CheckID(id); err != nil {
		return Run{}, false, err
	}
	e, err := r.spec(id).Change(ctx, func(old kv.Entry[Run], t *kv.Txn) (Run, bool, error) {
		if !old.Exists {
			return Run{}, false, r.unknown(ctx, id)
		}
		now := time.Now().UTC().Truncate(time.Millisecond)
		next, write, err := change(old.Value, now)
		if changed = err == nil && write; changed {
			r.touch(t, id, now)
		}
		return next, write, err
	})
	return e.Value, changed && err == nil, err
}

func noRun(id string) error {
	return fmt.Errorf("run %q: %w: 'jorc cluster runs' lists them", id, ErrNoRun)
}

// unknown is ErrNoRun with the runs that exist, as far as they can be read.
func (r *Runs) unknown(ctx context.Context, id string) error {
	active, err := r.active.Names(ctx)
	ended, endedErr := r.ended.Names(ctx)
	if err != nil || endedErr != nil {
		return noRun(id)
	}
	return fmt.Errorf("run %q: %w%s", id, ErrNoRun, text.Unknown(id, "runs", append(active, ended...)))
}
