package fleet_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/text"
)

// TestInit: it can be repeated, also at the same time, and then changes nothing.
func TestInit(t *testing.T) {
	t.Parallel()
	c, s := clustertest.New(t)
	if _, err := c.Profile(t.Context()); !errors.Is(err, cluster.ErrNoCluster) {
		t.Errorf("Profile before = %v", err)
	}
	var wg sync.WaitGroup
	created := make([]bool, 16)
	for i := range created {
		wg.Go(func() {
			var err error
			own := fleet.New(s.Client(), "/jorc/", "prod")
			if created[i], err = own.Init(t.Context(), fleet.InitOptions{Leaders: i + 1, Manager: "boss"}); err != nil {
				t.Errorf("Init: %v", err)
			}
		})
	}
	wg.Wait()
	first := slices.Index(created, true)
	if first < 0 || slices.Contains(created[first+1:], true) {
		t.Fatalf("created by %v, want by one", created)
	}
	if got := param(t, c, "cluster/profile"); got != `"prod"` {
		t.Errorf("cluster/profile is %s", got)
	}
	before := index(t, s, "jorc/")
	if again, err := c.Init(t.Context(), fleet.InitOptions{Leaders: 9, Manager: "other"}); again || err != nil {
		t.Errorf("Init again = %v, %v", again, err)
	}
	if now := index(t, s, "jorc/"); now != before {
		t.Errorf("Init again wrote: index %d, then %d", before, now)
	}
	if e, err := kv.NewText(kv.New(s.Client(), "jorc/prod"), "current/control").Get(t.Context()); err != nil || !e.Exists {
		t.Errorf("the key that all agents watch: %+v, %v", e, err)
	}
	l, err := c.Leaders(t.Context())
	if err != nil || l.Count != first+1 || !slices.Equal(l.Manager, []string{"boss"}) {
		t.Errorf("leaders are %+v (%v), want %d and the manager boss", l, err, first+1)
	}
	all, err := c.Members(t.Context(), fleet.MembersOptions{})
	if err != nil || len(all) != 1 || !slices.Equal(all[0].Roles, []string{"manager"}) {
		t.Errorf("members are %+v (%v), want the manager", all, err)
	}
	list, err := fleet.List(t.Context(), s.Client(), "jorc")
	if err != nil || clustertest.JSON(t, list) != `[{"name":"prod","members":1}]` {
		t.Errorf("List = %s, %v", clustertest.JSON(t, list), err)
	}
	if err := c.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if list, err := fleet.List(t.Context(), s.Client(), "jorc"); err != nil || len(list) != 0 {
		t.Errorf("List after Delete = %v, %v", list, err)
	}
}

func TestInitRefuses(t *testing.T) {
	t.Parallel()
	c, s := clustertest.New(t)
	for _, o := range []fleet.InitOptions{{Leaders: -1}, {Leaders: 101}} {
		_, err := c.Init(t.Context(), o)
		clustertest.WantIs(t, "Init", err, cluster.ErrInvalid)
	}
	_, err := c.Init(t.Context(), fleet.InitOptions{Manager: "a/b"})
	clustertest.WantIs(t, "Init with a bad manager", err, text.ErrName)
	for _, name := range []string{"", "a/b", "a b"} {
		_, err := fleet.New(s.Client(), "jorc", name).Init(t.Context(), fleet.InitOptions{})
		clustertest.WantIs(t, "Init of "+name, err, profile.ErrInvalid)
	}
	clustertest.WantIs(t, "Delete without a name", fleet.New(s.Client(), "jorc", "").Delete(t.Context()), cluster.ErrInvalid)
}

