package orchestrator

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/jorc/jorc/internal/kv"
)

// TestNothingIsPlannedOnceRestored: from the moment at which a term knows that Consul's KV was restored it plans nothing more, also while
// it is still being written down that nothing is to be granted for a while, and in a round that has begun.
func TestNothingIsPlannedOnceRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &places{}
		if err := p.stands(t.Context()); err != nil {
			t.Fatalf("before: %v", err)
		}
		p.over.Store(true)
		open := &round{places: p}
		for name, plan := range map[string]func(context.Context, func(context.Context, *round) error) error{
			"a new round": p.plan,
			"grants in a round that has begun": func(ctx context.Context, do func(context.Context, *round) error) error {
				return open.grant(ctx, "stages", nil, nil, func(*kv.Txn) { _ = do(ctx, open) }, func(*kv.Txn) {})
			},
			"a transaction in a round that has begun": func(ctx context.Context, do func(context.Context, *round) error) error {
				return open.write(ctx, transaction{do: func(*kv.Txn) { _ = do(ctx, open) }})
			},
		} {
			ctx, end := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				ended <- plan(ctx, func(context.Context, *round) error {
					t.Errorf("%s: it is planned", name)
					return nil
				})
			}()
			synctest.Wait()
			select {
			case err := <-ended:
				t.Errorf("%s: the planner does not wait for the end of the term: %v", name, err)
			default:
			}
			end()
			synctest.Wait()
			select {
			case err := <-ended:
				if !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", name, err)
				}
			default:
				t.Errorf("%s: the planner outlives the term", name)
			}
		}
	})
}
