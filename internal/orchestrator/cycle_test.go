package orchestrator_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/rollout"
)

// TestObserve: what changes becomes a view and events, at once though the next
// cycle is not due for an hour, and cycles that see no change write nothing.
func TestObserve(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.host("a", "10.0.0.1", "passing", "passing")
	s.join("a", "db")
	o := quick(s.client)
	o.Interval = time.Hour
	_, stop := s.start(o)
	s.wantEvents(0, "cluster_created", "cluster_changed", "leaders_changed", "member_joined a", "service_up web")
	n := 5
	step := func(want ...string) []orchestrator.Event {
		t.Helper()
		events := s.wantEvents(n, want...)
		n += len(want)
		return events
	}
	s.host("b", "10.0.0.2", "passing", "passing")
	step() // no member
	s.join("b", "web")
	step("member_joined b", "service_changed web")
	s.must(s.rollouts.Trigger(t.Context(), rollout.Request{Version: "v1"}))
	step("desired_version_changed")
	s.must(s.ledger.ReportVersion(t.Context(), "b", "v1"))
	step("version_changed b")
	s.must(s.ledger.SetState(t.Context(), "b", "config", cluster.CategoryState{State: cluster.StateFailed, Detail: "secret detail"}))
	if e := step("state_changed b")[0]; e.Category != "config" || e.After != "failed at v1" || e.Text != "b: config failed at v1" {
		t.Errorf("%+v", e)
	}
	s.host("b", "10.0.0.2", "passing", "critical")
	step("health_changed b", "service_changed web")
	s.host("a", "10.0.0.1", "passing", "critical")
	step("health_changed a", "service_down web")
	s.must(s.cluster.Pause(t.Context(), cluster.Hold{Since: time.Unix(0, 0), Reason: "why", By: "ann"}))
	if e := step("cluster_paused")[0]; e.Text != "the cluster is paused: since 1970-01-01T00:00:00Z by ann: why" {
		t.Errorf("%+v", e)
	}
	s.must(s.cluster.Leave(t.Context(), "a", false))
	step("member_left a", "leaders_changed", "service_changed web")
	v := s.view()
	b := v.Nodes["b"]
	if len(v.Nodes) != 1 || b.Life != cluster.LivenessUp || b.Agent != "up" || b.Health != "critical" || b.Version != "v1" || b.Services["web"].Critical != 1 ||
		b.HealthSince.IsZero() || len(b.Services) != 1 {
		t.Errorf("the view is %+v", v)
	}
	for i, e := range s.events() {
		if e.Seq != uint64(i+1) || e.Time.IsZero() {
			t.Errorf("event %d: %+v", i, e)
		}
	}
	stop()

	o.Interval = 10 * time.Millisecond
	orch, _ := s.start(o)
	s.cyclesPass(orch, 2)
	before := s.index()
	s.cyclesPass(orch, 10)
	if now := s.index(); now != before {
		t.Errorf("cycles without a change wrote: index %d, then %d", before, now)
	}
	st := orch.Status()
	if !st.Active || st.Last.Outcome != orchestrator.OutcomeUnchanged || st.Aggregate.Health["critical"] != 1 || st.Seq != uint64(n) || st.Last.Synced != 1 {
		t.Errorf("status %+v, last %+v", st, st.Last)
	}
	if r := s.reports(); len(r) == 0 || r[len(r)-1].LastSeq != uint64(n) {
		t.Errorf("reports %+v", r)
	}
}

// TestLife: a node is down when neither gossip nor the orchestrator reaches it,
// and suspect while the orchestrator does.
func TestLife(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	l, err := net.Listen("tcp", s.server.IP+":0")
	s.must(nil, err)
	defer l.Close()
	o := quick(s.client)
	o.Interval = 50 * time.Millisecond
	o.Probe = orchestrator.TCPProbe{Port: l.Addr().(*net.TCPAddr).Port}
	gone := "127.0.0.9" // nothing listens there
	for node, address := range map[string]string{"a": s.server.IP, "b": gone} {
		s.host(node, address, "passing", "passing")
		s.join(node)
	}
	_, _ = s.start(o)
	s.wantEvents(0, "cluster_created", "cluster_changed", "leaders_changed", "member_joined a", "member_joined b", "service_up web")
	s.host("a", s.server.IP, "critical", "passing")
	s.wantEvents(6, "node_suspect a", "health_changed a", "service_changed web")
	s.host("b", gone, "critical", "passing")
	s.wantEvents(9, "node_down b", "agent_down b", "health_changed b", "service_down web")
	s.must(nil, l.Close())
	s.wantEvents(13, "node_down a", "agent_down a")
	s.host("a", s.server.IP, "passing", "passing")
	s.wantEvents(15, "node_up a", "agent_up a", "health_changed a", "service_up web")
	s.must(nil, s.client.CatalogDeregister(t.Context(), &consul.CatalogDeregister{Node: "b"}))
	s.wantEvents(19, "node_gone b", "health_changed b", "service_changed web")
}

