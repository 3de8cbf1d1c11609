package orchestrator_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/runs"
)

// TestBudgetThatCannotBeRead: a budget that is damaged after a plan was made, and before Consul has what
// it offers, holds a stage and a run that disturbs; both have one host once it can be read.
func TestBudgetThatCannotBeRead(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, node := range []string{"a", "b"} {
		s.host(node, "10.0.0.1", "passing", "passing")
		s.join(node)
	}
	s.must(s.cluster.SetBudget(t.Context(), &pace.Budget{MaxOut: pace.Amount{N: 1}}))
	control := s.store.Path(cluster.KeyControl)
	good, _, err := s.client.KVGet(t.Context(), control, consul.Query{})
	s.must(nil, err)
	_, _, err = runs.New(s.store).Ask(t.Context(), "r1", runs.Request{Workflow: "good", Disturbs: true}, "ann")
	s.must(nil, err)
	proxy := s.server.Proxy()
	damage := sync.OnceFunc(func() {
		if err := s.client.KVPut(t.Context(), &consul.KVPair{Key: control, Value: []byte("garbage")}); err != nil {
			t.Error(err)
		}
	})
	proxy.Do(func(r *http.Request) consultest.Fault {
		for key := range consultest.Writes(r) {
			if strings.HasSuffix(key, "/grants") && strings.Contains(key, "/host/") {
				damage()
			}
		}
		return consultest.Fault{}
	})
	o := s.deciding()
	o.Client = proxy.Client()
	orch, _ := s.start(o)
	s.eventually("the orchestrator to be idle", func() error {
		if last := orch.Status().Last; last == nil || !strings.HasPrefix(last.Idle, cluster.KeyControl+" cannot be read") {
			return errEventsPending
		}
		return nil
	})
	for _, node := range []string{"a", "b"} {
		s.put(cluster.ReportKey(node), `{"format":1,"stages":{"edge":{"policy":{"max_parallel":"100%"},"wants":"c","changed":{"list":[{"name":"key a","digest":"d"}]}}}}`)
	}
	s.cyclesPass(orch, 3)
	out := func(key func(node string) string, what string) (nodes []string) {
		for _, node := range []string{"a", "b"} {
			p, _, err := s.client.KVGet(t.Context(), s.store.Path(key(node)), consul.Query{})
			if s.must(nil, err); p != nil && strings.Contains(string(p.Value), what) {
				nodes = append(nodes, node)
			}
		}
		return nodes
	}
	turns := func() []string {
		return out(func(node string) string { return cluster.GrantsKey(node) }, `"change":"files.edge"`)
	}
	jobs := func() []string { return out(cluster.GrantsKey, `"disturbs":true`) }
	if t, j := turns(), jobs(); len(t)+len(j) > 0 {
		s.t.Errorf("while the budget cannot be read %v have turns, and %v jobs", t, j)
	}
	s.put(cluster.KeyControl, string(good.Value))
	s.eventually("one host to have a turn and a job", func() error {
		if t, j := turns(), jobs(); len(t) != 1 || len(j) != 1 || t[0] != j[0] {
			return fmt.Errorf("%v have turns, and %v jobs", t, j)
		}
		return nil
	})
}

// TestNothingAfterRestore: hosts are offered new content of a stage, and jobs of runs, only once the time is over in which nothing is
// granted, as Consul's KV was restored.
func TestNothingAfterRestore(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.host("a", "10.0.0.1", "passing", "passing")
	s.join("a")
	s.put(cluster.ReportKey("a"), `{"format":1,"stages":{"edge":{"policy":{"max_parallel":"1"},"wants":"c","changed":{"list":[{"name":"key a","digest":"d"}]}}}}`)
	s.asksFor("r")
	quiet := time.Now().Add(2 * time.Second)
	s.must(nil, change.NewLedgers(s.store).Quiet(t.Context(), 2*time.Second, change.Ledger{}))
	s.start(s.deciding())
	for _, id := range []string{cluster.FilesChange("edge"), cluster.RunChange("r")} {
		s.eventually("an offer of "+id, func() error {
			e, err := change.GrantsAt(s.store, "a").Get(t.Context())
			s.must(nil, err)
			g := e.Value.Of(id)
			if g.State != pace.Offered {
				return fmt.Errorf("it has %+v", e.Value)
			}
			if g.Since.Before(quiet.Truncate(time.Second)) {
				t.Errorf("%s was offered at %v, want not before %v", id, g.Since, quiet)
			}
			return nil
		})
	}
}

