package kv_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
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

// TestHistoriesAreLinearizable lets clients of three servers read, swap and
// update one document while the servers are killed and frozen in turn. Every
// other client loses writes and their answers.
func TestHistoriesAreLinearizable(t *testing.T) {
	t.Parallel()
	servers := consultest.StartCluster(t, 3)
	h := &history{begin: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients sync.WaitGroup
	for i := range 6 {
		client := servers[i%3].Client()
		if i%2 == 1 {
			way := servers[i%3].Proxy()
			way.Do(consultest.LoseWrites())
			client = way.Client()
		}
		doc := kv.NewText(kv.New(client, "p").Consistent(), "doc")
		clients.Go(func() {
			// A client whose swap is unknown continues as another client: porcupine's clients do one thing at a time.
			for n, id := 0, i; ctx.Err() == nil; n++ {
				if readAndWrite(ctx, t, h, doc, id, n) {
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
	result, _ := porcupine.CheckOperationsVerbose(register, h.ops, 0) // however long that takes
	if result != porcupine.Ok {
		t.Errorf("a history of %d operations is %s", len(h.ops), result)
	}
	unknown := 0
	for _, op := range h.ops {
		if op.Output.(swapOutput).unknown {
			unknown++
		}
	}
	if unknown == 0 {
		t.Errorf("none of %d operations is of unknown outcome, though answers were lost", len(h.ops))
	}
}

// readAndWrite reads and then swaps or updates; unknown tells that the write's
// outcome is.
func readAndWrite(ctx context.Context, t *testing.T, h *history, doc kv.Doc[string], client, n int) (unknown bool) {
	call := time.Now()
	e, err := get(ctx, doc)
	if err != nil {
		return false // a read that failed says nothing
	}
	h.add(client, swapInput{}, call, swapOutput{value: e.Value})
	in := swapInput{from: e.Value, to: fmt.Sprintf("%d-%d", client, n)}
	call = time.Now()
	short, done := context.WithTimeout(ctx, 2*time.Second)
	defer done()
	if n%2 == 0 {
		_, err = doc.CompareAndSwap(short, e, in.to)
	} else {
		_, err = doc.Update(short, func(old kv.Entry[string]) (string, bool, error) {
			in.from = old.Value
			return in.to, true, nil
		})
	}
	switch {
	case err == nil:
		h.add(client, in, call, swapOutput{swapped: true})
	case errors.Is(err, kv.ErrConflict):
		h.add(client, in, call, swapOutput{})
	case errors.Is(err, consul.ErrOutcomeUnknown):
		h.add(client, in, call, swapOutput{unknown: true})
		return true
	case !errors.Is(err, consul.ErrUnreachable) && short.Err() == nil:
		t.Errorf("write = %v", err)
	}
	return false
}

func get(ctx context.Context, doc kv.Doc[string]) (kv.Entry[string], error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return doc.Get(ctx)
}

// TestConsistentReads: all reads of a consistent store ask for it, so that no
// deposed leader can answer. It takes a partition between servers to notice
// otherwise.
func TestConsistentReads(t *testing.T) {
	t.Parallel()
	s, srv := newStoreAlone(t)
	mustSwap(t, kv.NewText(s, "a/doc"), kv.Entry[string]{}, "x")
	way := srv.Proxy()
	var all, consistent atomic.Int64
	way.Do(func(r *http.Request) consultest.Fault {
		all.Add(1)
		if r.URL.Query().Has("consistent") {
			consistent.Add(1)
		}
		return consultest.Fault{}
	})
	plain := kv.New(way.Client(), "jorc/default")
	for _, test := range []struct {
		store *kv.Store
		want  int64
	}{{plain, 0}, {plain.Consistent(), 4}} {
		all.Store(0)
		consistent.Store(0)
		mustGet(t, kv.NewText(test.store, "a/doc"))
		if _, err := kv.NewTextTree(test.store, "a/").List(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := kv.NewTextTree(test.store, "a/").Names(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := test.store.Txn().Get("a/doc").Get("b").Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if all.Load() != 4 || consistent.Load() != test.want {
			t.Errorf("%d of %d reads are consistent; want %d of 4", consistent.Load(), all.Load(), test.want)
		}
	}
}
