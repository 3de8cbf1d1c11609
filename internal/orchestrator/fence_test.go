package orchestrator_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/orchestrator"
)

// TestFenced: who loses the lock while it decides writes nothing more, neither by
// itself nor with what it decided, also before it has noticed.
func TestFenced(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	wrote, epoch := make(chan error, 1), make(chan uint64, 1)
	lost := false
	d := &recorder{name: "late", decide: func(ctx context.Context, in orchestrator.Input) ([]orchestrator.Decision, error) {
		if lost {
			return nil, nil
		}
		lost = true
		ctx = context.WithoutCancel(ctx) // it may end as soon as the lock is lost
		lock, _, err := s.client.KVGet(ctx, s.store.Path(cluster.OrchestratorLock), consul.Query{})
		if err == nil {
			epoch <- lock.ModifyIndex
			err = s.client.SessionDestroy(ctx, lock.Session)
		}
		if err != nil {
			return nil, err
		}
		_, err = in.Store.Txn().Set("stray/own", []byte("x")).Commit(ctx)
		wrote <- err
		decided := []orchestrator.Decision{{Kind: "stray", Text: "too late"}}
		return nil, in.Record(ctx, decided, func(t *kv.Txn) { t.Set("stray/decided", []byte("x")) })
	}}
	o := quick(s.client)
	o.Deciders = []orchestrator.Decider{d}
	orch, _ := s.start(o)
	first := <-epoch
	if err := <-wrote; !errors.Is(err, kv.ErrLockLost) {
		t.Errorf("a write without the lock: %v, want that the lock is lost", err)
	}
	s.eventually("the lock to be held again", func() error {
		if st := orch.Status(); !st.Active || st.Epoch <= first || st.Last == nil || st.Last.Epoch != st.Epoch {
			return errEventsPending
		}
		return nil
	})
	stray, err := kv.NewTextTree(s.store, "stray/").Names(t.Context())
	s.must(nil, err)
	if len(stray) > 0 {
		t.Errorf("written without the lock: %v", stray)
	}
	for _, e := range s.events() {
		if e.Kind == "stray" {
			t.Errorf("journalled without the lock: %+v", e)
		}
	}
}
