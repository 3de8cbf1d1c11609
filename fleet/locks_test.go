//go:build fleet

package fleet_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/fleettest"
)

// TestLocksOnSeveralHosts: hosts hold one of two slots by `cluster lock`,
// and while hosts are cut off and Consul's leader is killed, two never become
// three: a command whose host is cut off has ended before the next begins.
func TestLocksOnSeveralHosts(t *testing.T) {
	t.Parallel()
	const slots = 2
	f := usual(t, "", "")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	var all []fleettest.Hold
	passed := 0
	add := func(holds []fleettest.Hold) {
		mu.Lock()
		defer mu.Unlock()
		passed++
		all = append(all, holds...)
	}
	var hosts sync.WaitGroup
	for _, h := range f.Hosts {
		hosts.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				file := fmt.Sprintf("lock-%d", n)
				asked := time.Now()
				// One pass in three is long enough to be cut off in.
				d := []string{"20ms", "200ms", "2s"}[n%3]
				h.Jorc("cluster", "lock", "work", "--max", fmt.Sprint(slots), "--timeout", "5m", "--", fleettest.Self(), "role:hold", h.Path(file), d)
				mine := holds(t, h, file)
				for i := range mine {
					mine[i].Asked = asked
				}
				add(mine)
			}
		})
	}
	more := func(what string, n int) {
		t.Helper()
		mu.Lock()
		want := passed + n
		mu.Unlock()
		f.Eventually(what, func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			if passed < want {
				return fmt.Errorf("%d passes, want %d", passed, want)
			}
			return nil
		})
	}
	more("a start", 10)
	for _, name := range []string{"web-1", "db-1"} {
		h := f.Host(name)
		f.Eventually(h.Name+" to hold a slot", func(context.Context) error {
			if got := f.Observer.Keys().Holders("work"); !contains(got, h.Name) {
				return fmt.Errorf("%v do", got)
			}
			return nil
		})
		f.CutOff(h.Machine)
		more("progress while "+h.Name+" is cut off", 10)
		f.Heal()
		more("progress after its return", 10)
	}
	old := f.Leader()
	old.Kill()
	more("progress while Consul's leader is dead", 10)
	old.Start()
	more("progress after its return", 5)
	cancel()
	hosts.Wait()
	fleettest.CheckSemaphore(t, slots, all)
}

func contains(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}
