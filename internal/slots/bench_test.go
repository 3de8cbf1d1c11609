package slots_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/slots"
)

// inside is a claim that is held until it was released.
type inside struct {
	claim    *kv.Lease
	released chan struct{}
}

// BenchmarkHandOver hands one slot on among 100 waiters, each with a client of
// its own as so many hosts have; the last holder lines up again. p50-ms and
// p99-ms are from the call of Release until the next one runs; writes/op are
// those to Raft, lining up included.
func BenchmarkHandOver(b *testing.B) {
	const waiters = 100
	srv := consultest.Start(b, manyHosts())
	ctx, cancel := context.WithCancel(context.Background())
	admitted := make(chan inside)
	var all sync.WaitGroup
	watch := host(b, srv.Client())
	first := mustAcquire(b, watch, "g", 1, holder("first"))
	for i := range waiters {
		s := slots.New(store(srv), slots.Options{})
		all.Go(func() {
			for ctx.Err() == nil {
				c, err := s.Acquire(ctx, "g", slots.Keep, slots.Holder{Node: "n", Reason: fmt.Sprint(i)})
				if err != nil {
					if ctx.Err() == nil {
						b.Error(err)
						cancel()
					}
					return
				}
				in := inside{c, make(chan struct{})}
				select {
				case admitted <- in:
					<-in.released
				case <-ctx.Done():
					_ = c.Release(ctx)
				}
			}
		})
	}
	until(b, watch, "g", "all in the queue", func(v slots.View) bool { return len(v.Queue) == waiters })
	before, c := raftIndex(b, srv), inside{first, make(chan struct{})}
	var took []time.Duration
	for b.Loop() {
		begin, old := time.Now(), c
		go func() {
			defer close(old.released)
			mustRelease(b, old.claim)
		}()
		select {
		case c = <-admitted:
		case <-ctx.Done():
			b.FailNow()
		}
		took = append(took, time.Since(begin))
		<-old.released
	}
	writes := raftIndex(b, srv) - before
	cancel()
	mustRelease(b, c.claim)
	close(c.released)
	all.Wait()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(writes)/float64(len(took)), "writes/op")
}

var lastIndex = regexp.MustCompile(`last_log_index = (\d+)`)

// raftIndex is the index of the last write to Raft.
func raftIndex(t testing.TB, srv *consultest.Server) int {
	t.Helper()
	found := lastIndex.FindStringSubmatch(srv.Run("info"))
	if found == nil {
		t.Fatal("consul info tells no index")
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
