package agent_test

import (
	"fmt"
	"testing"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
)

func (f *grantFleet) budget(b *pace.Budget) {
	f.t.Helper()
	if _, err := cluster.New(f.client, "jorc", "default").SetBudget(f.t.Context(), b); err != nil {
		f.t.Fatal(err)
	}
}

// TestBudgetPacesEveryVersion: with a budget no host begins without a grant: neither with a
// version that was triggered without a policy, nor with one that another program wrote,
// nor where the policy would allow more.
func TestBudgetPacesEveryVersion(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 4)
	f.budget(&pace.Budget{MaxOut: pace.Amount{N: 1}})
	f.orchestrate("h0", nil)
	next := func(version string, begin func()) {
		t.Helper()
		begin()
		f.atWork(version, 1)
		f.openAll(version)
		f.done(version)
		f.neverMore(1)
	}
	next("v2", func() { f.trigger("v2", nil) })
	next("v3", func() {
		doc := kv.NewText(kv.New(f.client, "jorc/default"), cluster.KeyDesired)
		old, err := doc.Get(t.Context())
		if err == nil {
			_, err = doc.CompareAndSwap(t.Context(), old, "v3")
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	next("v4", func() { f.trigger("v4", atOnce(4)) })
}

// TestBudgetOfARunningVersion: a budget that is set while all hosts work on a version stops
// none of them; the next version begins on no host before they are done.
func TestBudgetOfARunningVersion(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 3)
	f.orchestrate("h0", nil)
	f.trigger("v2", nil)
	f.eventually("all to be at work without a grant", func() error {
		for name, h := range f.hosts {
			if got := h.begun(); len(got) == 0 || got[len(got)-1] != "v2" || f.report(name).States[cluster.CategoryConfig].State != cluster.StateRunning {
				return fmt.Errorf("%s began with %v", name, got)
			}
		}
		return nil
	})
	f.budget(&pace.Budget{MaxOut: pace.Amount{N: 1}})
	f.eventually("the orchestrator to pace the version", func() error {
		if s, err := f.rollouts().Show(t.Context()); err != nil || !s.Document.Paced() {
			return fmt.Errorf("%s", f.show())
		}
		return nil
	})
	if all := f.accepted(); len(all) > 0 {
		t.Errorf("%v have a grant while all work", all)
	}
	f.openAll("v2")
	f.done("v2")
}

// TestBudgetCountsWhatFellOut: a host whose check fails uses the budget up: no other is taken
// out, and the reason names it; it costs nothing to update it itself.
func TestBudgetCountsWhatFellOut(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 3)
	check := func(status string) {
		t.Helper()
		if err := f.client.CatalogRegister(t.Context(), &consul.CatalogRegistration{
			Node: "h1", Address: "10.0.0.1", Checks: consul.HealthChecks{{Node: "h1", CheckID: "disk", Status: status}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	check("critical")
	f.budget(&pace.Budget{MaxOut: pace.Amount{N: 1}})
	if out := f.account().Out(); len(out) != 1 || out[0].Node != "h1" || out[0].Out != "a check is critical" {
		t.Errorf("%+v are out of service, want h1 alone", out)
	}
	f.orchestrate("h0", nil)
	f.trigger("v2", atOnce(3))
	if names := f.atWork("v2", 1); names[0] != "h1" {
		t.Fatalf("%v is at work, want h1: it is out of service already", names)
	}
	limit, ok := f.account().Admit("h2")
	if got, want := limit.String(), "the budget: 1 of 1 hosts are out of service"; ok || got != want {
		t.Errorf("h2 may be taken out: %t (%s), want %q", ok, got, want)
	}
	if got, want := f.account().Explain(limit), "the budget: 1 of 1 hosts are out of service: h1 (it has a grant of v2)"; got != want {
		t.Errorf("it is explained as %q, want %q", got, want)
	}
	reasons, err := f.rollouts().Counting(change.Places).Why(t.Context(), "h2")
	if want := "the budget: 1 of 1 hosts are out of service: h1 (it has a grant of v2)"; err != nil || len(reasons) != 1 || reasons[0].Detail != want {
		t.Errorf("h2 waits because of %+v (%v), want %q", reasons, err, want)
	}
	for _, name := range []string{"h0", "h2"} {
		if got := f.hosts[name].begun(); len(got) != 1 {
			t.Errorf("%s began with %v while h1 was out of service", name, got)
		}
	}
	check("passing")
	f.openAll("v2")
	f.done("v2")
	f.neverMore(1)
}

// account is who is out of service.
func (f *grantFleet) account() *pace.Account {
	f.t.Helper()
	c := cluster.New(f.client, "jorc", "default")
	s, err := c.Load(f.t.Context(), cluster.NeedState)
	if err != nil {
		f.t.Fatal(err)
	}
	stored, err := f.rollouts().Load(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	members, err := rollout.StateOf(&s, stored)
	if err != nil {
		f.t.Fatal(err)
	}
	account, err := change.Places(f.t.Context(), c, &s, members)
	if err != nil {
		f.t.Fatal(err)
	}
	return account
}
