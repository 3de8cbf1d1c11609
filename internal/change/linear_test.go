package change_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
)

// place is the state of the sequential cluster: its ledger, and which orchestrator has taken the
// one place of the budget; empty: none.
type place struct {
	ledger uint64
	out    string
}

// offering is a read, or a transaction that swaps the ledger and takes or frees the place.
type offering struct {
	from place // as it was read; of a read: what was read
	to   string
	read bool
}

// offerOutcome is what became of it.
type offerOutcome struct{ done, unknown bool }

// budgeted is a cluster with a budget of one place: an offer that is carried out found the place as its
// orchestrator had read it, and one that is refused found another ledger.
var budgeted = porcupine.Model{
	Init: func() any { return place{} },
	Step: func(state, input, output any) (bool, any) {
		now, in, out := state.(place), input.(offering), output.(offerOutcome)
		next := place{now.ledger + 1, in.to}
		switch {
		case in.read:
			return in.from == now, now
		case out.unknown && in.from == now: // porcupine tries also to leave it to the end
			return true, next
		case out.unknown:
			return true, now
		case out.done:
			return in.from == now, next
		}
		return in.from.ledger != now.ledger, now
	},
}

// TestLedgerIsLinearizable lets two orchestrators, each of which loses writes and answers, take and
// free the one place of a budget: each transaction swaps the ledger and compares nothing else, and
// the place is never taken twice.
func TestLedgerIsLinearizable(t *testing.T) {
	t.Parallel()
	server := consultest.Start(t)
	begin := time.Now()
	var mu sync.Mutex
	var history []porcupine.Operation
	count := map[offerOutcome]int{}
	ctx := t.Context()
	running := new(sync.WaitGroup)
	enough := make(chan struct{}) // no request is cancelled: what became of it would not be known
	stop := sync.OnceFunc(func() { close(enough); running.Wait() })
	defer stop()
	for i, name := range []string{"a", "b"} {
		way := server.Proxy()
		way.Do(consultest.LoseWrites())
		store := kv.New(way.Client(), "jorc/prod")
		ledgers, outs := change.NewLedgers(store), kv.NewText(store, "test/out")
		running.Go(func() {
			id := i
			add := func(in offering, call time.Time, out offerOutcome) {
				mu.Lock()
				defer mu.Unlock()
				end := time.Since(begin).Nanoseconds()
				if out.unknown {
					end = math.MaxInt64
				}
				history = append(history, porcupine.Operation{ClientId: id, Input: in, Call: call.Sub(begin).Nanoseconds(), Output: out, Return: end})
				count[out]++
				if out.unknown { // porcupine's clients do one thing at a time
					id += 2
				}
			}
			for {
				select {
				case <-enough:
					return
				default:
				}
				call := time.Now()
				r, err := store.Consistent().Txn().Get(cluster.KeyGrantLedger).Get(outs.Key()).Commit(ctx)
				if err != nil {
					continue // a read that failed says nothing
				}
				ledger, err := ledgers.From(r)
				out, outErr := outs.From(r)
				if err = errors.Join(err, outErr); err != nil {
					t.Error(err)
					return
				}
				now := place{ledger.Value.Seq, out.Value}
				add(offering{from: now, read: true}, call, offerOutcome{done: true})
				to := name
				switch now.out {
				case "":
				case name:
					to = ""
				default:
					continue // no place is left
				}
				call = time.Now()
				txn := store.Txn()
				ledgers.Swap(txn, ledger)
				outs.SetIn(txn, to)
				switch _, err = txn.Commit(ctx); {
				case err == nil:
					add(offering{from: now, to: to}, call, offerOutcome{done: true})
				case errors.Is(err, consul.ErrOutcomeUnknown):
					add(offering{from: now, to: to}, call, offerOutcome{unknown: true})
				case errors.Is(err, kv.ErrConflict):
					add(offering{from: now, to: to}, call, offerOutcome{})
				default:
					t.Errorf("an offer: %v", err)
					return
				}
			}
		})
	}
	consultest.Eventually(t, "offers of each outcome", func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if len(history) < 300 || len(count) < 3 {
			return errors.New("too few operations yet")
		}
		return nil
	})
	stop()
	if result, _ := porcupine.CheckOperationsVerbose(budgeted, history, time.Minute); result != porcupine.Ok {
		t.Errorf("a history of %d operations is %s", len(history), result)
	}
}
