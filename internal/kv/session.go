package kv

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
)

// Session is a Consul session that is renewed until Close, and valid only as
// long as Consul cannot have ended it for lack of renewals.
//
// Consul keeps a session for at least its TTL after a renewal arrived, and in
// practice for twice that. The session counts as valid until its TTL, less a
// margin, after the last answered renewal was *sent*, by this host's own clock:
// no answer is needed to stop in time. (Consul's documentation, "Sessions".)
type Session struct {
	id     string
	client *consul.Client
	ttl    time.Duration

	expiry *time.Timer
	ended  chan struct{} // closed when the session is no longer valid
	mu     sync.Mutex
	err    error // why, an ErrLockLost

	stop context.CancelFunc
	done chan struct{} // closed when the renewals have ended
}

// openSession creates a session and renews it until Close. ctx bounds the creation only.
func openSession(ctx context.Context, client *consul.Client, name string, o LeaseOptions) (*Session, error) {
	sent := time.Now()
	id, err := client.SessionCreate(ctx, &consul.SessionEntry{
		Name: name, TTL: o.TTL.String(), LockDelay: o.LockDelay, Behavior: o.behavior(),
	})
	if err != nil {
		return nil, err
	}
	s := &Session{id: id, client: client, ttl: o.TTL, ended: make(chan struct{}), done: make(chan struct{})}
	s.mu.Lock()
	s.expiry = time.AfterFunc(s.validFor(sent), func() { _ = s.end(errNotRenewed) })
	s.mu.Unlock()
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(s.done)
		s.keep(ctx)
	}()
	return s, nil
}

var errNotRenewed = errors.New("Consul did not answer a renewal in time")

// validFor returns for how long from now a session is valid that was renewed by
// a request sent at sent. The margin covers clock drift and the time to react.
func (s *Session) validFor(sent time.Time) time.Duration {
	margin := min(s.ttl/10, 2*time.Second)
	return time.Until(sent.Add(s.ttl - margin))
}

// keep renews the session at a third of its TTL, and more often after a failed
// renewal, until ctx or the session ends.
func (s *Session) keep(ctx context.Context) {
	pause := s.ttl / 3
	for {
		if concurrency.SleepUnless(ctx, s.ended, pause) != nil || s.Err() != nil {
			return
		}
		sent := time.Now()
		err := s.renew(ctx)
		switch {
		case err == nil:
			pause = s.ttl / 3
			s.extend(sent)
		case errors.Is(err, consul.ErrNotFound):
			_ = s.end(err)
			return
		default:
			pause = s.ttl / 20
		}
	}
}

func (s *Session) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.ttl/3)
	defer cancel()
	_, err := s.client.SessionRenew(ctx, s.id)
	return err
}

// extend moves the expiry, unless it has passed.
func (s *Session) extend(sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.expiry.Reset(s.validFor(sent))
	}
}

// end marks the session as no longer valid, and returns the reason.
func (s *Session) end(reason error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = fmt.Errorf("%w: %w", ErrLockLost, reason)
		s.expiry.Stop()
		close(s.ended)
	}
	return s.err
}

// ID is the session's name in Consul.
func (s *Session) ID() string { return s.id }

// Ended is closed when the session is no longer valid. That is before Consul can
// have ended it for lack of renewals, by this host's clock.
func (s *Session) Ended() <-chan struct{} { return s.ended }

// Err returns an ErrLockLost when the session is no longer valid.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close stops the renewals and destroys the session; it repeats a request whose
// outcome is unknown until ctx ends. When it fails with consul.ErrUnreachable or
// consul.ErrOutcomeUnknown, the session's TTL ends it.
func (s *Session) Close(ctx context.Context) error {
	s.stop()
	<-s.done
	s.expiry.Stop()
	pauses := concurrency.NewBackoff(firstTry, lastTry)
	for {
		err := s.client.SessionDestroy(ctx, s.id)
		if !consul.IsTransient(err) && !errors.Is(err, consul.ErrOutcomeUnknown) || pauses.Wait(ctx) != nil {
			return err
		}
	}
}
