package kv

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/consul"
)

// Session is a Consul session that is renewed until it is closed, and believed
// in only as long as Consul cannot have ended it for want of renewal.
//
// Consul promises that a session lives at least its TTL after a renewal
// reached it, and in fact gives it twice that. The session is believed in
// until its TTL after the last renewal that was answered had been *sent*, less
// a margin, by this host's own clock: no answer is needed to stop in time.
type Session struct {
	id     string
	client *consul.Client
	ttl    time.Duration

	expiry *time.Timer
	ended  chan struct{} // closed when it can no longer be believed in
	mu     sync.Mutex
	err    error // why, an ErrLockLost

	stop context.CancelFunc
	done chan struct{} // closed when nobody renews it any more
}

// OpenSession creates a session and keeps it until Close is called, for those
// who hold keys by other means than Lock. ctx bounds the creation only. Of o
// the TTL, the LockDelay and DeleteWhenLost count. It returns consul.ErrDenied,
// consul.ErrRefused, consul.ErrUnreachable or consul.ErrOutcomeUnknown; a
// session that was created all the same then ends with its TTL.
func (s *Store) OpenSession(ctx context.Context, name string, o LockOptions) (*Session, error) {
	return openSession(ctx, s.client, name, o.withDefaults())
}

// openSession creates a session and keeps it until close is called. ctx bounds
// the creation only.
func openSession(ctx context.Context, client *consul.Client, name string, o LockOptions) (*Session, error) {
	sent := time.Now()
	id, err := client.SessionCreate(ctx, &consul.SessionEntry{
		Name: name, TTL: o.TTL.String(), LockDelay: o.LockDelay, Behavior: o.behavior(),
	})
	if err != nil {
		return nil, err
	}
	s := &Session{id: id, client: client, ttl: o.TTL, ended: make(chan struct{}), done: make(chan struct{})}
	s.mu.Lock()
	s.expiry = time.AfterFunc(s.belief(sent), func() { _ = s.end(errNotRenewed) })
	s.mu.Unlock()
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(s.done)
		s.keep(ctx)
	}()
	return s, nil
}

var errNotRenewed = errors.New("Consul did not answer a renewal in time")

// belief is how long from now a session renewed by a request sent at sent can
// be believed in. The margin is for clocks that run apart and for noticing.
func (s *Session) belief(sent time.Time) time.Duration {
	margin := min(s.ttl/10, 2*time.Second)
	return time.Until(sent.Add(s.ttl - margin))
}

// keep renews the session at a third of its TTL, and more often once a renewal
// failed, until ctx ends or the session has.
func (s *Session) keep(ctx context.Context) {
	pause := s.ttl / 3
	for {
		if waitUntil(ctx, s.ended, pause) != nil || s.Err() != nil {
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
		s.expiry.Reset(s.belief(sent))
	}
}

// end says that the session can be believed in no more, and returns why.
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

// Ended is closed the moment the session can be believed in no more. That is
// before Consul can have ended it for want of renewals, by this host's clock.
func (s *Session) Ended() <-chan struct{} { return s.ended }

// Err returns an ErrLockLost when the session can be believed in no more.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close stops the renewals and destroys the session. When that fails with
// consul.ErrUnreachable or consul.ErrOutcomeUnknown, the session's TTL ends it.
func (s *Session) Close(ctx context.Context) error {
	s.stop()
	<-s.done
	s.expiry.Stop()
	return s.client.SessionDestroy(ctx, s.id)
}

// waitUntil returns nil after d or when ch is closed, or the context's error.
func waitUntil(ctx context.Context, ch <-chan struct{}, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-ch:
	case <-t.C:
	}
	return nil
}
