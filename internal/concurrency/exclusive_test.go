package concurrency_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/jorc/jorc/internal/concurrency"
)

// TestExclusive: one holds it at a time, and the end of a context ends a wait for it.
func TestExclusive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := concurrency.NewExclusive()
		e.Lock()
		ctx, cancel := context.WithCancelCause(t.Context())
		given := make(chan error, 1)
		go func() { given <- e.LockContext(ctx) }()
		synctest.Wait()
		why := errors.New("no longer wanted")
		cancel(why)
		if err := <-given; !errors.Is(err, why) {
			t.Errorf("LockContext = %v, want the cause of the end", err)
		}
		go func() { given <- e.LockContext(t.Context()) }()
		synctest.Wait()
		e.Unlock()
		if err := <-given; err != nil {
			t.Errorf("LockContext = %v, want none once it is free", err)
		}
		e.Unlock()
		e.Lock()
	})
}
