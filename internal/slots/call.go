package slots

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pause"
)

// errBusy: others were faster to change the group.
var errBusy = errors.New("others change the group")

// errHeard: the key of a claim that called is gone.
var errHeard = errors.New("it was heard")

// A claim that called waits for others to line it up before it tries to do that
// for all: a random time up to callFor, up to so many times what a try of its own
// has taken, and up to twice as long after each try in which others were faster.
// Of those who call at one time few should.
const (
	callFor     = 30 * time.Millisecond
	callTries   = 4
	longestCall = 4 * time.Second
)

// call lines up while many want to: the claim makes its key, which nobody else
// writes, and whoever changes the group next lines up all who did so. They are
// all rivals in that, and the first who succeeds has done it for the others, so
// that a hundred come in with few changes of the document (flat combining; D.
// Hendler, I. Incze, N. Shavit, M. Tzafrir, SPAA 2010). took is how long a try
// of its own took. It returns what lineUp returns.
func (a *attempt) call(ctx context.Context, took time.Duration) (now Group, index uint64, err error) {
	a.called = true
	if err = persist(ctx, func() error { return a.shout(ctx) }); err != nil {
		return Group{}, 0, err
	}
	calling, heard := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer heard(nil)
	own := newBell()
	watching.Go(func() { a.watchPlace(calling, own) })
	watching.Go(func() {
		select {
		case <-own:
			heard(errHeard)
		case <-calling.Done():
		}
	})
	now, err = a.gatherInTurn(calling, max(callFor, callTries*took))
	if errors.Is(context.Cause(calling), errHeard) { // it was let in, or taken out
		if index, err = a.granted(ctx); index != 0 || err != nil {
			return Group{}, index, err
		}
		if now, err = a.change(ctx, unaltered); err == nil && !now.has(a.name) {
			err = errTaken
		}
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return now, 0, err
}

// gatherInTurn lines the claim up with all others who called, unless somebody
// else does. It returns the group with the claim in it, or an error; also when
// the claim's key is gone, which ends ctx.
func (a *attempt) gatherInTurn(ctx context.Context, within time.Duration) (now Group, err error) {
	for {
		if err := pause.For(ctx, rand.N(within)); err != nil {
			return Group{}, err
		}
		now, err = a.change(ctx, a.gatherOnce())
		switch {
		case errors.Is(err, errBusy):
			within = min(2*within, longestCall)
		case err != nil || now.has(a.name):
			return now, err
		default: // its key is gone: somebody was faster
			<-ctx.Done()
			return Group{}, context.Cause(ctx)
		}
	}
}

// gatherOnce gathers, unless the claim is in the group; it
// returns errBusy when others are faster.
func (a *attempt) gatherOnce() alteration {
	tried := false
	return func(ctx context.Context, now Group, c *changing) (Group, error) {
		switch {
		case now.has(a.name):
			return now, nil
		case tried:
			return Group{}, errBusy
		}
		tried = true
		return c.gather(ctx, now, a.name)
	}
}

// shout makes the key of a claim that is not in the group. It may be repeated.
func (a *attempt) shout(ctx context.Context) error {
	wait, held := a.group.wait.At(a.name), a.group.held.At(a.name)
	t := a.group.store.Txn().CheckNotExists(wait.Key()).CheckNotExists(held.Key())
	create(t, wait, a.holding())
	_, err := t.Commit(ctx)
	if errors.Is(err, kv.ErrConflict) {
		return a.settle(ctx) // an earlier try, or a process before this one, was here
	}
	return err
}

// settle returns errPlace when the claim's keys are another's of the same name.
func (a *attempt) settle(ctx context.Context) error {
	for _, doc := range []kv.Doc[Holding]{a.group.wait.At(a.name), a.group.held.At(a.name)} {
		e, err := doc.Get(ctx)
		switch {
		case errors.Is(err, kv.ErrDamaged):
		case err != nil:
			return err
		case !e.Exists || e.Value.Session == a.sessionID():
			continue
		}
		return errPlace
	}
	return nil
}

// recall deletes the key of a claim that called.
func (a *attempt) recall(ctx context.Context) error {
	_, err := a.group.store.Txn().Delete(a.group.wait.At(a.name).Key()).Commit(ctx)
	return err
}
