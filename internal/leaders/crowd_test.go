package leaders_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/leaders"
	"github.com/jorc/jorc/internal/profile"
)

// TestElectionOfMany: when the elector of a large cluster is gone without a word, few of the
// others try to take its place, also while Consul still refuses the lock to all. Each
// attempt costs a session, which Consul's servers write three times. The same holds when
// Consul is so busy that all would try before the first has the lock.
func TestElectionOfMany(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ spread, answer time.Duration }{
		"idle": {2 * time.Second, 0}, "busy": {200 * time.Millisecond, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			electionOfMany(t, test.spread, test.answer)
		})
	}
}

func electionOfMany(t *testing.T, spread, answer time.Duration) {
	c, s := clustertest.Initialized(t)
	const electors = 40
	g := &clustertest.Gateway{}
	var sessions, reads atomic.Int64
	g.Asked = func(path string) {
		time.Sleep(answer) // Consul is as busy
		switch path {
		case "/v1/session/create":
			sessions.Add(1)
		case "/v1/kv/jorc/prod/" + cluster.KeyElection:
			reads.Add(1)
		}
	}
	client := g.Client(t, s)
	held, err := c.Store().Lock(t.Context(), cluster.KeyElection, kv.LeaseOptions{TTL: 10 * time.Second, LockDelay: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	for range electors {
		e := leaders.NewElection(fleet.New(client, "jorc", "prod"), leaders.ElectionOptions{Node: "many", Spread: spread})
		running.Go(func() { _ = e.Run(ctx) })
	}
	consultest.Eventually(t, "all electors wait", func(context.Context) error {
		if reads.Load() < 2*electors { // each has read that the lock is held, and blocks
			return errors.New("some do not")
		}
		return nil
	})
	if err := s.Client().SessionDestroy(t.Context(), held.Session()); err != nil {
		t.Fatal(err)
	}
	consultest.Eventually(t, "another elector", func(ctx context.Context) error {
		h, is, err := c.Store().Holder(ctx, cluster.KeyElection)
		if err == nil && (!is || h.Node != "many") {
			err = errors.New("none has the lock")
		}
		return err
	})
	if n := sessions.Load(); n < 1 || n > electors/4 {
		t.Errorf("%d of %d electors tried to take the lock; want a few", n, electors)
	}
}

// TestElectionAfterAnOutage: Consul was away for this long that the lock of the election is free. Few electors ask for it
// before one of them has it; the others would ask again then.
func TestElectionAfterAnOutage(t *testing.T) {
	t.Parallel()
	c, s := clustertest.Initialized(t)
	const electors, spread = 40, 10 * time.Second // of which the turns take 16: long beside what a crowded machine needs to take the lock
	held, err := c.Store().Lock(t.Context(), cluster.KeyElection, kv.LeaseOptions{LockDelay: -1})
	if err != nil {
		t.Fatal(err)
	}
	p := s.Proxy()
	path := "/v1/kv/" + c.Store().Path(cluster.KeyElection)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	for range electors {
		client := p.Client()
		e := leaders.NewElection(fleet.New(client, "jorc", "prod"), leaders.ElectionOptions{Node: "many", Spread: spread})
		running.Go(func() { _ = e.Run(ctx) })
		running.Go(func() { // what else an agent watches
			_ = fleet.New(client, "jorc", "prod").WatchProfile(ctx, func(kv.Update[profile.Document]) {})
		})
	}
	waiting := func(what string, ok func(n int) bool) {
		t.Helper()
		consultest.Eventually(t, what, func(context.Context) error {
			if n := p.MostBlocking()[path]; !ok(n) {
				return fmt.Errorf("%d wait for it", n)
			}
			return nil
		})
	}
	waiting("all electors to wait for the lock", func(n int) bool { return n >= electors })
	p.Away()
	waiting("their queries to end", func(n int) bool { return n == 0 })
	if err := s.Client().SessionDestroy(t.Context(), held.Session()); err != nil {
		t.Fatal(err)
	}
	before := p.Asked(path)
	var asked atomic.Int64 // for the lock, until the first elector has it
	p.Do(func(r *http.Request) consultest.Fault {
		if r.URL.Path != "/v1/txn" {
			return consultest.Fault{}
		}
		return consultest.Fault{Late: func() { asked.CompareAndSwap(0, int64(p.Asked(path)-before)) }}
	})
	consultest.Eventually(t, "one of them to take it", func(context.Context) error {
		if asked.Load() == 0 {
			return errors.New("none has")
		}
		return nil
	})
	waiting("all electors to wait for the lock again", func(n int) bool { return n >= electors })
	if n := asked.Load(); n >= electors {
		t.Errorf("%d requests for the lock before the first of %d electors had it, want those of a few", n, electors)
	}
}
