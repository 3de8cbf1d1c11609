package slots

import (
	"context"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/kv"
)

// closeWithin bounds the giving back of what is in Consul when the caller's
// context has ended.
const closeWithin = 5 * time.Second

// pool keeps sessions between claims. One session serves one claim at a time,
// so that a claim which cannot be given back can end with its session.
type pool struct {
	store  *kv.Store
	ttl    time.Duration
	linger time.Duration

	mu      sync.Mutex
	idle    map[*kv.Session]*time.Timer // the timer closes the session
	closing sync.WaitGroup
	closed  bool
}

// take returns a session of the caller's own.
func (p *pool) take(ctx context.Context) (*kv.Session, error) {
	for {
		s := p.next()
		if s == nil {
			return p.store.OpenSession(ctx, "jorc slots "+p.store.Path("slots/"), kv.LeaseOptions{
				TTL: p.ttl, LockDelay: -1, DeleteWhenLost: true,
			})
		}
		if s.Err() == nil {
			return s, nil
		}
		end(ctx, s)
	}
}

// next takes a session out of those that are idle; nil: there is none.
func (p *pool) next() *kv.Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s, timer := range p.idle {
		if p.stop(s, timer) {
			return s
		}
	}
	return nil
}

// stop keeps an idle session from being closed by its timer, and tells whether
// it was in time. The lock is held.
func (p *pool) stop(s *kv.Session, timer *time.Timer) bool {
	if !timer.Stop() {
		return false
	}
	delete(p.idle, s)
	p.closing.Done()
	return true
}

// give takes back a session that holds nothing any more.
func (p *pool) give(ctx context.Context, s *kv.Session) {
	if !p.keep(s) {
		end(ctx, s)
	}
}

func (p *pool) keep(s *kv.Session) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.linger < 0 || s.Err() != nil {
		return false
	}
	p.closing.Add(1)
	p.idle[s] = time.AfterFunc(p.linger, func() {
		defer p.closing.Done()
		p.mu.Lock()
		delete(p.idle, s)
		p.mu.Unlock()
		end(context.Background(), s)
	})
	return true
}

// end closes a session. When Consul does not answer, the TTL ends it.
func end(ctx context.Context, s *kv.Session) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	_ = s.Close(ctx)
}

// close ends the idle sessions, and those that are given back from now on. It
// returns when that is done.
func (p *pool) close(ctx context.Context) {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	var all sync.WaitGroup
	for s := p.next(); s != nil; s = p.next() {
		all.Go(func() { end(ctx, s) })
	}
	all.Wait()
	p.closing.Wait()
}
