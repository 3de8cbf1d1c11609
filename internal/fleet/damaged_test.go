package fleet_test

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
)

// damage writes what is not a document.
func damage(t *testing.T, s *consultest.Server, key string) {
	t.Helper()
	if err := s.Client().KVPut(t.Context(), &consul.KVPair{Key: key, Value: []byte(`{"roles": `)}); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedRecord: a record that cannot be read keeps no other process from being
// shown and chosen, is named, and costs its member no leadership.
func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	c, s := clustertest.TwoMembers(t)
	damage(t, s, "jorc/prod/host/a/member")
	damage(t, s, "jorc/prod/nodes/b")
	_, err := c.Members(t.Context(), fleet.MembersOptions{})
	clustertest.WantIs(t, "Members, where none may be left out", err, kv.ErrDamaged)
	list := func() (nodes, bad []string) {
		t.Helper()
		named := map[string]error{}
		all, err := c.Members(t.Context(), fleet.MembersOptions{
			Need:       cluster.NeedAll,
			Unreadable: func(key string, err error) { named[key] = err },
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			nodes = append(nodes, m.Node)
		}
		for key, err := range named {
			clustertest.WantIs(t, key, err, kv.ErrDamaged)
		}
		return nodes, slices.Sorted(maps.Keys(named))
	}
	if nodes, bad := list(); !slices.Equal(nodes, []string{"b"}) || !slices.Equal(bad, []string{"host/a/member", "nodes/b"}) {
		t.Errorf("members %q, unreadable %q", nodes, bad)
	}
	wantLeaders := func(want ...string) {
		t.Helper()
		if l, err := c.Elect(t.Context()); err != nil || !slices.Equal(l.Leader, want) {
			t.Errorf("leaders are %+v, %v, want %q", l, err, want)
		}
	}
	wantLeaders("a") // it led before
	if err := c.SetCount(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	wantLeaders("a", "b")
	clustertest.AddNode(t, s, "0", "passing", "passing")
	clustertest.Join(t, c, "0")
	damage(t, s, "jorc/prod/host/0/member")
	if left, err := c.Leave(t.Context(), "a", false); !left || err != nil {
		t.Errorf("Leave of a damaged member: %t, %v", left, err)
	}
	wantLeaders("b") // whether 0 may lead is not known
	if left, err := c.Leave(t.Context(), "0", false); !left || err != nil {
		t.Errorf("Leave of a damaged member: %t, %v", left, err)
	}
	damage(t, s, "jorc/prod/host/d/member") // would be the next
	wantLeaders("b")
	damage(t, s, "jorc/prod/current/leaders")
	if nodes, bad := list(); !slices.Equal(nodes, []string{"b"}) || !slices.Equal(bad, []string{"current/leaders", "host/d/member", "nodes/b"}) {
		t.Errorf("members %q, unreadable %q", nodes, bad)
	}
	_, err = c.Elect(t.Context())
	clustertest.WantIs(t, "Elect where it is not known which members lead", err, kv.ErrDamaged)
}

// TestKeeperRepairs: a record that was damaged by hand is what the member's own
// files say again; one of a newer jorc is left alone.
func TestKeeperRepairs(t *testing.T) {
	t.Parallel()
	c, s := clustertest.Initialized(t)
	files := cluster.Record{Roles: []string{"db"}, Zone: "r1", Params: clustertest.Params(t, `{"disks": 4}`)}
	keep(t, c, fleet.RecordSyncOptions{Node: "n", Files: files})
	const want = `{"roles":["db"],"zone":"r1","params":{"disks":4},"declared":{"params":["disks"]}}`
	wantRecord(t, c, "n", want)
	damage(t, s, "jorc/prod/host/n/member")
	wantRecord(t, c, "n", want)

	const newer = `{"format": 99, "roles": "of a newer kind"}`
	if err := s.Client().KVPut(t.Context(), &consul.KVPair{Key: "jorc/prod/host/m/member", Value: []byte(newer)}); err != nil {
		t.Fatal(err)
	}
	damage(t, s, "jorc/prod/host/o/member")
	keep(t, c, fleet.RecordSyncOptions{Node: "m", Files: files})
	keep(t, c, fleet.RecordSyncOptions{Node: "o", Files: files})
	wantRecord(t, c, "o", want) // also one that was damaged before its keeper came
	_, err := c.Record(t.Context(), "m")
	if !errors.Is(err, kv.ErrNewer) {
		t.Errorf("a record of a newer jorc: %v", err)
	}
}
