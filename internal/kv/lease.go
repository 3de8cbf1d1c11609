package kv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
)

// LeaseOptions configure a lease. The zero value is good.
type LeaseOptions struct {
	// TTL is for how long Consul keeps the session of a holder that does not
	// renew it: one to two times this. Consul's minimum is 10 s unless its
	// configuration (session_ttl_min) says otherwise. Default 15 s.
	TTL time.Duration
	// LockDelay is for how long Consul refuses the lock to all after the holder's
	// session ended; Release has no such delay. Default 1 s; below zero none.
	LockDelay time.Duration
	// Ephemeral deletes the key when the session ends, Release included.
	Ephemeral bool
	// Holder is shown to others. A zero ID is filled in, and a zero Since becomes
	// the time at which the lock was acquired.
	Holder Holder
	// Value is a struct that the key holds, as a document of format 1, instead of
	// Holder. Store.Holder does not read such a key.
	Value any
	// Restored is called when the index of the lock went backwards while it was waited for: Consul's data was restored, and the
	// lock has changed since. Optional.
	Restored func()
}

// Holder names the holder of a lock and the reason; it is the value of the lock's key.
type Holder struct {
	Node   string    `json:"node"`
	ID     string    `json:"id"`
	Since  time.Time `json:"since"`
	Reason string    `json:"reason,omitempty"`
}

func (o LeaseOptions) withDefaults() LeaseOptions {
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
	return o
}

func (o LeaseOptions) behavior() string {
	if o.Ephemeral {
		return "delete"
	}
	return "release"
}

const holderFormat = 1

// Holder returns the holder of the lock at key; held is false when the lock is
// free. It returns ErrDamaged or ErrNewer when the key's value is not a Holder,
// ErrBadKey, consul.ErrDenied or consul.ErrUnreachable.
func (s *Store) Holder(ctx context.Context, key string) (h Holder, held bool, err error) {
	p, _, err := s.get(ctx, key, s.query())
	if err != nil || p == nil || p.Session == "" {
		return Holder{}, false, err
	}
	e, err := NewDoc[Holder](s, key, holderFormat).entry(p)
	return e.Value, true, err
}

// Lock waits until the lock at key is free and acquires it. While Consul is
// unreachable it keeps trying. It returns ctx's error when ctx ends first, or
// ErrBadKey, ErrLockLost in the store of another lease that was lost,
// consul.ErrDenied or consul.ErrRefused (such as a TTL below Consul's minimum).
// The caller must call Release, also after the lease was lost and after ctx ended.
func (s *Store) Lock(ctx context.Context, key string, o LeaseOptions) (*Lease, error) {
	return s.lock(ctx, key, o, true)
}

// TryLock is Lock that returns ErrLocked instead of waiting for another
// holder or for its lock delay.
func (s *Store) TryLock(ctx context.Context, key string, o LeaseOptions) (*Lease, error) {
	return s.lock(ctx, key, o, false)
}

func (s *Store) lock(ctx context.Context, key string, o LeaseOptions, wait bool) (*Lease, error) {
	if err := s.check(key); err != nil {
		return nil, err
	}
	a := acquisition{store: s, key: key, options: o.withDefaults(), wait: wait}
	if err := a.run(ctx); err != nil {
		a.giveUp(ctx)
		return nil, err
	}
	return newLease(ctx, a), nil
}

// acquisition is one call of Lock. It creates its session only when the lock is free.
type acquisition struct {
	store   *Store
	key     string
	options LeaseOptions
	wait    bool

	session *Session
	value   []byte
	epoch   uint64
	index   uint64 // of the last answer about the lock
}

// Pauses while a free lock is refused because of the lock delay: Consul sends no
// event when the delay is over.
const (
	firstTry = 20 * time.Millisecond
	lastTry  = 500 * time.Millisecond
	// spread keeps the processes that waited from asking at the same moment.
	spread = 20 * time.Millisecond
)

func (a *acquisition) run(ctx context.Context) error {
	retry := concurrency.NewBackoff(firstTry, lastTry)
	for {
		waited, err := a.free(ctx)
		if err != nil {
			return err
		}
		if waited {
			retry.Reset()
			if err := concurrency.Sleep(ctx, rand.N(spread)); err != nil {
				return err
			}
		}
		if err := a.date(); err != nil {
			return err
		}
		got, err := a.take(ctx)
		if got || err != nil {
			return err
		}
		if !a.wait {
			return fmt.Errorf("lock %q: %w", a.store.Path(a.key), ErrLocked)
		}
		if err := retry.Wait(ctx); err != nil {
			return err
		}
	}
}

// date encodes the holder with the present time, unless the caller gave another:
// the wait for the lock may have been long.
func (a *acquisition) date() (err error) {
	value := a.options.Value
	if value == nil {
		h := a.options.Holder
		if h.Since.IsZero() {
			h.Since = time.Now().UTC().Truncate(time.Millisecond)
		}
		value = h
	}
	a.value, err = (document[any]{format: holderFormat}).encode(value, nil)
	return err
}

