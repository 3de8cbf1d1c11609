package fleet_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/profile"
)

// TestRequests: a read of the profile is one request, and members are a
// constant number of them.
func TestRequests(t *testing.T) {
	t.Parallel()
	c, s := clustertest.Initialized(t)
	g := &clustertest.Gateway{}
	counted := fleet.New(g.Client(t, s), "jorc", "prod")
	count := func(do func() error) int64 {
		t.Helper()
		before := g.Requests.Load()
		if err := do(); err != nil {
			t.Fatal(err)
		}
		return g.Requests.Load() - before
	}
	ctx := t.Context()
	list := func() error {
		_, err := counted.Members(ctx, fleet.MembersOptions{Need: cluster.NeedAll})
		return err
	}
	clustertest.Join(t, c, "first")
	few := count(list)
	for i := range 30 {
		node := fmt.Sprintf("n%d", i)
		clustertest.AddNode(t, s, node, "passing", "passing")
		clustertest.Join(t, c, node)
	}
	if many := count(list); many != few || many > 6 {
		t.Errorf("1 member takes %d requests, 31 take %d", few, many)
	}
	for name, do := range map[string]func() error{
		"Profile": func() error { _, err := counted.Profile(ctx); return err },
		"View":    func() error { _, err := counted.View(ctx, "n1"); return err },
		"Record":  func() error { _, err := counted.Record(ctx, "n1"); return err },
		"Leaders": func() error { _, err := counted.Leaders(ctx); return err },
		"List":    func() error { _, err := fleet.List(ctx, g.Client(t, s), "jorc"); return err },
	} {
		if n := count(do); n != 1 {
			t.Errorf("%s takes %d requests, want 1", name, n)
		}
	}
}

// TestOutcomeUnknown: a write whose answer never came, with Consul out of reach
// from then on, is neither a success nor a conflict.
func TestOutcomeUnknown(t *testing.T) {
	t.Parallel()
	c, s := clustertest.Initialized(t)
	g := &clustertest.Gateway{}
	behind := fleet.New(g.Client(t, s), "jorc", "prod")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	g.Lose.Store(true)
	_, err := behind.Set(ctx, profile.Scope{}, "n", clustertest.Value(t, "1"), profile.Ref{Absent: true})
	clustertest.WantIs(t, "Set", err, consul.ErrOutcomeUnknown)
	if got := param(t, c, "n"); got != "1" {
		t.Errorf("n is %s; the write had reached Consul", got)
	}
}