// TestDefaultProbe: without configuration the port is the one on which the
// local agent gossips: the host of a dead node of which the server itself
// answers there is suspect.
func TestDefaultProbe(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.host("a", s.server.IP, "critical", "passing")
	s.host("b", "127.0.0.9", "critical", "passing")
	s.join("a")
	s.join("b")
	_, _ = s.start(quick(s.client))
	s.wantEvents(0, "cluster_created", "cluster_changed", "leaders_changed", "member_joined a", "node_suspect a", "member_joined b", "node_down b", "service_changed web")
}

// TestDamaged: a document that cannot be read is reported once, what was known is
// kept, and others continue.
func TestDamaged(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, node := range []string{"a", "b", "c"} {
		s.host(node, "10.0.0.1", "passing", "passing")
		s.join(node, "db")
		s.must(s.ledger.ReportVersion(t.Context(), node, "v1"))
	}
	o := quick(s.client)
	o.Interval = 50 * time.Millisecond
	orch, _ := s.start(o)
	s.wantEvents(0, "cluster_created", "cluster_changed", "leaders_changed", "member_joined a", "member_joined b", "member_joined c", "service_up web")
	s.put("nodes/a", "garbage")
	s.wantEvents(7, "document_damaged a")
	s.put("nodes/b", `{"format":99}`)
	s.wantEvents(8, "document_damaged b")
	s.put("host/c/member", "{")
	s.wantEvents(9, "document_damaged c")
	s.must(s.ledger.ReportVersion(t.Context(), "c", "v2"))
	s.wantEvents(10, "version_changed c")
	for i, remedy := range map[int]string{7: "jorc status repair", 8: "upgrade jorc", 9: "jorc cluster join"} {
		if text := s.events()[i].Text; !strings.Contains(text, remedy) {
			t.Errorf("event %d does not say %q: %s", i, remedy, text)
		}
	}
	s.cyclesPass(orch, 2)
	if last := orch.Status().Last; last.Failed != 3 || last.Outcome != orchestrator.OutcomePartial || len(last.Problems) != 3 || last.Synced != 0 {
		t.Errorf("report %+v", last)
	}
	v := s.view()
	for node, version := range map[string]string{"a": "v1", "b": "v1", "c": "v2"} {
		if n := v.Nodes[node]; n.Version != version || n.Trouble == "" || len(n.Roles) == 0 {
			t.Errorf("%s: %+v", node, n)
		}
	}
	s.must(nil, kv.NewDoc[cluster.Report](s.store, "nodes/a", 1).Delete(t.Context(), indexOf(s, "nodes/a")))
	s.must(s.ledger.ReportVersion(t.Context(), "a", "v3"))
	s.eventually("a to be readable", func() error {
		if n := s.view().Nodes["a"]; n.Trouble != "" || n.Version != "v3" {
			return fmt.Errorf("%+v", n)
		}
		return nil
	})
	n := len(s.events())
	for _, key := range []string{"current/control", "current/leaders"} {
		s.put(key, "garbage")
		s.wantEvents(n, "document_damaged")
		n++
	}
	s.cyclesPass(orch, 2)
	if idle := orch.Status().Last.Idle; idle != "current/control cannot be read: nothing is decided on what may be wrong" {
		t.Errorf("idle: %q", idle)
	}
	s.put("current/version", "garbage")
	s.wantEvents(n, "document_damaged")
	s.put("current/version", `{"format":99}`)
	s.wantEvents(n+1, "document_damaged")
	if len(s.view().Cluster.Leaders) != 1 {
		t.Errorf("the view's cluster is %+v", s.view().Cluster)
	}
}

// TestRestored: when an older state of the journal's keys is restored under the
// orchestrator, the cycle that notices begins again with what is there now, and
// does not fail.
func TestRestored(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	o := quick(s.client)
	o.Interval = time.Hour
	s.start(o)
	s.wantEvents(0, "cluster_created", "cluster_changed")
	backup, _, err := s.client.KVList(t.Context(), s.store.Path(""), consul.Query{})
	s.must(nil, err)
	s.join("a")
	s.wantEvents(2, "leaders_changed", "member_joined a")
	for _, p := range backup {
		s.must(nil, s.client.KVPut(t.Context(), &consul.KVPair{Key: p.Key, Value: p.Value, Flags: p.Flags}))
	}
	s.join("b")
	s.eventually("both to be members again", func() error {
		if v := s.view(); len(v.Nodes) != 2 {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
	for i, e := range s.events() {
		if e.Seq != uint64(i+1) {
			t.Errorf("event %d has number %d", i+1, e.Seq)
		}
	}
	for _, r := range s.reports() {
		if r.Outcome == orchestrator.OutcomeFailed {
			t.Errorf("a cycle failed: %+v", r)
		}
	}
}

func indexOf(s *site, key string) uint64 {
	p, _, err := s.client.KVGet(s.t.Context(), s.store.Path(key), consul.Query{})
	s.must(nil, err)
	return p.ModifyIndex
}
