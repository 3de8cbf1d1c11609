package leaders_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/leaders"
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
		e := leaders.NewElection(cluster.New(client, "jorc", "prod"), leaders.ElectionOptions{Node: "many", Spread: spread})
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