// free waits until no other session holds the lock; waited reports whether one did.
func (a *acquisition) free(ctx context.Context) (waited bool, err error) {
	watch, cancel := context.WithCancel(ctx)
	defer cancel()
	source := func(ctx context.Context, q consul.Query) (*consul.KVPair, consul.Meta, error) {
		return a.store.get(ctx, a.key, q)
	}
	_ = consul.Watch(watch, a.store.client, consul.Query{}, source, func(u consul.Update[*consul.KVPair]) {
		if u.Err == nil {
			// Each wait is a watch of its own, which does not know the indexes of the one before.
			if u.Meta.Index < a.index && a.options.Restored != nil {
				a.options.Restored()
			}
			a.index = u.Meta.Index
		}
		switch {
		case errors.Is(u.Err, consul.ErrDenied), consul.IsPermanent(u.Err):
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
// so a lost answer counts as a refusal.
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

// giveUp destroys the session, if one was created. While Consul is unreachable
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

// releaseWithin bounds Release: an agent that stops must not wait for a lost Consul.
const releaseWithin = 5 * time.Second

// Lease is a lock that this process holds through a session of its own, which it
// renews until Release. Its methods are safe for concurrent use.
type Lease struct {
	key     string
	value   []byte
	options LeaseOptions
	session *Session
	plain   *Store // the store of the lock's key
	fenced  *Store // the same, with the lock checked in every write

	epoch uint64

	ctx  context.Context
	end  context.CancelCauseFunc
	stop context.CancelFunc
	done chan struct{} // closed when monitor has returned

	releasing sync.Once
	released  error
}

// newLease monitors an acquired lock until Release.
func newLease(ctx context.Context, a acquisition) *Lease {
	s := a.store
	l := &Lease{key: a.key, value: a.value, options: a.options, session: a.session, epoch: a.epoch, plain: s, done: make(chan struct{})}
	fenced := *s
	fenced.held = l
	l.fenced = &fenced
	l.ctx, l.end = context.WithCancelCause(ctx)
	watch, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop = stop
	go func() {
		defer close(l.done)
		l.monitor(watch)
	}()
	return l
}

// Context ends when the lock is lost or may be lost; its cause is then
// ErrLockLost. That is before Consul can give the lock to another session for
// lack of renewals, whether or not Consul is reachable. It also ends with the
// context that was given to Lock, and with Release.
func (l *Lease) Context() context.Context { return l.ctx }

// Err returns ErrLockLost, with the reason, when the lock was lost; else nil.
func (l *Lease) Err() error {
	if err := l.session.Err(); err != nil {
		return fmt.Errorf("lock %q: %w", l.plain.Path(l.key), err)
	}
	return nil
}

// Epoch is a number higher than that of all earlier holders of the lock: a
// fencing token for writes to other systems than Consul.
func (l *Lease) Epoch() uint64 { return l.epoch }

// Session returns the id of the session that holds the lock.
func (l *Lease) Session() string { return l.session.id }

// Store returns the lock's store with the lock checked in the same transaction
// as every write. Writes return ErrLockLost once the lock is lost. As all of
// them are transactions, a value may have about 380 KB.
func (l *Lease) Store() *Store { return l.fenced }

// Txn returns a transaction that begins with a check that the lock is held.
func (l *Lease) Txn() *Txn { return l.fenced.Txn() }

// Release ends Context and releases the lock, so that another process can
// acquire it at once; it deletes the key of an ephemeral lease alone. It takes at
// most 5 seconds, also when ctx has ended. It returns ErrLockLost when the lock was
// lost before, or consul.ErrUnreachable or consul.ErrOutcomeUnknown when Consul did
// not confirm the release: the lock is then free after its TTL. Later calls return
// the same.
func (l *Lease) Release(ctx context.Context) error {
	l.releasing.Do(func() { l.released = l.release(ctx) })
	return l.released
}

func (l *Lease) release(ctx context.Context) error {
	l.end(context.Canceled)
	l.stop()
	<-l.done
	lost := l.Err()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
	defer cancel()
	released := error(nil)
	if !l.options.Ephemeral {
		released = l.unlockKey(ctx)
	}
	destroyed := l.session.Close(ctx) // releases too, but then the lock delay counts
	if l.options.Ephemeral {
		released = destroyed
	}
	switch {
	case lost != nil:
		return lost
	case errors.Is(released, ErrConflict):
		return l.lose(ErrTaken)
	case released == nil || destroyed == nil:
		return nil
	}
	return fmt.Errorf("release lock %q: %w", l.plain.Path(l.key), destroyed)
}

func (l *Lease) unlockKey(ctx context.Context) error {
	t := l.plain.Txn()
	t.add(consul.KVUnlock, l.key, consul.KVTxnOp{Value: l.value, Session: l.session.id})
	_, err := t.Commit(ctx)
	return err
}

// fence puts the check in front of a transaction.
func (l *Lease) fence(t *Txn) { t.CheckSession(l.key, l.session.id) }

// lose marks the lock as lost, for reason, and returns the error that says so.
func (l *Lease) lose(reason error) error {
	_ = l.session.end(reason)
	err := l.Err()
	l.end(err)
	return err
}

// monitor ends the lease's context when its session ends, or when the lock's key
// was deleted or taken by another session.
func (l *Lease) monitor(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { l.monitorKey(ctx) })
	select {
	case <-ctx.Done():
	case <-l.session.ended:
		l.end(l.Err())
	}
}

// monitorKey watches the lock's key. An error of the read does not end the lease.
func (l *Lease) monitorKey(ctx context.Context) {
	source := func(ctx context.Context, q consul.Query) (*consul.KVPair, consul.Meta, error) {
		return l.plain.get(ctx, l.key, q)
	}
	_ = consul.Watch(ctx, l.plain.client, consul.Query{Consistent: true}, source, func(u consul.Update[*consul.KVPair]) {
		if u.Err == nil && (u.Value == nil || u.Value.Session != l.session.id) {
			_ = l.lose(ErrTaken)
		}
	}) // ends with ctx
}

// ErrTaken is the reason for which a lease is lost, beside ErrLockLost, when its
// key was deleted or its session destroyed while the session was valid.
var ErrTaken = errors.New("taken away: its session was destroyed or its key deleted")
