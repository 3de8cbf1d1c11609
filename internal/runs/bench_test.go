package runs

import (
	"context"
	"fmt"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
)

// BenchmarkDecide is one cycle, its state included, with a run on 1,000 members: all are scheduled,
// all have begun, all are done; and a cycle without news.
func BenchmarkDecide(b *testing.B) {
	const n = 1000
	s := newServer(b)
	ctx := context.Background()
	store := kv.New(s.Client(), "jorc/default")
	watcher := fleet.New(s.Client(), "jorc", "default").Consistent().NewWatcher(cluster.PrefixRuns)
	o := Observed{Node: "o", Now: epoch}
	for i := range n {
		o.Members = append(o.Members, cluster.Member{Node: fmt.Sprintf("node-%05d", i), Agent: cluster.AgentUp})
	}
	d, r := quickDecider(), New(store)
	report := func(state State) {
		s, err := watcher.State(ctx)
		if err != nil {
			b.Fatal(err)
		}
		batch := store.NonAtomicBatch()
		for node, q := range quickDecider().queuesOf(r, &s) {
			for i := range q.queue.Jobs {
				e := &q.queue.Jobs[i]
				e.State, e.Started, e.Ended = state, epoch, epoch
			}
			t := store.Txn()
			r.results.At(node).SwapIn(t, q.results.Entry, q.queue.Results())
			batch.Add(t)
		}
		if err := batch.Commit(ctx); err != nil {
			b.Fatal(err)
		}
	}
	round := 0
	for _, phase := range []struct {
		name   string
		before func()
	}{
		{"scheduled", func() {
			round++
			if _, _, err := r.Ask(ctx, fmt.Sprintf("r%d", round), Request{Workflow: "w"}, "b"); err != nil {
				b.Fatal(err)
			}
		}},
		{"begun", func() { report(Running) }},
		{"done", func() { report(Done) }},
		{"without news", func() {}},
	} {
		b.Run(phase.name, func(b *testing.B) {
			phase.before()
			before := raftIndex(b, s)
			b.ResetTimer()
			for range b.N {
				var err error
				if o.State, err = watcher.State(ctx); err != nil {
					b.Fatal(err)
				}
				if _, err := d.Decide(ctx, store, o); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(raftIndex(b, s)-before), "writes")
		})
	}
}

func raftIndex(b *testing.B, s *consultest.Server) uint64 {
	b.Helper()
	_, meta, err := s.Client().KVList(context.Background(), "jorc/", consul.Query{Consistent: true})
	if err != nil {
		b.Fatal(err)
	}
	return meta.Index
}
