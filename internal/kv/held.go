package kv

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/consul"
)

// releaseWithin bounds the giving back of a lock.
const releaseWithin = 5 * time.Second

// Held is a lock that is held. Its methods are safe for concurrent use.
type Held struct {
	key     string
	value   []byte
	session *Session
	plain   *Store // where the lock is
	fenced  *Store // the same, with the lock checked in every write

	epoch uint64

	ctx  context.Context
	end  context.CancelCauseFunc
	stop context.CancelFunc
	done chan struct{} // closed when nobody watches the key any more

	unlocking sync.Once
	unlocked  error
}

// newHeld watches over a lock that was taken, until Unlock.
func newHeld(ctx context.Context, a acquisition) *Held {
	s := a.store
	h := &Held{key: a.key, value: a.value, session: a.session, epoch: a.epoch, plain: s, done: make(chan struct{})}
	fenced := *s
	fenced.held = h
	h.fenced = &fenced
	h.ctx, h.end = context.WithCancelCause(ctx)
	watch, stop := context.WithCancel(context.WithoutCancel(ctx))
	h.stop = stop
	go func() {
		defer close(h.done)
		h.monitor(watch)
	}()
	return h
}

// Context ends the moment the lock is lost or can no longer be believed in;
// its cause is then ErrLockLost. That is before Consul could give the lock to
// somebody else for want of renewals, whether or not Consul can be reached. It
// also ends with the context that was given to Lock, and with Unlock.
func (h *Held) Context() context.Context { return h.ctx }

// Err returns ErrLockLost, with the reason, when the lock was lost; else nil.
func (h *Held) Err() error {
	if err := h.session.Err(); err != nil {
		return fmt.Errorf("lock %q: %w", h.plain.Path(h.key), err)
	}
	return nil
}

// Epoch is a number that is higher than that of all who held the lock before:
// a fencing token for what is written elsewhere than to Consul.
func (h *Held) Epoch() uint64 { return h.epoch }

// Store returns the lock's store with the lock checked in the same transaction
// as every write. Writes return ErrLockLost once the lock is lost. As all of
// them are transactions, a value may have about 380 KB.
func (h *Held) Store() *Store { return h.fenced }

// Txn returns a transaction that begins with a check that the lock is held.
func (h *Held) Txn() *Txn { return h.fenced.Txn() }

// Unlock ends Context and gives the lock back, so that the next can have it at
// once; it deletes nothing. It takes at most 5 seconds, also when ctx has ended.
// It returns ErrLockLost when the lock had been lost before, or
// consul.ErrUnreachable or consul.ErrOutcomeUnknown when Consul did not say that the
// lock was given back: it then falls free after its TTL. Unlock may be called
// again, and returns the same.
func (h *Held) Unlock(ctx context.Context) error {
	h.unlocking.Do(func() { h.unlocked = h.unlock(ctx) })
	return h.unlocked
}

func (h *Held) unlock(ctx context.Context) error {
	h.end(context.Canceled)
	h.stop()
	<-h.done
	lost := h.Err()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
	defer cancel()
	released := h.release(ctx)
	destroyed := h.session.Close(ctx) // releases too, but then the lock delay counts
	switch {
	case lost != nil:
		return lost
	case errors.Is(released, ErrConflict):
		return h.lose(errTaken)
	case released == nil || destroyed == nil:
		return nil
	}
	return fmt.Errorf("unlock %q: %w", h.plain.Path(h.key), destroyed)
}

func (h *Held) release(ctx context.Context) error {
	t := h.plain.Txn()
	t.add(consul.KVUnlock, h.key, consul.KVTxnOp{Value: h.value, Session: h.session.id})
	_, err := t.Commit(ctx)
	return err
}

// fence puts the check in front of a transaction.
func (h *Held) fence(t *Txn) { t.CheckSession(h.key, h.session.id) }

// lose says that the lock is lost, and returns that as an error.
func (h *Held) lose(reason error) error {
	_ = h.session.end(reason)
	err := h.Err()
	h.end(err)
	return err
}

// monitor ends the lock's context when its session ends, or when somebody
// else's hand took the lock away.
func (h *Held) monitor(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { h.monitorKey(ctx) })
	select {
	case <-ctx.Done():
	case <-h.session.ended:
		h.end(h.Err())
	}
}

// monitorKey watches the lock's key. A failure to read it proves nothing.
func (h *Held) monitorKey(ctx context.Context) {
	source := func(ctx context.Context, q consul.Query) (*consul.KVPair, consul.Meta, error) {
		return h.plain.get(ctx, h.key, q)
	}
	_ = consul.Watch(ctx, h.plain.client, consul.Query{Consistent: true}, source, func(u consul.Update[*consul.KVPair]) {
		if u.Err == nil && (u.Value == nil || u.Value.Session != h.session.id) {
			_ = h.lose(errTaken)
		}
	}) // ends with ctx
}

var errTaken = errors.New("taken away: its session was destroyed or its key deleted")
