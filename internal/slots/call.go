package slots

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/kv"
)

// errBusy: others were faster to change the group.
var errBusy = errors.New("others change the group")

// A claim that called waits for others to line it up, for a random time up to
// callFor, and up to so many times what a try of its own has taken, before it
// tries to do that for all: of those who call at one time few should.
const (
	callFor   = 30 * time.Millisecond
	callTries = 4
)

// call lines up while many want to: the claim makes its key, which nobody else
// writes, and whoever changes the group next lines up all who did so. They are
// all rivals in that, and the first who succeeds has done it for the others, so
// that a hundred come in with few changes of the document (flat combining; D.
// Hendler, I. Incze, N. Shavit, M. Tzafrir, SPAA 2010). took is how long a try
// of its own took. It returns what lineUp returns.
func (a *attempt) call(ctx context.Context, took time.Duration) (now Group, index uint64, err error) {
	a.called = true
	err = persist(ctx, func() error { return a.shout(ctx) })
	if err != nil {
		return Group{}, 0, err
	}
	own := newBell()
	var watching sync.WaitGroup
	defer watching.Wait()
	calling, heard := context.WithCancelCause(ctx)
	defer heard(nil)
	watching.Go(func() { a.watchPlace(calling, own) })
	watching.Go(func() {
		select {
		case <-own:
			heard(errBusy)
		case <-calling.Done():
		}
	})
	timer := time.NewTimer(rand.N(max(callFor, callTries*took)))
	defer timer.Stop()
	select {
	case <-timer.C:
		now, err = a.change(calling, a.gather)
		if err == nil && !now.Holds(a.name) && now.Place(a.name) < 0 {
			<-calling.Done() // somebody else was faster, and the key is gone
		}
	case <-calling.Done():
	}
	if errors.Is(context.Cause(calling), errBusy) {
		// The key is gone: the claim was let in, or taken out.
		if index, err = a.granted(ctx); index != 0 || err != nil {
			return Group{}, index, err
		}
		now, err = a.change(ctx, unaltered)
	}
	switch {
	case ctx.Err() != nil:
		return Group{}, 0, context.Cause(ctx)
	case err != nil:
		return Group{}, 0, err
	case !now.Holds(a.name) && now.Place(a.name) < 0:
		return Group{}, 0, errTaken
	}
	return now, 0, nil
}

// gather lines the claim up, with all others who called, unless somebody did.
func (a *attempt) gather(ctx context.Context, now Group, c *changing) (Group, error) {
	if now.Holds(a.name) || now.Place(a.name) >= 0 {
		return now, nil
	}
	return c.gather(ctx, now, a.name)
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
