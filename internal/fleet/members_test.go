package fleet_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/profile"
)

func members(t testing.TB, c *fleet.Cluster, expr string) map[string]cluster.Member {
	t.Helper()
	f, err := cluster.ParseFilter(expr)
	if err != nil {
		t.Fatal(err)
	}
	all, err := c.Members(t.Context(), fleet.MembersOptions{Filter: f, Need: cluster.NeedAll})
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]cluster.Member{}
	for _, m := range all {
		by[m.Node] = m
	}
	return by
}

// TestMembers: the record, who leads, the catalog and what nodes report come
// together.
func TestMembers(t *testing.T) {
	t.Parallel()
	c, s := clustertest.Initialized(t)
	clustertest.AddNode(t, s, "up", "passing", "passing")
	clustertest.AddNode(t, s, "old", "passing", "critical")
	clustertest.AddNode(t, s, "dead", "critical", "passing")
	clustertest.AddNode(t, s, "bare", "passing", "")
	clustertest.AddNode(t, s, "stranger", "passing", "passing")
	if err := s.Client().CatalogRegister(t.Context(), &consul.CatalogRegistration{Node: "silent", Address: "10.0.0.9"}); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"up", "old", "dead", "bare", "logical", "silent"} {
		clustertest.Join(t, c, node, "db")
	}
	check := func(node, id, status, notes string) {
		t.Helper()
		err := s.Client().CatalogRegister(t.Context(), &consul.CatalogRegistration{
			Node: node, SkipNodeUpdate: true,
			Checks: consul.HealthChecks{{Node: node, CheckID: id, Name: id, Status: status, Notes: notes}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	check("up", "disk", "warning", "")
	check("bare", "_node_maintenance", "critical", "jorc: update")
	report := &consul.KVPair{Key: "jorc/prod/nodes/up", Value: []byte(`{"format":1,"version":"v7","states":{"config":"failed","validation":{"state":"success","since":"2026-01-02T03:04:05Z"}}}`)}
	if err := s.Client().KVPut(t.Context(), report); err != nil {
		t.Fatal(err)
	}
	all := members(t, c, "")
	for _, test := range []struct{ node, health, agent, version string }{
		{"up", "warning", "up", "v7"},
		{"old", "passing", "down", ""}, // a jorc agent that died: its host still serves
		{"dead", "critical", "down", ""},
		{"bare", "maintenance", "down", ""},
		{"logical", "", "down", ""},
		{"silent", "passing", "down", ""}, // a host without checks, as Consul sees it
	} {
		if m := all[test.node]; m.Health != test.health || m.Agent != test.agent || m.Version != test.version {
			t.Errorf("%s: health %q, agent %q, version %q; want %+v", test.node, m.Health, m.Agent, m.Version, test)
		}
	}
	if len(all) != 6 {
		t.Errorf("%d members, want 6", len(all))
	}
	up := all["up"]
	if up.Address != "10.0.0.1" || up.Datacenter != "dc1" || up.NodeMeta["os"] != "linux" || !slices.Equal(up.Services, []string{"jorc"}) {
		t.Errorf("up is %+v", up)
	}
	if up.Status["config"] != "failed" || up.Status["validation"] != "success" || up.Params["cluster/db"].String() != "true" {
		t.Errorf("up is %+v", up)
	}
	for _, test := range []struct {
		expr string
		want int
	}{
		{`"db" in Roles`, 6},
		{`Agent == up`, 1},
		{`Health == "critical"`, 1},
		{`Status["config"] == "failed"`, 1},
		{`"jorc" in Services and NodeMeta["os"] == "linux"`, 3},
		{`Params["cluster/leader"] == true`, 1},
		{`Params["cluster/leader"] != true`, 5},
		{`"worker" in Roles`, 5},
		{`Health == maintenance`, 1},
		{`Health == warning and Agent == up`, 1},
		{`Agent == down and Health is empty`, 1},
	} {
		f, err := cluster.ParseFilter(test.expr)
		if err != nil {
			t.Fatal(err)
		}
		// What else is read of the members makes no difference.
		for _, need := range []cluster.Need{0, cluster.NeedAll} {
			got, err := c.Members(t.Context(), fleet.MembersOptions{Filter: f, Need: need})
			if err != nil || len(got) != test.want {
				t.Errorf("%s: %d members, %v, want %d", test.expr, len(got), err, test.want)
			}
		}
	}
}

// TestMemberParams: a member's own params obey references and the cluster's
// schemas, and are the highest layer.
func TestMemberParams(t *testing.T) {
	t.Parallel()
	c, _ := clustertest.Initialized(t)
	clustertest.Join(t, c, "n", "db")
	one, two := clustertest.Value(t, "1"), clustertest.Value(t, "2")
	if err := c.SetMemberParam(t.Context(), "n", "k", one, profile.Ref{Absent: true}); err != nil {
		t.Fatal(err)
	}
	clustertest.WantIs(t, "a reference that does not hold", c.SetMemberParam(t.Context(), "n", "k", two, profile.Ref{Value: &two}), profile.ErrMismatch)
	clustertest.WantIs(t, "a node that is no member", c.SetMemberParam(t.Context(), "other", "k", two, profile.Ref{}), cluster.ErrNoMember)
	_, err := c.ChangeProfile(t.Context(), func(e *profile.Editor, d profile.Document) (profile.Document, error) {
		return e.SetSchema(d, "k", clustertest.Value(t, `{"type": "integer", "default": 7}`))
	})
	if err != nil {
		t.Fatal(err)
	}
	clustertest.WantIs(t, "a value past the schema", c.SetMemberParam(t.Context(), "n", "k", clustertest.Value(t, `"x"`), profile.Ref{}), profile.ErrSchema)
	effective := func() string {
		t.Helper()
		v, err := c.View(t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		return v.Effective(false).Params()["k"].String()
	}
	if got := effective(); got != "1" {
		t.Errorf("k is %s, want the member's own 1", got)
	}
	if err := c.RemoveMemberParam(t.Context(), "n", "k", profile.Ref{Value: &one}); err != nil {
		t.Error(err)
	}
	if got := effective(); got != "7" {
		t.Errorf("k is %s, want the schema's default 7", got)
	}
	if _, err := c.Set(t.Context(), profile.Scope{Role: "worker"}, "k", two, profile.Ref{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Set(t.Context(), profile.Scope{Role: "leader"}, "k", clustertest.Value(t, "3"), profile.Ref{}); err != nil {
		t.Fatal(err)
	}
	if got := effective(); got != "3" { // the only member leads
		t.Errorf("k is %s, want the leaders' 3", got)
	}
}

// keep runs a keeper until the returned function is called.
func keep(t *testing.T, c *fleet.Cluster, o fleet.RecordSyncOptions) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := c.NewRecordSync(o).Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(stop)
	return stop
}

func wantRecord(t *testing.T, c *fleet.Cluster, node, want string) {
	t.Helper()
	consultest.Eventually(t, node+" to be "+want, func(ctx context.Context) error {
		r, err := c.Record(ctx, node)
		if err == nil && clustertest.JSON(t, r) != want {
			err = errors.New(clustertest.JSON(t, r))
		}
		return err
	})
}

// TestKeeper: the files decide what they name, other params stay, and nothing
// is written while nothing changes.
func TestKeeper(t *testing.T) {
	t.Parallel()
	c, s := clustertest.Initialized(t)
	clustertest.Join(t, c, "n", "wrong")
	if err := c.SetMemberParam(t.Context(), "n", "job", clustertest.Value(t, "1"), profile.Ref{}); err != nil {
		t.Fatal(err)
	}
	files := cluster.Record{Roles: []string{"db"}, Zone: "r1", Params: clustertest.Params(t, `{"disks": 4, "old": 1}`)}
	stop := keep(t, c, fleet.RecordSyncOptions{Node: "n", Files: files})
	wantRecord(t, c, "n", `{"roles":["db"],"zone":"r1","params":{"disks":4,"job":1,"old":1},"declared":{"params":["disks","old"]}}`)
	before := index(t, s, "jorc/prod/host/")

	// Another program's hand is corrected, what the files do not name is left.
	if err := c.SetMemberParam(t.Context(), "n", "disks", clustertest.Value(t, "9"), profile.Ref{}); err != nil {
		t.Fatal(err)
	}
	if err := c.SetMemberParam(t.Context(), "n", "job", clustertest.Value(t, "2"), profile.Ref{}); err != nil {
		t.Fatal(err)
	}
	wantRecord(t, c, "n", `{"roles":["db"],"zone":"r1","params":{"disks":4,"job":2,"old":1},"declared":{"params":["disks","old"]}}`)
	if now := index(t, s, "jorc/prod/host/"); now <= before {
		t.Errorf("index %d, then %d", before, now)
	}
	if _, err := c.Leave(t.Context(), "n", false); err != nil {
		t.Fatal(err)
	}
	wantRecord(t, c, "n", `{"roles":["db"],"zone":"r1","params":{"disks":4,"old":1},"declared":{"params":["disks","old"]}}`)
	stop()
	if _, err := c.Record(t.Context(), "n"); err != nil {
		t.Errorf("a stop ended the membership: %v", err)
	}

	// The same host with another image: what its files no longer name goes.
	before = index(t, s, "jorc/prod/host/")
	files.Params = clustertest.Params(t, `{"disks": 8}`)
	stop = keep(t, c, fleet.RecordSyncOptions{Node: "n", Files: files, LeaveOnStop: true})
	wantRecord(t, c, "n", `{"roles":["db"],"zone":"r1","params":{"disks":8},"declared":{"params":["disks"]}}`)
	again := index(t, s, "jorc/prod/host/")
	stop2 := keep(t, c, fleet.RecordSyncOptions{Node: "n", Files: files})
	stop2()
	if now := index(t, s, "jorc/prod/host/"); now != again || again == before {
		t.Errorf("a keeper with nothing to correct wrote: index %d, then %d", again, now)
	}
	stop()
	if _, err := c.Record(t.Context(), "n"); !errors.Is(err, cluster.ErrNoMember) {
		t.Errorf("after a stop with leave: %v", err)
	}
}
