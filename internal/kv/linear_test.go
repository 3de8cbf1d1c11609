package kv_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
)

// register is the sequential document: reads and swaps of one text. A swap's
// outcome may be unknown; it is then taken to return at the end of time.
var register = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		now, in, out := state.(string), input.(swapInput), output.(swapOutput)
		switch {
		case in.to == "":
			return out.value == now, now
		case out.unknown && in.from == now: // porcupine tries also to leave it to the end
			return true, in.to
		case out.unknown:
			return true, now
		case out.swapped:
			return in.from == now, in.to
		}
		return in.from != now, now
	},
}

type swapInput struct{ from, to string } // to is empty for a read

type swapOutput struct {
	value            string
	swapped, unknown bool
}

// history collects what clients did and when.
type history struct {
	mu    sync.Mutex
	begin time.Time
	ops   []porcupine.Operation
}

func (h *history) add(client int, in swapInput, call time.Time, out swapOutput) {
	h.mu.Lock()
	defer h.mu.Unlock()
	end := time.Since(h.begin).Nanoseconds()
	if out.unknown {
		end = math.MaxInt64
	}
	h.ops = append(h.ops, porcupine.Operation{
		ClientId: client, Input: in, Call: call.Sub(h.begin).Nanoseconds(), Output: out, Return: end,
	})
}

func (h *history) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ops)
}

// TestHistoriesAreLinearizable lets clients of three servers read and swap one
// document while the servers are killed and frozen in turn.
func TestHistoriesAreLinearizable(t *testing.T) {
	t.Parallel()
	servers := consultest.StartCluster(t, 3)
	h := &history{begin: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients sync.WaitGroup
	for i := range 6 {
		doc := kv.NewText(kv.New(servers[i%3].Client(), "p").Consistent(), "doc")
		clients.Go(func() {
			// A client whose swap is unknown goes on as another one: porcupine's clients do one thing at a time.
			for n, id := 0, i; ctx.Err() == nil; n++ {
				if readAndSwap(ctx, t, h, doc, id, fmt.Sprintf("%d-%d", i, n)) {
					id += 6
				}
			}
		})
	}
	more := func(what string) {
		before := h.len()
		consultest.Eventually(t, what, func(context.Context) error {
			if h.len() < before+20 {
				return errors.New("too few operations yet")
			}
			return nil
		})
	}
	more("a start")
	for _, s := range servers {
		s.Freeze()
		more("progress while " + s.Node + " is frozen")
		s.Thaw()
		s.Kill()
		more("progress while " + s.Node + " is dead")
		s.RestartNoWait()
		more("progress after its return")
		s.WaitLeader()
	}
	cancel()
	clients.Wait()
	result, _ := porcupine.CheckOperationsVerbose(register, h.ops, 30*time.Second)
	if result != porcupine.Ok {
		t.Errorf("a history of %d operations is %s", len(h.ops), result)
	}
	unknown := 0
	for _, op := range h.ops {
		if op.Output.(swapOutput).unknown {
			unknown++
		}
	}
	t.Logf("%d operations, of which %d of unknown outcome", len(h.ops), unknown)
}

// readAndSwap does both once; unknown tells that the swap's outcome is.
func readAndSwap(ctx context.Context, t *testing.T, h *history, doc kv.Doc[string], client int, to string) (unknown bool) {
	call := time.Now()
	e, err := get(ctx, doc)
	if err != nil {
		return false // a read that failed says nothing
	}
	h.add(client, swapInput{}, call, swapOutput{value: e.Value})
	in := swapInput{from: e.Value, to: to}
	call = time.Now()
	short, done := context.WithTimeout(ctx, 2*time.Second)
	defer done()
	_, err = doc.CompareAndSwap(short, e, to)
	switch {
	case err == nil:
		h.add(client, in, call, swapOutput{swapped: true})
	case errors.Is(err, kv.ErrConflict):
		h.add(client, in, call, swapOutput{})
	case errors.Is(err, consul.ErrOutcomeUnknown):
		h.add(client, in, call, swapOutput{unknown: true})
		return true
	case !errors.Is(err, consul.ErrUnreachable) && ctx.Err() == nil:
		t.Errorf("CompareAndSwap = %v", err)
	}
	return false
}

func get(ctx context.Context, doc kv.Doc[string]) (kv.Entry[string], error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return doc.Get(ctx)
}
