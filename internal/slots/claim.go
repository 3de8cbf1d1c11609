package slots

import (
	"context"
	"sync"

	"github.com/jorc/jorc/internal/kv"
)

// Claim is a slot that is held. Its methods are safe for concurrent use.
type Claim struct {
	attempt *attempt
	node    string
	id      string
	index   uint64 // of the held key

	ctx     context.Context
	end     context.CancelCauseFunc
	watch   context.Context
	stop    context.CancelFunc
	watched sync.Once // somebody wants to know whether the claim is lost
	done    sync.WaitGroup

	mu   sync.Mutex
	lost error // why it is held no more; a kv.ErrLockLost

	releasing sync.Mutex
	away      bool // it was given back, and the session with it
	result    error
}

// newClaim is the claim to a slot that was granted.
func newClaim(ctx context.Context, a *attempt, h Holder, index uint64) *Claim {
	c := &Claim{attempt: a, node: h.Node, id: h.ID, index: index}
	c.ctx, c.end = context.WithCancelCause(ctx)
	c.watch, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	if a.session != nil { // which can end at any time, and nobody has to do it
		c.watchOver()
	}
	return c
}

// watchOver watches over the claim, from the first call on until it is given back.
func (c *Claim) watchOver() {
	c.watched.Do(func() { c.done.Go(func() { c.monitor(c.watch) }) })
}

// watchNoMore ends Context and the watch over the claim.
func (c *Claim) watchNoMore() {
	c.end(context.Canceled)
	c.stop()
	c.watched.Do(func() {}) // not from now on either
	c.done.Wait()
}

// Node and ID are what the claim is called in its group.
func (c *Claim) Node() string { return c.node }

// ID tells the claims of a node apart.
func (c *Claim) ID() string { return c.id }

// Context ends the moment the claim is lost or can no longer be believed in;
// its cause is then kv.ErrLockLost. A claim that is tied to a session is lost
// before Consul could let the next go for want of renewals, whether or not
// Consul can be reached; a durable one when it was unlocked by hand. It also
// ends with the context that was given to Acquire, and with Release.
func (c *Claim) Context() context.Context {
	c.watchOver()
	return c.ctx
}

// Err returns kv.ErrLockLost, with the reason, when the claim was lost; else nil.
func (c *Claim) Err() error {
	if s := c.attempt.session; s != nil && s.Err() != nil {
		return c.attempt.group.wrap(s.Err())
	}
	c.watchOver()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// CheckIn adds to t a check that the slot is still held, so that what t writes
// is not written by one who lost it.
func (c *Claim) CheckIn(t *kv.Txn) {
	t.CheckIndex(c.attempt.group.held.At(c.attempt.name).Key(), c.index)
}

// lose says that the claim is lost.
func (c *Claim) lose(reason error) {
	c.mu.Lock()
	if c.lost == nil {
		c.lost = c.attempt.group.wrap(reason)
	}
	err := c.lost
	c.mu.Unlock()
	c.end(err)
}

// monitor ends the claim's context when its session ends or its key is gone.
func (c *Claim) monitor(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { c.monitorKey(ctx) })
	var ended <-chan struct{}
	if s := c.attempt.session; s != nil {
		ended = s.Ended()
	}
	select {
	case <-ctx.Done():
	case <-ended:
		c.lose(c.attempt.session.Err())
	}
}

// monitorKey watches the claim's key. A failure to read it proves nothing.
func (c *Claim) monitorKey(ctx context.Context) {
	_ = c.attempt.group.held.At(c.attempt.name).Watch(ctx, func(u kv.Update[Holding]) {
		if u.Err == nil && (!u.Entry.Exists || u.Entry.Value.Session != c.attempt.sessionID()) {
			c.lose(errTaken)
		}
	}) // ends with ctx
}

// Release ends Context and gives the slot to the next. For a claim tied to a
// session it takes at most 5 seconds; when Consul does not answer by then the
// slot falls free with the session. For a durable one it goes on until ctx
// ends, or 5 seconds when it has, and may be called again after an error.
// It returns kv.ErrLockLost when the claim had been lost before;
// consul.ErrUnreachable, consul.ErrOutcomeUnknown or context.DeadlineExceeded
// when Consul did not say that the slot was given back; or consul.ErrDenied.
func (c *Claim) Release(ctx context.Context) error {
	c.releasing.Lock()
	defer c.releasing.Unlock()
	if c.away {
		return c.result
	}
	c.watchNoMore()
	a := c.attempt
	if !a.durable || ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
		defer cancel()
	}
	lost := c.Err()
	err := persist(ctx, func() error { return a.group.release(ctx, a.name, c.leave, c.CheckIn) })
	c.away = !a.durable || err == nil
	if a.session != nil {
		a.putAway(ctx, lost == nil && err == nil)
	}
	if c.result = lost; lost == nil {
		c.result = a.group.wrap(err)
	}
	return c.result
}

// leave takes the claim out of the group, unless the name is another's now.
func (c *Claim) leave(_ context.Context, now Group, _ *changing) (Group, error) {
	if h, ok := now.Holders[c.attempt.name]; !ok || h.Session != c.attempt.sessionID() {
		return now, nil
	}
	return now.Leave(c.attempt.name), nil
}
