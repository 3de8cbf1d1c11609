package blocker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
)

// Wait returns nil when all needs are satisfied, or one with Options.Any.
// progress, if not nil, is called with the states, in the order of needs, after
// every change; it must not keep the slice. Errors are ErrUsage, a *TimeoutError,
// a *DeniedError, or the context's. While Consul does not answer, Wait retries.
func (b *Blocker) Wait(ctx context.Context, needs []Need, o Options, progress func([]State)) error {
	o.DNSOnly = o.DNSOnly || b.health == nil
	if err := o.Check(needs); err != nil {
		return err
	}
	if o.Tries > 0 {
		return b.poll(ctx, needs, o, progress)
	}
	board, stop, err := b.follow(ctx, needs, o.DNSOnly)
	if err != nil {
		return err
	}
	defer stop()
	deadline := never()
	if o.Timeout > 0 {
		deadline = time.NewTimer(o.Timeout)
	}
	defer deadline.Stop()
	stable := never()
	defer stable.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline.C:
			return &TimeoutError{States: board.states()}
		case <-stable.C:
		case <-board.changed.C():
			if progress != nil {
				progress(board.states())
			}
		}
		states := board.states()
		if denied(states, o.Any) {
			return &DeniedError{States: states}
		}
		at, ok := satisfiedFrom(states, o.Any)
		if !ok {
			stable.Stop()
			continue
		}
		left := time.Until(at.Add(o.Stable))
		if left <= 0 {
			return nil
		}
		stable.Reset(left)
	}
}

// Watch calls changed with the states of needs, now and after each change, until
// ctx ends; then it returns nil. Errors are ErrUsage.
func (b *Blocker) Watch(ctx context.Context, needs []Need, o Options, changed func([]State)) error {
	o.DNSOnly = o.DNSOnly || b.health == nil
	if err := o.Check(needs); err != nil {
		return err
	}
	board, stop, err := b.follow(ctx, needs, o.DNSOnly)
	if err != nil {
		return err
	}
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-board.changed.C():
			changed(board.states())
		}
	}
}

// follow starts a follower for each need; the returned function ends them.
func (b *Blocker) follow(ctx context.Context, needs []Need, dnsOnly bool) (*board, func(), error) {
	board := &board{all: make([]State, len(needs)), changed: concurrency.NewSignal()}
	followers := make([]*follower, len(needs))
	for i, n := range needs {
		board.all[i] = State{Need: n, Why: "no answer yet"}
		f, err := b.follower(n, dnsOnly, func(s State) { board.set(i, s) })
		if err != nil {
			return nil, nil, err
		}
		followers[i] = f
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for _, f := range followers {
		wg.Go(func() { f.run(ctx) })
	}
	return board, func() { cancel(); wg.Wait() }, nil
}

// board collects the states of the followers.
type board struct {
	mu      sync.Mutex
	all     []State
	changed concurrency.Signal
}

func (b *board) set(i int, s State) {
	b.mu.Lock()
	b.all[i] = s
	b.mu.Unlock()
	b.changed.Notify()
}

func (b *board) states() []State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.all)
}

// satisfiedFrom reports whether states are satisfied, and since when.
func satisfiedFrom(states []State, any bool) (since time.Time, ok bool) {
	for _, s := range states {
		switch {
		case any && s.Satisfied:
			if !ok || s.Since.Before(since) {
				since, ok = s.Since, true
			}
		case !any && !s.Satisfied:
			return time.Time{}, false
		case !any:
			ok = true
			if s.Since.After(since) {
				since = s.Since
			}
		}
	}
	return since, ok
}

// denied reports whether the wait cannot succeed because the token lacks rights.
func denied(states []State, any bool) bool {
	isDenied := func(s State) bool { return s.Denied }
	if any {
		return !slices.ContainsFunc(states, func(s State) bool { return !s.Denied })
	}
	return slices.ContainsFunc(states, isDenied)
}

// never returns a timer that is not running.
func never() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// poll queries, sleeps, and queries again, without a watch.
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
			break // failures after the end of ctx have no meaning
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
		if try >= o.Tries || concurrency.Sleep(ctx, o.TrySleep) != nil {
			break
		}
	}
	if err := context.Cause(ctx); err != nil && err != ErrTimedOut {
		return err
	}
	return &TimeoutError{States: states}
}

// once returns the current states.
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
