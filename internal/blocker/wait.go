package blocker

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Wait returns nil once all needs are satisfied, or one with Options.Any.
// progress, which may be nil, hears of every change in the states, which are
// in the order of needs; it must not keep the slice. Errors are ErrUsage, a
// *TimeoutError, a *DeniedError, or the context's. While Consul is absent Wait
// keeps trying.
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
		case <-board.changed:
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

// Watch tells changed the states of needs, now and whenever one of them
// changes, until ctx ends; then it returns nil. Other errors are ErrUsage.
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
		case <-board.changed:
			changed(board.states())
		}
	}
}

// follow starts a follower for each need; stop ends them.
func (b *Blocker) follow(ctx context.Context, needs []Need, dnsOnly bool) (*board, func(), error) {
	board := &board{all: make([]State, len(needs)), changed: make(chan struct{}, 1)}
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

// board is where followers write their states.
type board struct {
	mu      sync.Mutex
	all     []State
	changed chan struct{} // holds one signal
}

func (b *board) set(i int, s State) {
	b.mu.Lock()
	b.all[i] = s
	b.mu.Unlock()
	select {
	case b.changed <- struct{}{}:
	default: // the signal before it was not taken yet
	}
}

func (b *board) states() []State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.all)
}

// satisfiedFrom tells whether states are satisfied, and since when.
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

// denied tells whether there is nothing left to wait for.
func denied(states []State, any bool) bool {
	isDenied := func(s State) bool { return s.Denied }
	if any {
		return !slices.ContainsFunc(states, func(s State) bool { return !s.Denied })
	}
	return slices.ContainsFunc(states, isDenied)
}

// never is a timer that is not running.
func never() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}
