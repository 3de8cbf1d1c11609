package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/runs"
)

// prefill makes a cluster of n members with hosts, two services and reports.
func (s *site) prefill(n int) {
	s.t.Helper()
	var adding sync.WaitGroup
	next := atomic.Int64{}
	for range 16 {
		adding.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				node := fmt.Sprintf("node-%04d", i)
				checks := consul.HealthChecks{}
				for _, service := range []string{"jorc-prod", "web"} {
					checks = append(checks, &consul.HealthCheck{
						Node: node, CheckID: "service:" + service, ServiceID: service, Status: "passing", Output: "HTTP GET http://127.0.0.1/: 200 OK",
					})
				}
				for k, service := range []string{"jorc-prod", "web"} {
					err := s.client.CatalogRegister(context.Background(), &consul.CatalogRegistration{
						Node: node, Address: fmt.Sprintf("10.0.%d.%d", i/250, i%250), NodeMeta: map[string]string{"os": "linux"},
						Service: &consul.AgentService{ID: service, Service: strings.TrimSuffix(service, "-prod")}, Checks: checks[k : k+1],
					})
					if err != nil {
						s.t.Error(err)
					}
				}
			}
		})
	}
	adding.Wait()
	batch := s.store.NonAtomicBatch()
	for i := range n {
		t := s.store.Txn()
		node := fmt.Sprintf("node-%04d", i+1)
		kv.NewTree[cluster.Record](s.store, cluster.PrefixHosts, 1).Ending(cluster.EndMember).At(node).SetIn(t, cluster.Record{Roles: []string{"db"}, Zone: fmt.Sprintf("rack-%d", i%50)})
		s.ledger.Reports().At(node).In(s.store).SetIn(t, document("v1"))
		batch.Add(t)
	}
	s.must(nil, batch.Commit(context.Background()))
}

func document(version string) cluster.Report {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return cluster.Report{Version: version, Since: at, States: map[string]cluster.CategoryState{
		"config":     {State: cluster.StateSuccess, Since: at, Version: version, Detail: strings.Repeat("output ", 20)},
		"validation": {State: cluster.StateSuccess, Since: at, Version: version},
	}}
}

// BenchmarkCycle is a cycle of 5,000 members: one that sees no change, one
// that sees every node at another version, and one while a run is in all queues. The target is 2 s.
func BenchmarkCycle(b *testing.B) {
	const members = 5000
	s := newSite(b)
	s.prefill(members)
	o := quick(s.client)
	o.Interval = time.Hour
	o.Lock = kv.LeaseOptions{}
	o.Grants = true
	orch, _ := s.start(o)
	s.eventually("the view", func() error {
		if n := orch.Status().Aggregate.Nodes; n != members {
			return fmt.Errorf("%d nodes", n)
		}
		return nil
	})
	ask := func(b *testing.B) *orchestrator.Report {
		for {
			r, err := orchestrator.Ask(b.Context(), s.store, "bench")
			if err != nil {
				b.Fatal(err)
			}
			if r != nil {
				return r
			}
		}
	}
	ask(b)
	b.Run("unchanged", func(b *testing.B) {
		var total int64
		for b.Loop() {
			total += ask(b).Duration
		}
		b.ReportMetric(float64(total)/float64(b.N), "ms/cycle")
	})
	b.Run("changed", func(b *testing.B) {
		var total, events int64
		round := 1
		for b.Loop() {
			b.StopTimer()
			round++
			batch := s.store.NonAtomicBatch()
			for i := range members {
				t := s.store.Txn()
				s.ledger.Reports().At(fmt.Sprintf("node-%04d", i+1)).In(s.store).SetIn(t, document(fmt.Sprint("v", round)))
				batch.Add(t)
			}
			before := orch.Status().Seq
			s.must(nil, batch.Commit(b.Context()))
			b.StartTimer()
			for orch.Status().Seq < before+3*members {
				r := ask(b)
				total += r.Duration
			}
			events += int64(orch.Status().Seq - before)
		}
		b.ReportMetric(float64(total)/float64(b.N), "ms/round")
		b.ReportMetric(float64(events)/float64(b.N), "events/round")
	})
	b.Run("run in progress", func(b *testing.B) { // that nothing carries out
		_, _, err := runs.New(s.store).Ask(b.Context(), "r", runs.Request{Workflow: "w"}, "ann")
		s.must(nil, err)
		s.eventually("the run to be in all queues", func() error {
			_, err := orchestrator.Ask(b.Context(), s.store, "bench")
			r, showErr := runs.New(s.store).Run(b.Context(), "r")
			if r.Counts.Members != members {
				err = errors.Join(err, fmt.Errorf("%+v", r.Counts))
			}
			return errors.Join(err, showErr)
		})
		ask(b)
		b.ResetTimer()
		var total int64
		for b.Loop() {
			total += ask(b).Duration
		}
		b.ReportMetric(float64(total)/float64(b.N), "ms/cycle")
	})
	largest := 0
	for _, prefix := range []string{"view/", "events/", "orchestrate/"} {
		pairs, _, err := s.client.KVList(b.Context(), s.store.Path(prefix), consul.Query{})
		s.must(nil, err)
		for _, p := range pairs {
			largest = max(largest, len(p.Value))
		}
	}
	if largest > kv.MaxValue {
		b.Errorf("a value has %d bytes", largest)
	}
	for _, r := range s.reports() {
		b.Logf("cycle %d (%s): %d ms, %d events", r.Number, r.Trigger, r.Duration, r.Events)
	}
	b.Logf("the largest value has %d bytes; RSS %d MB", largest, rss(b)>>20)
}

// rss is this process's resident memory in bytes.
func rss(b *testing.B) int {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(data))[1])
	if err != nil {
		b.Fatal(err)
	}
	return pages * os.Getpagesize()
}
