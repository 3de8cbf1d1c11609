package blocker

import (
	"context"
	"sync"
	"time"
)

// poll is the plain way: ask, sleep, ask again.
func (b *Blocker) poll(ctx context.Context, needs []Need, o Options, progress func([]State)) error {
	if o.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.Timeout, ErrTimedOut)
		defer cancel()
	}
	states := make([]State, len(needs))
	for try := 1; ; try++ {
		fresh, err := b.once(ctx, needs, o.DNSOnly)
		if err != nil {
			return err
		}
		if ctx.Err() != nil && try > 1 {
			break // what failed then says nothing
		}
		for i := range states {
			fresh[i].Answered = fresh[i].Answered || states[i].Answered
		}
		states = fresh
		if progress != nil {
			progress(states)
		}
		if denied(states, o.Any) {
			return &DeniedError{States: states}
		}
		if _, ok := satisfiedFrom(states, o.Any); ok {
			return nil
		}
		if try >= o.Tries || !sleep(ctx, o.TrySleep) {
			break
		}
	}
	if err := context.Cause(ctx); err != nil && err != ErrTimedOut {
		return err
	}
	return &TimeoutError{States: states}
}

// once finds out the present states.
func (b *Blocker) once(ctx context.Context, needs []Need, dnsOnly bool) ([]State, error) {
	states := make([]State, len(needs))
	var wg sync.WaitGroup
	defer wg.Wait()
	for i, n := range needs {
		f, err := b.follower(n, dnsOnly, func(s State) { states[i] = s })
		if err != nil {
			return nil, err
		}
		wg.Go(func() {
			if f.watched {
				f.facts.health = b.readHealth(ctx, f.query)
			}
			if f.name != "" {
				f.ask(ctx)
			}
			f.dial(ctx, time.Now())
			f.conclude()
		})
	}
	wg.Wait()
	return states, nil
}

// sleep reports false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
