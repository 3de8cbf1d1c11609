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
// lost counts as held until its holder was told. Patient claims last, so their
// clients are those of the server that is always there.
func TestHistoriesAreThoseOfASemaphore(t *testing.T) {
	t.Parallel()
	servers := consultest.StartCluster(t, 3, manyHosts())
	mustRelease(t, mustAcquire(t, host(t, servers[0].Client()), "patient", slotsOfSemaphore, holder("limit")))
	tied, patient := &history{begin: time.Now()}, &history{begin: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients sync.WaitGroup
	for i := range 6 {
		s, last := host(t, servers[i%3].Client()), host(t, servers[2].Client())
		clients.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				// A release without an end leaves its client busy for good, so each pass is a client.
				tied.pass(ctx, t, s, i+6*n, slotsOfSemaphore, slots.Holder{})
			}
		})
		clients.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				patient.pass(ctx, t, last, i+6*n, slots.Keep, slots.Holder{Durable: true, Patient: true})
			}
		})
	}
	more := func(what string) {
		before := []int{tied.len(), patient.len()}
		consultest.Eventually(t, what, func(context.Context) error {
			if tied.len() < before[0]+20 || patient.len() < before[1]+20 {
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
	for what, h := range map[string]*history{"tied": tied, "patient": patient} {
		result, _ := porcupine.CheckOperationsVerbose(semaphore, h.ops, 30*time.Second)
		if result != porcupine.Ok {
			t.Errorf("%s claims: a history of %d operations is %s", what, len(h.ops), result)
		}
		t.Logf("%s claims: %d operations, of which %d without an end", what, len(h.ops), h.lost)
	}
}

// pass takes a slot, sees something of the world, and gives it back.
func (h *history) pass(ctx context.Context, t *testing.T, s *slots.Slots, client, limit int, who slots.Holder) {
	call := time.Now()
	who.Node, who.ID = "n", fmt.Sprint(client)
	group := "g"
	if who.Patient {
		group = "patient"
	}
	c, err := s.Acquire(ctx, group, limit, who)
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
