package orchestrator_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/orchestrator"
)

// gateway counts the requests to a real Consul that do not block, except those
// with which a watch looks what woke it up, and can refuse the catalog.
type gateway struct {
	requests, blocking atomic.Int64
	most               atomic.Int64
	refuse             atomic.Bool
}

func (g *gateway) client(s *site) *consul.Client {
	s.t.Helper()
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: s.server.HTTPAddr})
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) } // the client left
	server := httptest.NewServer(consultest.WholeBody(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Has("index"):
			g.most.Store(max(g.most.Load(), g.blocking.Add(1)))
			defer g.blocking.Add(-1)
		case strings.HasPrefix(r.URL.Path, "/v1/session/"), r.URL.Query().Has("separator"):
		default:
			g.requests.Add(1)
		}
		if g.refuse.Load() && strings.HasPrefix(r.URL.Path, "/v1/catalog/nodes") {
			http.Error(w, "Permission denied", http.StatusForbidden)
			return
		}
		proxy.ServeHTTP(w, r)
	})))
	s.t.Cleanup(server.Close)
	conf := s.server.Config()
	conf.Address = strings.TrimPrefix(server.URL, "http://")
	c, err := consul.New(conf)
	s.must(nil, err)
	s.t.Cleanup(c.Close)
	return c
}

// TestRequests: a cycle takes as many requests for 1,000 members as for 10,
// and few of an agent's places for queries that block.
func TestRequests(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	tree := kv.NewTree[cluster.Record](s.store, cluster.PrefixHosts, 1).Ending(cluster.EndMember)
	fill := func(from, to int) {
		t.Helper()
		batch := s.store.NonAtomicBatch()
		for i := from; i < to; i++ {
			txn := s.store.Txn()
			tree.At(fmt.Sprint("n", i)).SetIn(txn, cluster.Record{Zone: "r1"})
			batch.Add(txn)
		}
		s.must(nil, batch.Commit(t.Context()))
	}
	measure := func(members int) float64 {
		t.Helper()
		g := &gateway{}
		o := quick(g.client(s))
		o.Interval = time.Hour
		orch, stop := s.start(o)
		defer stop()
		s.eventually("the view", func() error {
			if n := orch.Status().Aggregate.Nodes; n != members {
				return fmt.Errorf("%d nodes", n)
			}
			return nil
		})
		const rounds = 10
		// ask returns how many cycles there were; it asks again when it met one
		// that what happened before had woken up.
		ask := func() (cycles uint64) {
			t.Helper()
			s.eventually("a cycle that was asked for", func() error {
				cycles = orch.Status().Cycles
				r, err := orchestrator.Ask(t.Context(), s.store, "test")
				if err == nil && r == nil {
					err = errEventsPending
				}
				return err
			})
			s.eventually("the cycle to be counted", func() error { // its answer comes first
				if now := orch.Status().Cycles; now > cycles {
					cycles = now
					return nil
				}
				return errEventsPending
			})
			return cycles
		}
		first := ask()
		before := g.requests.Load()
		last := first
		for range rounds {
			last = ask()
		}
		if most := g.most.Load(); most > 6 {
			t.Errorf("%d queries block at a time, want at most 6", most)
		}
		return float64(g.requests.Load()-before) / float64(last-first)
	}
	fill(0, 10)
	few := measure(10)
	fill(10, 1000)
	many := measure(1000)
	t.Logf("%.1f requests per cycle with 10 members, %.1f with 1,000", few, many)
	if many > few+1 || few > 9 {
		t.Errorf("a cycle takes %.1f requests with 10 members and %.1f with 1,000", few, many)
	}
}

// TestBackoff: a cycle that fails is tried again after longer and longer; when
// the next is due is written down, and is gone when all is well again.
func TestBackoff(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := &gateway{}
	g.refuse.Store(true)
	o := quick(g.client(s))
	o.Interval = 200 * time.Millisecond
	orch, _ := s.start(o)
	type next struct {
		Due   time.Time `json:"due"`
		Error string    `json:"error"`
	}
	doc := kv.NewDoc[next](s.store, "orchestrate/next", 1)
	s.eventually("the error to be told", func() error {
		e, err := doc.Get(t.Context())
		if err == nil && (e.Value.Error == "" || e.Value.Due.IsZero()) {
			err = errors.New("none yet")
		}
		return err
	})
	s.cyclesPass(orch, 3)
	if last := orch.Status().Last; last.Outcome != orchestrator.OutcomeFailed || !strings.Contains(last.Error, "denied") {
		t.Errorf("last report %+v", last)
	}
	if r := s.reports(); len(r) != 1 || r[0].Outcome != orchestrator.OutcomeFailed {
		t.Errorf("the same failure is kept more than once: %+v", r)
	}
	g.refuse.Store(false)
	s.wantEvents(0, "cluster_created", "cluster_changed", "orchestrator_failing", "orchestrator_recovered")
	s.eventually("the error to be gone", func() error {
		e, err := doc.Get(t.Context())
		if err == nil && (e.Value.Error != "" || !e.Value.Due.IsZero()) {
			err = fmt.Errorf("%+v", e.Value)
		}
		return err
	})
}

// TestBackoffLasts: during a backoff no change makes a cycle run, but a request
// does.
func TestBackoffLasts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := &gateway{}
	g.refuse.Store(true)
	o := quick(g.client(s))
	o.Interval = time.Hour // and so is the backoff
	orch, _ := s.start(o)
	s.eventually("the first cycle", func() error {
		if orch.Status().Cycles != 1 {
			return errEventsPending
		}
		return nil
	})
	const rounds = 5
	for i := range rounds {
		s.join(fmt.Sprint("n", i))
		s.eventually("a cycle that was asked for", func() error {
			r, err := orchestrator.Ask(t.Context(), s.store, "me")
			switch {
			case err != nil:
				return err
			case r == nil: // the one before was not over
				return errEventsPending
			case r.Outcome != orchestrator.OutcomeFailed || r.Trigger != "request":
				t.Errorf("Ask = %+v", r)
			}
			return nil
		})
	}
	s.eventually("the last cycle to be counted", func() error { // its answer comes first
		if orch.Status().Cycles < 1+rounds {
			return errEventsPending
		}
		return nil
	})
	if n := orch.Status().Cycles; n != 1+rounds {
		t.Errorf("%d cycles, want the first and one for each of %d requests", n, rounds)
	}
}
