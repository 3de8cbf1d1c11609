package cluster

import (
	"context"
	"errors"

	"github.com/jorc/jorc/internal/kv"
)

// Orchestrator tells who orchestrates the cluster whose store is s; held is false
// when nobody does, also when something that is no orchestrator holds the lock.
// It returns kv.ErrNewer, and that it is held, when a newer jorc does; or
// consul.ErrDenied or consul.ErrUnreachable.
func Orchestrator(ctx context.Context, s *kv.Store) (h kv.Holder, held bool, err error) {
	h, held, err = s.Holder(ctx, OrchestratorLock)
	if errors.Is(err, kv.ErrDamaged) {
		return kv.Holder{}, false, nil
	}
	return h, held, err
}

// Orchestrated tells whether somebody orchestrates the cluster whose store is s:
// without, no run begins and no policy goes on. It returns consul.ErrDenied or
// consul.ErrUnreachable.
func Orchestrated(ctx context.Context, s *kv.Store) (bool, error) {
	_, held, err := Orchestrator(ctx, s)
	if errors.Is(err, kv.ErrNewer) {
		err = nil
	}
	return held, err
}
