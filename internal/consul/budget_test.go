package consul

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
)

func TestBudgetGrantsItsPlacesOnly(t *testing.T) {
	t.Parallel()
	b := newBudget(2)
	ctx, wait, release, err := b.acquire(t.Context(), time.Minute)
	if err != nil || wait < 50*time.Second || wait > time.Minute {
		t.Fatalf("acquire = wait %s, %v; want almost a minute", wait, err)
	}
	_, _, release2, err := b.acquire(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	full, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, _, err := b.acquire(full, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("acquire without a place = %v; want the context's error", err)
	}
	leave := []func(){b.join(), b.join()}
	if ctx.Err() != nil {
		t.Error("a wait was ended though there is a place for every loop")
	}
	leave = append(leave, b.join())
	if ctx.Err() == nil {
		t.Error("a long wait continues although the loops are more than the places")
	}
	release()
	ctx, wait, release, _ = b.acquire(t.Context(), time.Minute)
	if wait != shortWait {
		t.Errorf("wait with more loops than places = %s; want %s", wait, shortWait)
	}
	release()
	release2()
	for _, l := range leave {
		l()
	}
	if ctx.Err() != nil || b.watches() != 0 || len(b.places) != 0 || len(b.waiting) != 0 {
		t.Errorf("left over: %d loops, %d places, %d waits", b.watches(), len(b.places), len(b.waiting))
	}
}

func TestBreakerLetsOneProbeThrough(t *testing.T) {
	t.Parallel()
	g := newBreaker()
	if how, err := g.enter(t.Context(), false); how != entered || err != nil {
		t.Fatalf("enter = %v, %v", how, err)
	}
	g.trip()
	g.trip()
	if how, err := g.enter(t.Context(), false); how != asProbe || err != nil || g.tripCount() != 1 {
		t.Fatalf("enter = %v, %v, tripped %d times; want a probe, once", how, err, g.tripCount())
	}
	var wg sync.WaitGroup
	passed := make(chan int, 10)
	for i := range 10 {
		wg.Go(func() {
			if how, err := g.enter(t.Context(), i%2 > 0); how == asProbe || err != nil {
				t.Errorf("enter = %v, %v; want no second probe", how, err)
				return
			}
			passed <- i
		})
	}
	select {
	case i := <-passed:
		t.Errorf("%d passed a tripped breaker during a probe", i)
	default:
	}
	g.reset()
	g.probed()
	wg.Wait()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	g.trip()
	if _, err := g.enter(ended, false); err == nil {
		// this call may have been the probe, which does not wait
		g.probed()
	}
}

func TestPausesGrowToABound(t *testing.T) {
	t.Parallel()
	status := func(code int, body string) error {
		return classify(t.Context(), "read", "k", false, api.StatusError{Code: code, Body: body})
	}
	for name, tt := range map[string]struct {
		err   error
		first time.Duration
		last  time.Duration
	}{
		"429":          {status(http.StatusTooManyRequests, ""), 100 * time.Millisecond, 10 * time.Second},
		"denied":       {status(http.StatusForbidden, ""), 100 * time.Millisecond, 5 * time.Second},
		"500":          {status(http.StatusInternalServerError, "no path to datacenter"), 100 * time.Millisecond, 2 * time.Second},
		"no leader":    {status(http.StatusInternalServerError, "No cluster leader"), 0, time.Second},
		"cut":          {classify(t.Context(), "read", "k", false, errors.New("unexpected EOF")), 0, time.Second},
		"refused":      {status(http.StatusInternalServerError, "invalid key name"), 100 * time.Millisecond, time.Minute},
		"other errors": {fmt.Errorf("x"), 100 * time.Millisecond, 5 * time.Second},
	} {
		w := watch[int]{retry: newRetry()}
		pause := w.nextPause(tt.err)
		if pause < tt.first*3/4 || pause > tt.first*5/4 {
			t.Errorf("%s: first pause = %s; want about %s", name, pause, tt.first)
		}
		for range 20 {
			pause = w.nextPause(tt.err)
			if pause <= 0 || pause > tt.last {
				t.Errorf("%s: pause = %s; want at most %s", name, pause, tt.last)
			}
		}
		if pause < tt.last/2 {
			t.Errorf("%s: last pause = %s; want at least half of %s", name, pause, tt.last)
		}
	}
}

func TestWaitsGrowWithTheLoop(t *testing.T) {
	t.Parallel()
	for age, want := range map[time.Duration]time.Duration{
		0: firstWait, time.Second: firstWait, 10 * time.Second: 10 * time.Second, time.Hour: longWait,
	} {
		if got := waitAt(age); got != want {
			t.Errorf("waitAt(%s) = %s; want %s", age, got, want)
		}
	}
}

// TestIdlePause: a watch whose queries return immediately with known content
// queries less and less often, until the content changes or Consul blocks. A query after a pause is followed by one at once.
func TestIdlePause(t *testing.T) {
	t.Parallel()
	w := watch[int]{index: 1, content: 7, took: 10 * time.Millisecond}
	for i, want := range []time.Duration{320, 0, 2560, 16000, 0, 16000, 16000, 16000, 16000, 0, 16000} {
		w.idlePause = w.nextIdlePause(Meta{Content: 7}, false)
		if want *= time.Millisecond; w.idlePause != want {
			t.Errorf("pause %d = %s, want %s", i+1, w.idlePause, want)
		}
	}
	bound := w
	bound.query.MaxPause = time.Second
	if got := bound.nextIdlePause(Meta{Content: 7}, false); got != time.Second {
		t.Errorf("with a bound: pause = %s, want %s", got, time.Second)
	}
	fresh := w
	fresh.idlePause = 0
	if got := fresh.nextIdlePause(Meta{Content: 8}, false); got != w.level {
		t.Errorf("new content at once: pause = %s, want still %s", got, w.level)
	}
	first, waited, blocked, long := w, w, w, w
	first.index, waited.waited, blocked.took, long.took = 0, true, time.Minute, time.Minute
	for what, got := range map[string]time.Duration{
		"content waited for":       blocked.nextIdlePause(Meta{Content: 8}, false),
		"known content, but later": long.nextIdlePause(Meta{Content: 7}, false),
		"unknown content":          w.nextIdlePause(Meta{}, false),
		"a lower index":            w.nextIdlePause(Meta{Content: 7}, true),
		"a first query":            first.nextIdlePause(Meta{Content: 7}, false),
		"a wait that ended":        waited.nextIdlePause(Meta{Content: 7}, false),
	} {
		if got != 0 {
			t.Errorf("%s: pause = %s, want none", what, got)
		}
	}
}

// TestWatchBesideOthers: a watch of content whose index is that of all content, and that only its own changes wake, as Consul's checks of a node
// are, learns of a change at once, with few queries, while others change less often than Consul answers, also after they changed more often; and asks seldom while they do.
func TestWatchBesideOthers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		every, within time.Duration // others change; a change is seen
		most          uint64        // queries in a minute
	}{
		"some changes":          {every: 200 * time.Millisecond, within: 10 * time.Millisecond, most: 14},
		"a change in an answer": {every: time.Millisecond, within: maxIdlePause + time.Second, most: 16},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const answers, busy = 2 * time.Millisecond, time.Second
				var (
					queries, own atomic.Uint64
					begin, woken = time.Now(), make(chan struct{})
				)
				index := func() uint64 { return 2 + own.Load() + uint64(time.Since(begin)/tt.every) }
				source := func(ctx context.Context, q Query) (uint64, Meta, error) {
					queries.Add(1)
					if q.Index == index() {
						select {
						case <-woken:
						case <-time.After(q.Wait):
						case <-ctx.Done():
							return 0, Meta{}, context.Cause(ctx)
						}
					}
					v := own.Load()
					meta := Meta{Index: index(), Content: 1 + v}
					if time.Since(begin) < busy { // something changes with each answer
						return v, meta, concurrency.Sleep(ctx, tt.every+answers)
					}
					return v, meta, concurrency.Sleep(ctx, answers)
				}
				c, err := New(config.Consul{Address: "127.0.0.1:1"})
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				seen, ended := make(chan time.Duration, 1), make(chan struct{})
				go func() {
					defer close(ended)
					_ = Watch(ctx, c, Query{}, source, func(u Update[uint64]) {
						if u.Value > 0 {
							seen <- time.Since(begin.Add(time.Minute))
						}
					}) // ends with ctx
				}()
				time.Sleep(time.Minute)
				asked := queries.Load()
				own.Store(1)
				close(woken)
				if late := <-seen; late > tt.within {
					t.Errorf("the change was seen after %s, want at most %s", late, tt.within)
				}
				if asked > tt.most {
					t.Errorf("%d queries in a minute, want at most %d", asked, tt.most)
				}
				stop()
				<-ended
			})
		})
	}
}
