package concurrency

import "context"

// Exclusive is a mutex whose holder may take long, for example because it asks Consul: who waits for it can give
// up. Make one with NewExclusive.
type Exclusive struct{ free chan struct{} }

// NewExclusive returns an Exclusive that is free.
func NewExclusive() Exclusive {
	free := make(chan struct{}, 1)
	free <- struct{}{}
	return Exclusive{free}
}

// Lock waits until the mutex is free and takes it.
func (e Exclusive) Lock() { <-e.free }

// LockContext is Lock that returns the cause of ctx's end when that comes first.
func (e Exclusive) LockContext(ctx context.Context) error {
	select {
	case <-e.free:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Unlock gives the mutex back.
func (e Exclusive) Unlock() { e.free <- struct{}{} }