// TestHostsTellOfRestore: hosts have answered offers that the ledger does not know, as Consul's KV was restored, and no orchestrator is left that
// could notice it. Nothing is offered for a while, and then with later IDs. An ID that no ledger reaches does not count.
func TestHostsTellOfRestore(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		id       string // that the host answered last
		declined bool
		restored bool
		term     uint64 // of the next offer
	}{
		"of the ledger":          {id: "4.7.00000001", term: 5},
		"later in the same term": {id: "4.8.00000001", restored: true, term: 5},
		"of a later term":        {id: "6.1.00000001", restored: true, term: 7},
		"declined":               {id: "6.1.00000001", declined: true, restored: true, term: 7},
		"too late for a ledger":  {id: "1048581.1.00000001", term: 5},
		"not a ledger's":         {id: "6.18446744073709551615.00000001", term: 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.host("a", "10.0.0.1", "passing", "passing")
			s.join("a")
			s.put(cluster.KeyGrantLedger, `{"format":1,"term":4,"seq":7}`)
			answer := fmt.Sprintf(`{"change":"lease.a","id":%q,"tag":"w","state":"done"}`, test.id)
			if test.declined {
				answer = fmt.Sprintf(`{"change":"lease.a","declined":%q}`, test.id)
			}
			s.put(cluster.ReportKey("a"), `{"format":1,"grants":[`+answer+`],"stages":{"edge":{"policy":{"max_parallel":"1"},"wants":"c","changed":{"list":[{"name":"key a","digest":"d"}]}}}}`)
			o, begun := s.deciding(), time.Now()
			o.Quiet = 3 * time.Second
			s.start(o)
			s.eventually("an offer", func() error {
				e, err := change.GrantsAt(s.store, "a").Get(t.Context())
				s.must(nil, err)
				g := e.Value.Of(cluster.FilesChange("edge"))
				if g.State != pace.Offered {
					return fmt.Errorf("it has %+v", e.Value)
				}
				if waited := !g.Since.Before(begun.Add(o.Quiet)); waited != test.restored {
					t.Errorf("it was offered after %v, want that it waits: %t", g.Since.Sub(begun), test.restored)
				}
				if want := fmt.Sprint(test.term, "."); !strings.HasPrefix(g.ID, want) {
					t.Errorf("it is offered %s, want one of term %d", g.ID, test.term)
				}
				return nil
			})
		})
	}
}

// TestLedgerOfBefore: an orchestrator that finds an earlier ledger than the one that it wrote knows that Consul's KV was restored, also where its
// watch has not seen an index that went backwards: nothing is offered for a while.
func TestLedgerOfBefore(t *testing.T) {
	t.Parallel()
	t.Run("its term continues", func(t *testing.T) { t.Parallel(); ledgerOfBefore(t, false) })
	t.Run("its lock is lost with that", func(t *testing.T) { t.Parallel(); ledgerOfBefore(t, true) })
}

func ledgerOfBefore(t *testing.T, unlocked bool) {
	t.Helper()
	s := newSite(t)
	s.host("a", "10.0.0.1", "passing", "passing")
	s.join("a")
	s.worker("a")
	ledger := s.store.Path(cluster.KeyGrantLedger)
	o := s.deciding()
	o.Quiet = 3 * time.Second
	orch, _ := s.start(o)
	s.asksFor("r1")
	s.granted("r1")
	first := orch.Status().Epoch
	before, _, err := s.client.KVGet(t.Context(), ledger, consul.Query{})
	s.must(nil, err)
	s.done("r1")
	s.asksFor("r2")
	s.done("r2")
	written, err := change.NewLedgers(s.store).Get(t.Context())
	s.must(nil, err)
	restored := time.Now()
	s.must(nil, s.client.KVPut(t.Context(), before))
	if unlocked {
		lock, _, err := s.client.KVGet(t.Context(), s.store.Path(cluster.OrchestratorLock), consul.Query{})
		s.must(nil, err)
		s.must(nil, s.client.SessionDestroy(t.Context(), lock.Session))
	}
	s.asksFor("r3")
	s.done("r3")
	if r, err := runs.New(s.store).Show(t.Context(), "r3"); err != nil || r.Members[0].History[0].At.Before(restored.Add(o.Quiet-time.Second)) {
		t.Errorf("%v: %+v; want that it is granted after %v", err, r.Members, restored.Add(o.Quiet))
	}
	if now := orch.Status().Epoch; now <= first {
		t.Errorf("the term of epoch %d continues", now)
	}
	after, err := change.NewLedgers(s.store).Get(t.Context())
	s.must(nil, err)
	if !after.Value.After(written.Value) {
		t.Errorf("the ledger is %+v, want that it counts on from %+v: no two grants have the same ID", after.Value, written.Value)
	}
}