// TestDeleteKeepsNeighbours: a name that begins with another is another.
func TestDeleteKeepsNeighbours(t *testing.T) {
	t.Parallel()
	c, s := clustertest.Initialized(t)
	other := fleet.New(s.Client(), "jorc", "prod2")
	if _, err := other.Init(t.Context(), fleet.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ok, err := other.Exists(t.Context()); !ok || err != nil {
		t.Errorf("the neighbour exists: %v, %v", ok, err)
	}
}

func TestProfileChanges(t *testing.T) {
	t.Parallel()
	c, s := clustertest.Initialized(t)
	if err := clustertest.Set(t, c, "n", "1", profile.Ref{Absent: true}); err != nil {
		t.Fatal(err)
	}
	before := index(t, s, "jorc/")
	clustertest.WantIs(t, "set of what is there", clustertest.Set(t, c, "n", "2", profile.Ref{Absent: true}), profile.ErrMismatch)
	one, two := clustertest.Value(t, "1.0"), clustertest.Value(t, "2")
	var mismatch *profile.MismatchError
	if err := clustertest.Set(t, c, "n", "3", profile.Ref{Value: &two}); !errors.As(err, &mismatch) || mismatch.Have.String() != "1" {
		t.Errorf("set with a wrong reference = %v", err)
	}
	if err := clustertest.Set(t, c, "n", "1", profile.Ref{Value: &one}); err != nil {
		t.Errorf("set to the same = %v", err)
	}
	if now := index(t, s, "jorc/"); now != before {
		t.Errorf("something was written: index %d, then %d", before, now)
	}
	if err := clustertest.Set(t, c, "n", "123456789012345678901234567890", profile.Ref{Value: &one}); err != nil {
		t.Error(err)
	}
	if got := param(t, c, "n"); got != "123456789012345678901234567890" {
		t.Errorf("n is %s", got)
	}
	clustertest.WantIs(t, "a value beyond the limit", clustertest.Set(t, c, "big", quoted(512<<10-50), profile.Ref{}), profile.ErrTooLarge)
	if err := clustertest.Set(t, c, "big", quoted(500<<10), profile.Ref{}); err != nil {
		t.Errorf("a value near the limit = %v", err) // too large for a transaction
	}
	if err := clustertest.Set(t, c, "n", "5", profile.Ref{}); err != nil {
		t.Errorf("a change near the limit = %v", err)
	}
	other := fleet.New(s.Client(), "jorc", "none")
	_, err := other.Set(t.Context(), profile.Scope{}, "n", one, profile.Ref{})
	clustertest.WantIs(t, "set without a cluster", err, cluster.ErrNoCluster)
}

// TestOthersNeverFail: references to one param hold while 16 others change
// other params.
func TestOthersNeverFail(t *testing.T) {
	t.Parallel()
	c, s := clustertest.Initialized(t)
	var wg sync.WaitGroup
	for i := range 16 {
		own := fleet.New(s.Client(), "jorc", "prod")
		wg.Go(func() {
			key := string(rune('a' + i))
			ref := profile.Ref{Absent: true}
			for n := range 20 {
				v, _ := profile.Of(n)
				if _, err := own.Set(t.Context(), profile.Scope{}, key, v, ref); err != nil {
					t.Errorf("set %s=%d: %v", key, n, err)
					return
				}
				ref = profile.Ref{Value: &v}
			}
		})
	}
	wg.Wait()
	for i := range 16 {
		if got := param(t, c, string(rune('a'+i))); got != "19" {
			t.Errorf("%c is %s, want 19", 'a'+i, got)
		}
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	c, s := clustertest.Initialized(t)
	s.Kill()
	_, err := c.Profile(t.Context())
	clustertest.WantIs(t, "Profile", err, consul.ErrUnreachable)
	clustertest.WantIs(t, "Set", clustertest.Set(t, c, "n", "1", profile.Ref{}), consul.ErrUnreachable)
}

func quoted(n int) string { return `"` + strings.Repeat("x", n) + `"` }

// TestAddManager: a cluster that exists gets a manager, once.
func TestAddManager(t *testing.T) {
	t.Parallel()
	c, s := clustertest.Initialized(t)
	clustertest.Join(t, c, "a", "db")
	for _, test := range []struct {
		node    string
		changed bool
	}{{"boss", true}, {"boss", false}, {"a", true}} {
		before := index(t, s, "jorc/")
		if changed, err := c.AddManager(t.Context(), test.node); err != nil || changed != test.changed {
			t.Errorf("AddManager(%s) = %v, %v; want %v", test.node, changed, err, test.changed)
		}
		if wrote := index(t, s, "jorc/") != before; wrote != test.changed {
			t.Errorf("AddManager(%s) wrote: %v, want %v", test.node, wrote, test.changed)
		}
	}
	all, err := c.Members(t.Context(), fleet.MembersOptions{})
	if err != nil || len(all) != 2 || !slices.Equal(all[0].Roles, []string{"db", "manager", "leader"}) || !slices.Equal(all[1].Roles, []string{"manager"}) {
		t.Errorf("members are %+v (%v)", all, err)
	}
	_, err = c.AddManager(t.Context(), "a/b")
	clustertest.WantIs(t, "a bad name", err, text.ErrName)
	_, err = fleet.New(s.Client(), "jorc", "none").AddManager(t.Context(), "boss")
	clustertest.WantIs(t, "no cluster", err, cluster.ErrNoCluster)
}

// TestNoLeaders: no member leads until a number of leaders is set, and then they
// are chosen at random among all eligible members.
func TestNoLeaders(t *testing.T) {
	t.Parallel()
	s := clustertest.NewServer(t)
	chosen := map[string]bool{}
	for i := 0; len(chosen) < 5; i++ {
		c := fleet.New(s.Client(), "jorc", fmt.Sprintf("prod-%d", i))
		if _, err := c.Init(t.Context(), fleet.InitOptions{NoLeaders: true, Manager: "boss"}); err != nil {
			t.Fatal(err)
		}
		for _, node := range []string{"a", "b", "c", "d", "e"} {
			clustertest.Join(t, c, node)
		}
		if l, err := c.Elect(t.Context()); err != nil || len(l.Leader) != 0 || l.Count != 0 {
			t.Fatalf("leaders are %+v, %v; want none", l, err)
		}
		if err := c.SetCount(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		l, err := c.Elect(t.Context())
		if err != nil || len(l.Leader) != 3 {
			t.Fatalf("leaders are %+v, %v; want 3", l, err)
		}
		for _, node := range l.Leader {
			chosen[node] = true
		}
	}
	if chosen["boss"] {
		t.Error("the manager leads")
	}
}
