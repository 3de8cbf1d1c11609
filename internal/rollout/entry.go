package rollout

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/slots"
)

// entry is one wait of a node to be let in.
type entry struct {
	gate    *Gate
	version string
	waiting func(string)
	holds   bool // a slot, since before this wait
	told    string

	news chan struct{}
	mu   sync.Mutex
	snap *Snapshot // nil: not read yet
	self *Self
	err  error // why the snapshot cannot be read
}

// errEntered ends the watches of a node that was let in.
var errEntered = errors.New("entered")

func (e *entry) run(ctx context.Context) error {
	g, watch := errgroup.WithContext(ctx)
	g.Go(func() error {
		return e.gate.o.Snapshots.WatchSnapshot(watch, func(s Snapshot, err error) {
			e.note(func() {
				if e.err = err; err == nil {
					e.snap = &s
				}
			})
		})
	})
	g.Go(func() error {
		return e.gate.o.Self.WatchSelf(watch, func(s Self) { e.note(func() { e.self = &s }) })
	})
	g.Go(func() error {
		if err := e.wait(watch); err != nil {
			return err
		}
		return errEntered
	})
	if err := g.Wait(); !errors.Is(err, errEntered) {
		return err
	}
	return nil
}

func (e *entry) note(set func()) {
	e.mu.Lock()
	set()
	e.mu.Unlock()
	select {
	case e.news <- struct{}{}:
	default:
	}
}

// admission is what is known now; ok is false before all is.
func (e *entry) admission(now time.Time) (a Admission, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.snap == nil && e.err != nil:
		return Admission{Verdict: Nothing, Reason: fmt.Sprintf("the rollout cannot be read: %v", e.err)}, true
	case e.snap == nil || e.self == nil:
		return a, false
	case e.snap.Desired != e.version:
		return Admission{Verdict: Nothing, Reason: fmt.Sprintf("version %q is not desired any more", e.version)}, true
	}
	self := *e.self
	self.Holds = e.holds
	a = Admit(*e.snap, self, now)
	if errors.Is(e.err, kv.ErrDamaged) || errors.Is(e.err, kv.ErrNewer) {
		a.Reason = fmt.Sprintf("%s; since then the rollout cannot be read: %v", a.Reason, e.err)
	}
	return a, true
}

// wait returns nil once the node is admitted and, where one is needed, holds a
// slot and is in maintenance.
func (e *entry) wait(ctx context.Context) error {
	for {
		a, known := e.admission(time.Now())
		if known && a.OK() {
			in, err := e.begin(ctx, a)
			if in || err != nil {
				return err
			}
			continue
		}
		if known {
			e.say(a.Reason)
		}
		if err := e.next(ctx, a.Until); err != nil {
			return err
		}
	}
}

// next returns when there is something new, or at a time that is not zero.
func (e *entry) next(ctx context.Context, at time.Time) error {
	var due <-chan time.Time
	if !at.IsZero() {
		t := time.NewTimer(max(time.Until(at), time.Millisecond))
		defer t.Stop()
		due = t.C
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-e.news:
	case <-due:
	}
	return nil
}

func (e *entry) say(reason string) {
	if reason != e.told {
		e.told = reason
		e.waiting(reason)
	}
}

// begin takes a slot and goes into maintenance, when a asks for a slot. in is
// false when the node is admitted no more by the time it has its slot.
func (e *entry) begin(ctx context.Context, a Admission) (in bool, err error) {
	if !a.Slot {
		return true, nil
	}
	claim, err := e.acquire(ctx)
	if claim == nil || err != nil {
		return false, err
	}
	defer func() {
		if in || e.holds {
			err = errors.Join(err, claim.Detach(ctx))
		} else if lost := claim.Release(ctx); lost != nil && !errors.Is(lost, kv.ErrLockLost) {
			e.gate.o.Log.Warn("the slot of the rollout was not given back; it is taken up at the next try", "error", lost)
		}
	}()
	// Waiting took time: the window may have closed, the rollout may be paused.
	// What is read from here on counts this node's slot, see Apply.
	s, _, err := e.gate.o.Snapshots.ReadFor(ctx, e.gate.o.Node)
	if err != nil {
		e.say(fmt.Sprintf("the rollout cannot be read: %v", err))
		return false, concurrency.Sleep(ctx, retry)
	}
	e.note(func() { e.snap, e.err = &s, nil })
	if a, _ := e.admission(time.Now()); !a.OK() {
		e.say(a.Reason)
		return false, nil
	}
	if err := e.gate.o.Maintenance.Begin(ctx, reasonOf(e.version)); err != nil {
		e.say(fmt.Sprintf("maintenance mode cannot be set: %v", err))
		return false, concurrency.Sleep(ctx, retry)
	}
	return true, nil
}

// acquire waits for a slot as long as the node is admitted; the claim is nil
// when it ceased to be.
func (e *entry) acquire(ctx context.Context) (*slots.Claim, error) {
	waiting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop(nil)
	if !e.holds {
		e.say("waits for a slot of the rollout")
		watching.Go(func() {
			for {
				a, _ := e.admission(time.Now())
				if !a.OK() {
					stop(errNotAdmitted)
					return
				}
				if e.next(waiting, a.Until) != nil {
					return
				}
			}
		})
	}
	claim, err := e.lineUp(waiting)
	switch {
	case err == nil:
		return claim, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(context.Cause(waiting), errNotAdmitted):
		return nil, nil
	}
	e.say(fmt.Sprintf("no slot: %v", err))
	return nil, concurrency.Sleep(ctx, retry)
}

// lineUp waits for a slot. Who holds one takes it up at once; the others come
// one after the other, in the order in which they are admitted: all of them at
// the same moment would only stand in each other's way, and in that of those who
// are done.
func (e *entry) lineUp(ctx context.Context) (*slots.Claim, error) {
	if !e.holds {
		e.mu.Lock()
		d, self := e.snap.Document, *e.self
		e.mu.Unlock()
		key := d.Policy.KeyOf(d.Version, self.Node, self.Roles, self.Zone)
		if err := concurrency.Sleep(ctx, key.turn(d.Counts.Members)); err != nil {
			return nil, err
		}
	}
	return e.gate.o.Slots.Acquire(ctx, Slots, slots.Keep, slots.Holder{
		Node: e.gate.o.Node, ID: ClaimID, Reason: "update to " + e.version, Durable: true, Patient: true,
	})
}

var errNotAdmitted = errors.New("not admitted any more")
