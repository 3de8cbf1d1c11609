package slots_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/slots"
)

const slotsOfSemaphore = 2

// semaphore is the sequential group: the state is how many hold a slot.
var semaphore = porcupine.Model{
	Init: func() any { return 0 },
	Step: func(state, input, _ any) (bool, any) {
		if input.(string) == "acquire" {
			return state.(int) < slotsOfSemaphore, state.(int) + 1
		}
		return state.(int) > 0, state.(int) - 1
	},
}

// history collects what claims did and when.
type history struct {
	mu    sync.Mutex
	begin time.Time
	ops   []porcupine.Operation
	lost  int
}

// add notes an operation that ended now; without an end it may take effect at
// any time from its call on.
func (h *history) add(client int, what string, call time.Time, ended bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	end := int64(math.MaxInt64)
	if ended {
		end = time.Since(h.begin).Nanoseconds()
	} else {
		h.lost++
	}
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: what, Call: call.Sub(h.begin).Nanoseconds(), Return: end})
}

func (h *history) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ops)
}

// TestHistoriesAreThoseOfASemaphore lets clients of three servers take and give
// back slots while the servers are killed and frozen in turn. A claim that is
// lost counts as held until its holder was told.
func TestHistoriesAreThoseOfASemaphore(t *testing.T) {
	t.Parallel()
	servers := consultest.StartCluster(t, 3, manyHosts())
	h := &history{begin: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients sync.WaitGroup
	const all = 9
	for i := range all {
		s := host(t, servers[i%3].Client())
		clients.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				// A release without an end leaves its client busy for good, so each pass is a client.
				h.pass(ctx, t, s, i+all*n)
			}
		})
	}
	more := func(what string) {
		before := h.len()
		consultest.Eventually(t, what, func(context.Context) error {
			if h.len() < before+30 {
				return errors.New("too few operations yet")
			}
			return nil
		})
	}
	more("a start")
	for _, srv := range servers[:2] {
		srv.Freeze()
		more("progress while " + srv.Node + " is frozen")
		srv.Thaw()
		srv.Kill()
		more("progress while " + srv.Node + " is dead")
		srv.RestartNoWait()
		srv.WaitLeader()
	}
	more("progress after their return")
	cancel()
	clients.Wait()
	if result, _ := porcupine.CheckOperationsVerbose(semaphore, h.ops, 30*time.Second); result != porcupine.Ok {
		t.Errorf("a history of %d operations is %s", len(h.ops), result)
	}
	t.Logf("%d operations, of which %d without an end", len(h.ops), h.lost)
}

// pass takes a slot, holds it for a while, and gives it back.
func (h *history) pass(ctx context.Context, t *testing.T, s *slots.Slots, client int) {
	call := time.Now()
	c, err := s.Acquire(ctx, "g", slotsOfSemaphore, slots.Holder{Node: "n", Reason: fmt.Sprint(client)})
	if err != nil {
		if ctx.Err() == nil {
			t.Errorf("Acquire = %v", err)
		}
		return
	}
	h.add(client, "acquire", call, true)
	short, done := context.WithTimeout(c.Context(), 20*time.Millisecond)
	<-short.Done()
	done()
	call = time.Now()
	err = c.Release(context.WithoutCancel(ctx))
	h.add(client, "release", call, err == nil)
}
