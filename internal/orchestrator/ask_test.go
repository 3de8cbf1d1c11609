package orchestrator_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/orchestrator"
)

// TestAskNobodyLeft: when the lock is lost for good the request ends.
func TestAskNobodyLeft(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	held, err := s.store.Lock(t.Context(), cluster.OrchestratorLock, kv.LeaseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error)
	go func() {
		_, err := orchestrator.AskFor(t.Context(), s.store, "me", 200*time.Millisecond)
		got <- err
	}()
	s.eventually("the request", func() error {
		p, _, err := s.client.KVGet(t.Context(), s.store.Path("orchestrate/next"), consul.Query{})
		if err == nil && p == nil {
			err = errEventsPending
		}
		return err
	})
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-got; !errors.Is(err, orchestrator.ErrNoOrchestrator) {
		t.Errorf("Ask = %v", err)
	}
}
