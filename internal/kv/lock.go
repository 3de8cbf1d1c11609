package kv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
)

// LockOptions says how to hold a lock. The zero value is good.
type LockOptions struct {
	// TTL is how long Consul lets a holder live that it hears nothing of: from
	// one to two times this. Consul's minimum is 10 s unless it is told
	// otherwise. Default 15 s.
	TTL time.Duration
	// LockDelay is for how long Consul gives the lock to nobody after it was
	// taken from a holder; not after Unlock. Default 1 s; below zero none.
	LockDelay time.Duration
	// DeleteWhenLost deletes the key when the holder is lost. Unlock leaves it.
	DeleteWhenLost bool
	// Holder is shown to others. ID and Since are filled in when they are zero.
	Holder Holder
}

// Holder is who holds a lock and why; it is the value of the lock's key.
type Holder struct {
	Node   string    `json:"node"`
	ID     string    `json:"id"`
	Since  time.Time `json:"since"`
	Reason string    `json:"reason,omitempty"`
}

func (o LockOptions) withDefaults() LockOptions {
	if o.TTL == 0 {
		o.TTL = 15 * time.Second
	}
	switch {
	case o.LockDelay == 0:
		o.LockDelay = time.Second
	case o.LockDelay < 0:
		o.LockDelay = time.Millisecond // 0 would mean Consul's default of 15 s
	}
	if o.Holder.ID == "" {
		o.Holder.ID = fmt.Sprintf("%016x", rand.Uint64())
	}
	if o.Holder.Since.IsZero() {
		o.Holder.Since = time.Now().UTC().Truncate(time.Millisecond)
	}
	return o
}

func (o LockOptions) behavior() string {
	if o.DeleteWhenLost {
		return "delete"
	}
	return "release"
}

const holderFormat = 1

// Holder tells who holds the lock at key; held is false when nobody does. It
// returns ErrDamaged or ErrNewer when the lock is held by something that did
// not write a Holder, ErrBadKey, consul.ErrDenied or consul.ErrUnreachable.
func (s *Store) Holder(ctx context.Context, key string) (h Holder, held bool, err error) {
	p, _, err := s.get(ctx, key, s.query())
	if err != nil || p == nil || p.Session == "" {
		return Holder{}, false, err
	}
	e, err := NewDoc[Holder](s, key, holderFormat).entry(p)
	return e.Value, true, err
}

// Lock waits until the lock at key is free and takes it. While Consul cannot
// be reached it goes on trying. It returns ctx's error when that ends first,
// or ErrBadKey, ErrLockLost in the store of another lock that was lost,
// consul.ErrDenied or consul.ErrRefused (such as a TTL that Consul does not take).
// The lock must be given back with Unlock, also after it was lost and after ctx ended.
func (s *Store) Lock(ctx context.Context, key string, o LockOptions) (*Held, error) {
	return s.lock(ctx, key, o, true)
}

// TryLock is Lock that returns ErrLocked instead of waiting for another
// holder, or for the lock delay after one.
func (s *Store) TryLock(ctx context.Context, key string, o LockOptions) (*Held, error) {
	return s.lock(ctx, key, o, false)
}

func (s *Store) lock(ctx context.Context, key string, o LockOptions, wait bool) (*Held, error) {
	if err := s.check(key); err != nil {
		return nil, err
	}
	a := acquisition{store: s, key: key, options: o.withDefaults(), wait: wait}
	if err := a.run(ctx); err != nil {
		a.giveUp(ctx)
		return nil, err
	}
	return newHeld(ctx, a), nil
}

// acquisition is one attempt to get a lock, for as long as it takes. It has a
// session only once the lock was seen to be free.
type acquisition struct {
	store   *Store
	key     string
	options LockOptions
	wait    bool

	session *Session
	value   []byte
	epoch   uint64
}

// Pauses while a lock that nobody holds cannot be had: its delay is not over,
// which Consul tells by no event.
const (
	firstTry = 20 * time.Millisecond
	lastTry  = 500 * time.Millisecond
	// spread is over what time those who waited come when the lock is free.
	spread = 20 * time.Millisecond
)

func (a *acquisition) run(ctx context.Context) (err error) {
	if a.value, err = (document[Holder]{format: holderFormat}).encode(a.options.Holder, nil); err != nil {
		return err
	}
	next := firstTry
	for {
		waited, err := a.free(ctx)
		if err != nil {
			return err
		}
		if waited {
			next = firstTry
			if err := concurrency.Sleep(ctx, rand.N(spread)); err != nil {
				return err
			}
		}
		got, err := a.take(ctx)
		if got || err != nil {
			return err
		}
		if !a.wait {
			return fmt.Errorf("lock %q: %w", a.store.Path(a.key), ErrLocked)
		}
		if err := concurrency.Sleep(ctx, next/2+rand.N(next/2)); err != nil {
			return err
		}
		next = min(2*next, lastTry)
	}
}

// free returns when nobody else holds the lock.
func (a *acquisition) free(ctx context.Context) (waited bool, err error) {
	watch, cancel := context.WithCancel(ctx)
	defer cancel()
	source := func(ctx context.Context, q consul.Query) (*consul.KVPair, consul.Meta, error) {
		return a.store.get(ctx, a.key, q)
	}
	_ = consul.Watch(watch, a.store.client, consul.Query{}, source, func(u consul.Update[*consul.KVPair]) {
		switch {
		case errors.Is(u.Err, consul.ErrDenied), errors.Is(u.Err, consul.ErrRefused):
			err = u.Err
		case u.Err != nil:
			return
		case a.mayTake(u.Value):
		case !a.wait:
			err = fmt.Errorf("lock %q: %w", a.store.Path(a.key), ErrLocked)
		default:
			waited = true
			return
		}
		cancel()
	})
	if err == nil {
		err = ctx.Err()
	}
	return waited, err
}

func (a *acquisition) mayTake(p *consul.KVPair) bool {
	return p == nil || p.Session == "" || a.session != nil && p.Session == a.session.id
}

// take asks for the lock once. Asking again with the same session is harmless,
// so an answer that never came counts as no.
func (a *acquisition) take(ctx context.Context) (got bool, err error) {
	if a.session != nil && a.session.Err() != nil {
		a.giveUp(ctx)
	}
	if a.session == nil {
		a.session, err = openSession(ctx, a.store.client, "jorc lock "+a.store.Path(a.key), a.options)
	}
	if err == nil {
		err = a.ask(ctx)
	}
	var no *ConflictError
	switch {
	case err == nil:
		return a.session.Err() == nil, nil
	case ctx.Err() != nil:
		return false, ctx.Err()
	case errors.As(err, &no):
		if strings.Contains(no.Error(), "invalid session") {
			a.giveUp(ctx)
		}
		return false, nil
	case errors.Is(err, consul.ErrUnreachable), errors.Is(err, consul.ErrOutcomeUnknown), errors.Is(err, consul.ErrRateLimited):
		return false, nil
	}
	return false, err
}

func (a *acquisition) ask(ctx context.Context) error {
	t := a.store.Txn()
	t.add(consul.KVLock, a.key, consul.KVTxnOp{Value: a.value, Session: a.session.id})
	r, err := t.Commit(ctx)
	if err == nil {
		a.epoch = r.Index(a.key)
	}
	return err
}

// giveUp destroys the session, if there is one. When Consul cannot be reached
// the session's TTL ends it.
func (a *acquisition) giveUp(ctx context.Context) {
	if a.session == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
	defer cancel()
	_ = a.session.Close(ctx) // its TTL ends it otherwise
	a.session = nil
}
