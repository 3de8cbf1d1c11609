package slots

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/jorc/jorc/internal/kv"
)

// Acquire waits for a slot of the group and returns the claim to it, which
// must be given back with Release, also after it was lost and after ctx ended.
// limit is how many slots the group has from now on: 0 is any number, Keep
// leaves it; the last to ask says, and those who hold a slot keep theirs.
//
// While Consul cannot be reached Acquire goes on trying, and a waiter that
// lost its place meanwhile lines up again. It returns why ctx ended when that
// is first (the claim is then given up); ErrTaken, ErrName, kv.ErrNewer,
// consul.ErrDenied; or kv.ErrLockLost when the waiter was taken out of the
// queue by hand.
//
// A durable claim that was given up while Consul did not answer may turn up
// all the same; it is the caller's by its name, and Acquire takes it up.
func (s *Slots) Acquire(ctx context.Context, name string, limit int, h Holder) (*Claim, error) {
	g, err := s.group(name, limit)
	if err != nil {
		return nil, err
	}
	a := &attempt{slots: s, group: g, limit: limit, durable: h.Durable, patient: h.Patient && h.Durable && limit < 0, reason: h.Reason}
	if a.name, err = h.name(); err != nil {
		return nil, g.wrap(err)
	}
	for {
		index, err := a.once(ctx)
		switch {
		case err == nil:
			return newClaim(ctx, a, h, index), nil
		case errors.Is(err, errPlace) && ctx.Err() == nil:
			a.parted(ctx)
		default:
			a.giveUp(ctx, err)
			return nil, g.wrap(err)
		}
	}
}

// errPlace: the place in the queue is lost with its key; it is not that
// somebody wanted it so.
var errPlace = errors.New("the place in the queue was lost")

// errTaken: somebody wanted it so.
var errTaken = fmt.Errorf("%w: taken away: unlocked by hand, or its session was destroyed", kv.ErrLockLost)

// attempt is one claim on its way to a slot.
type attempt struct {
	slots   *Slots
	group   *group
	limit   int
	name    string // in the group
	reason  string
	durable bool
	patient bool

	session *kv.Session // nil: of a durable claim, or not opened yet
	past    []string    // sessions that this attempt had before
	lined   bool        // it may be in the group
	outside bool        // it waits outside of the queue, or did
	ticket  atomic.Pointer[ticket]
}

// once lines up and waits. It returns the index of the held key, or errPlace.
func (a *attempt) once(ctx context.Context) (index uint64, err error) {
	if !a.durable && a.session == nil {
		err := persist(ctx, func() (err error) { a.session, err = a.slots.sessions.take(ctx); return err })
		if err != nil {
			return 0, err
		}
	}
	ctx, cancel := a.whileInSession(ctx)
	defer cancel()
	now, err := a.lineUp(ctx)
	if err == nil {
		index, err = a.await(ctx, now)
	}
	if errors.Is(context.Cause(ctx), errPlace) {
		err = errPlace
	}
	return index, err
}

// lineUp returns the group with the claim in it; an empty one when it waits
// outside.
func (a *attempt) lineUp(ctx context.Context) (now Group, err error) {
	for {
		if a.patient && !a.outside {
			if left, err := a.stayOutside(ctx); left || err != nil {
				return Group{}, err
			}
		}
		now, err = a.change(ctx, a.enter)
		switch {
		case errors.Is(err, errTakenIn):
			return Group{}, nil
		case err != nil, now.has(a.name), a.outside:
			return now, err
		} // a dead claim of the same name was taken out
	}
}

// whileInSession returns a context that ends with the session; its cause is
// then errPlace.
func (a *attempt) whileInSession(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	if a.session == nil {
		return ctx, func() { end(nil) }
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-a.session.Ended():
			end(errPlace)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { end(nil); <-done }
}

// change alters the group, however long it takes Consul to answer. An answer that
// was lost may have been that this one emptied the queue: then it looks once more
// for those who relied on it.
func (a *attempt) change(ctx context.Context, alter alteration) (now Group, err error) {
	tries := 0
	err = persist(ctx, func() error {
		tries++
		now, err = a.group.change(ctx, alter)
		if err == nil && tries > 1 && len(now.Queue) == 0 {
			now, err = a.group.change(ctx, lookOnce)
		}
		return err
	})
	return now, err
}

// enter lines up, or finds the claim where an earlier attempt has left it.
func (a *attempt) enter(ctx context.Context, now Group, c *changing) (Group, error) {
	next := now
	if a.limit >= 0 {
		next = next.Resize(a.limit)
	}
	if now.has(a.name) {
		mine, err := a.found(ctx, now)
		if mine || err != nil {
			a.lined = a.lined || mine
			return next, err
		}
		next = next.Leave(a.name)
		if !a.patient {
			return next, nil // in this very change: it may be admitted meanwhile
		}
	}
	if a.patient {
		return a.comeIn(ctx, next, c)
	}
	if a.durable { // a process before this one may have left its key outside
		if err := c.look(ctx, []string{a.name}); err != nil {
			return Group{}, err
		}
	}
	a.lined = true
	if c.tickets[a.name].index != 0 {
		c.outside[a.name] = true
	} else {
		c.tickets[a.name] = ticket{Holding: Holding{Since: stamp(), Reason: a.reason, Session: a.sessionID()}}
		delete(c.gone, a.name)
	}
	next = next.Enter(a.name)
	if next.Place(a.name) == 0 && next.room() == 0 {
		return bury(ctx, next, c) // nobody else is there to do it
	}
	return next, nil
}

func (a *attempt) sessionID() string {
	if a.session == nil {
		return ""
	}
	return a.session.ID()
}

// found tells whether the claim of this name is this attempt's. It is not when
// its key or session is gone; with another session that lives it is ErrTaken.
func (a *attempt) found(ctx context.Context, now Group) (mine bool, err error) {
	keys := a.group.wait
	if now.Holds(a.name) {
		keys = a.group.held
	}
	e, err := keys.At(a.name).Get(ctx)
	switch {
	case errors.Is(err, kv.ErrDamaged), err == nil && !e.Exists:
		return false, nil
	case err != nil:
		return false, err
	case e.Value.Session == a.sessionID():
		return true, nil
	case slices.Contains(a.past, e.Value.Session):
		return false, nil
	}
	return false, fmt.Errorf("%s: %w", a.name, ErrTaken)
}

// granted reads the held key; index is 0 when it is not this attempt's.
func (a *attempt) granted(ctx context.Context) (index uint64, err error) {
	err = persist(ctx, func() error {
		e, err := a.group.held.At(a.name).Get(ctx)
		if index = e.Index; !e.Exists || e.Value.Session != a.sessionID() {
			index = 0
		}
		return err
	})
	return index, err
}

// check is granted for a claim that the document says holds a slot.
func (a *attempt) check(ctx context.Context) (index uint64, err error) {
	if index, err = a.granted(ctx); index != 0 || err != nil {
		return index, err
	}
	now, err := a.change(ctx, unaltered)
	switch {
	case err != nil:
		return 0, err
	case now.Holds(a.name):
		return 0, errPlace
	}
	return 0, errTaken
}

// parted ends a session that the claim was lost with, and takes what is left
// of the claim out of the group at the next try.
func (a *attempt) parted(ctx context.Context) {
	if a.session == nil {
		return
	}
	a.past = append(a.past, a.session.ID())
	end(ctx, a.session)
	a.session = nil
}
