package slots

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/kv"
)

// Patient claims come from outside: each makes its wait key, which nobody else
// writes, and changes the document only when nobody waits who would take it in.
// Whoever takes somebody out of a queue that has become short takes those outside
// in, as many as there are. Of a thousand hosts that come at one moment nearly
// all get by without a conflict, and the document stays small.
const (
	shortest = 4  // a queue of fewer takes those outside in
	takeIn   = 32 // at one time, or as many as there are slots
)

// errTakenIn: there is a queue, and those in it take the claim in.
var errTakenIn = errors.New("left to those who wait")

// comeIn makes the claim the queue, and does no more than that, even if there is
// room: the change is short, so that it is not overtaken again and again by those
// who go, and leaves all who come and go from then on to the queue. Only then it
// takes the others in that wait outside.
func (a *attempt) comeIn(ctx context.Context, now Group, c *changing) (Group, error) {
	if len(now.Queue) > 0 {
		return Group{}, errTakenIn
	}
	if err := c.look(ctx, []string{a.name}); err != nil {
		return Group{}, err
	}
	if c.tickets[a.name].index == 0 {
		return now, nil // somebody took it in, or away: who waits for it sees that
	}
	c.outside[a.name], c.first = true, true
	return now.Enter(a.name), nil
}

// stayOutside makes the claim's wait key, unless it has one, or a slot, by now.
// left is false when the claim has to look at the group all the same: nobody waits
// who would take it in.
func (a *attempt) stayOutside(ctx context.Context) (left bool, err error) {
	held, wait := a.group.held.At(a.name), a.group.wait.At(a.name)
	a.lined, a.outside = true, true
	var r *kv.Result
	err = persist(ctx, func() (err error) {
		t := a.group.store.Txn().CheckNotExists(held.Key()).CheckNotExists(wait.Key())
		wait.SetIn(t, Holding{Since: stamp(), Reason: a.reason})
		r, err = t.Get(a.group.queued()).Commit(ctx)
		return err
	})
	if errors.Is(err, kv.ErrConflict) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return r.Index(a.group.queued()) != 0, nil
}

// fill takes those who wait outside into a queue that is short, in any order:
// none of them was promised a place.
func fill(ctx context.Context, now Group, c *changing) (Group, error) {
	if len(now.Queue) >= shortest {
		return now, nil
	}
	// Names are read after the document: who is in it and has a key since then
	// makes the write conflict.
	names, err := c.group.wait.Names(ctx)
	if err != nil {
		return Group{}, err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return c.inside[name] || now.has(name) || c.gone[name] || strings.Count(name, "/") != 1
	})
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names[:min(len(names), max(takeIn, now.Max))] {
		now = now.Enter(name)
		c.outside[name] = true
	}
	return now, nil
}

// tookIn tells whether next has somebody as a holder who waited outside.
func (c *changing) tookIn(next Group) bool {
	for name := range c.outside {
		if next.Holds(name) {
			return true
		}
	}
	return false
}

// call tells who waited outside, and knows nothing of the queue, that it is the
// first of it now, or that it stands behind those who were in it before. Who is
// not there any more is taken out.
func (c *changing) call(ctx context.Context, now, next Group) (Group, error) {
	for {
		names := c.strangers(now, next)
		if err := c.look(ctx, names); err != nil {
			return Group{}, err
		}
		dead := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !c.gone[name] })
		if len(dead) > 0 {
			next = next.Leave(dead...)
			continue
		}
		for _, name := range names {
			if t := c.tickets[name]; t.index != 0 && t.Session == "" && !t.Called {
				c.called = append(c.called, name)
			}
		}
		return next, nil
	}
}

// strangers are those of next's queue who may have to be called.
func (c *changing) strangers(now, next Group) (names []string) {
	if len(next.Queue) > 0 && (len(now.Queue) == 0 || now.Queue[0] != next.Queue[0]) {
		names = append(names, next.Queue[0])
	}
	if i := slices.IndexFunc(next.Queue, func(name string) bool { return c.outside[name] }); i > 0 {
		names = append(names, next.Queue[i])
	}
	return names
}

// leaveOutside deletes the wait key of a claim that is not in the document.
func (g *group) leaveOutside(ctx context.Context, name string) error {
	_, err := g.store.Txn().Delete(g.wait.At(name).Key()).Commit(ctx)
	return err
}
