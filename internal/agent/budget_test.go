package agent_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/budget"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
)

func (f *grantFleet) budget(b *pace.Budget) {
	f.t.Helper()
	if _, err := fleet.New(f.client, "jorc", "default").SetBudget(f.t.Context(), b); err != nil {
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
	reasons, err := f.rollouts().Counting(budget.OfMembers(nil)).Why(t.Context(), "h2")
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
	c := fleet.New(f.client, "jorc", "default")
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
	account, err := budget.OfMembers(nil)(f.t.Context(), c, &s, members)
	if err != nil {
		f.t.Fatal(err)
	}
	return account
}

func (f *grantFleet) ask(id string, q runs.Request) {
	f.t.Helper()
	if _, _, err := runs.New(fleet.New(f.client, "jorc", "default").Store()).Ask(f.t.Context(), id, q, "ann"); err != nil {
		f.t.Fatal(err)
	}
}

// wantRun waits until the run is as wanted, and returns it.
func (f *grantFleet) wantRun(id, what string, ok func(runs.Detail) bool) (d runs.Detail) {
	f.t.Helper()
	f.eventually(id+" "+what, func() (err error) {
		if d, err = runs.New(fleet.New(f.client, "jorc", "default").Store()).Show(f.t.Context(), id); err == nil && !ok(d) {
			err = fmt.Errorf("it is %s (%s): %+v", d.State, d.Why, d.Members)
		}
		return err
	})
	return d
}

func ended(s runs.State) func(runs.Detail) bool {
	return func(d runs.Detail) bool { return d.State == s }
}

// working are the members on which the run is at work.
func working(d runs.Detail) (names []string) {
	for _, m := range d.Members {
		if m.State == runs.Running {
			names = append(names, m.Node)
		}
	}
	return names
}

// TestRunsWithinTheBudget: a run of a workflow that disturbs has as many hosts out of service
// as the budget allows, each in maintenance, and a version waits for it; a run that does not
// disturb waits for nothing.
func TestRunsWithinTheBudget(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 3)
	f.budget(&pace.Budget{MaxOut: pace.Amount{N: 1}})
	f.orchestrate("h0", nil)
	f.ask("p1", runs.Request{Workflow: "patch"})
	d := f.wantRun("p1", "to be at work on one host", func(d runs.Detail) bool { return len(working(d)) == 1 && len(d.Denied) == 2 })
	first := working(d)[0]
	if !strings.Contains(d.Why, "the budget: 1 of 1 hosts are out of service") {
		t.Errorf("the others wait because of %q, want the budget", d.Why)
	}
	if out := f.account().Out(); len(out) != 1 || out[0].Node != first || out[0].For != cluster.RunChange("p1") {
		t.Errorf("%+v are out of service, want %s for run.p1", out, first)
	}
	f.trigger("v2", atOnce(3)) // may begin where the run has taken the host out already
	f.openAll("v2")
	f.ask("look", runs.Request{Workflow: "look", Nodes: []string{"h2"}, Limits: runs.Limits{}})
	if first == "h2" {
		t.Fatalf("%s is the first member, want h0", first)
	}
	f.mu.Lock()
	if len(f.out) != 1 || !f.out[first] {
		t.Errorf("%v are in maintenance, want %s", f.out, first)
	}
	f.mu.Unlock()
	for _, h := range f.hosts {
		h.open("patch")
	}
	f.wantRun("p1", "to be done", ended(runs.Done))
	f.wantRun("look", "to be done", ended(runs.Done))
	f.done("v2")
	f.neverMore(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.out) > 0 {
		t.Errorf("%v are still in maintenance", f.out)
	}
}

// TestOverBudget: a version and a run for which an operator gave a reason go over the budget, also when the reason comes while
// the version waits; what they take out keeps others waiting.
func TestOverBudget(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 3)
	f.budget(&pace.Budget{MaxOut: pace.Amount{N: 1}})
	f.orchestrate("h0", nil)
	f.trigger("v2", atOnce(3))
	f.atWork("v2", 1)
	if _, err := f.rollouts().Trigger(t.Context(), rollout.Request{Version: "v2", Exceptions: pace.Exceptions{OverBudget: "the hole is open"}}); err != nil {
		t.Fatal(err)
	}
	f.atWork("v2", 3)
	f.openAll("v2")
	f.done("v2")
	f.ask("p1", runs.Request{Workflow: "patch", Nodes: []string{"h0", "h1"}, Exceptions: pace.Exceptions{OverBudget: "the hole is open"}})
	f.wantRun("p1", "to be at work on both hosts", func(d runs.Detail) bool { return len(working(d)) == 2 })
	f.trigger("v3", atOnce(3))
	f.openAll("v3")
	f.eventually("h2 to wait for the budget", func() error {
		reasons, err := f.rollouts().Counting(budget.OfMembers(nil)).Why(t.Context(), "h2")
		if err != nil || len(reasons) != 1 || !strings.Contains(reasons[0].Detail, "the budget: 2 of 1 hosts are out of service: h0 (") {
			return fmt.Errorf("%+v (%v)", reasons, err)
		}
		return nil
	})
	for _, h := range f.hosts {
		h.open("patch")
	}
	f.done("v3")
}

// TestDisturbsAsAsked: a run that was asked for with disturbs takes its hosts out of service one after
// the other although its workflow does not say so, and one waits for a host that is held.
func TestDisturbsAsAsked(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 2)
	f.budget(&pace.Budget{MaxOut: pace.Amount{N: 1}})
	c := fleet.New(f.client, "jorc", "default")
	if _, err := c.Hold(t.Context(), cluster.Scope{Node: "h1"}, cluster.Hold{By: "ann", Reason: "disk"}); err != nil {
		t.Fatal(err)
	}
	f.orchestrate("h0", nil)
	f.ask("r1", runs.Request{Workflow: "look", Disturbs: true})
	f.wantRun("r1", "to wait for the host that is held", func(d runs.Detail) bool { return d.Counts.Done == 1 && strings.Contains(d.Why, "h1: it is held") })
	if _, err := c.Unhold(t.Context(), cluster.Scope{Node: "h1"}, cluster.Hold{}); err != nil {
		t.Fatal(err)
	}
	f.wantRun("r1", "to be done", ended(runs.Done))
	freeze := pace.Freeze{ID: "f1", Roles: []string{"web"}, To: time.Now().Add(time.Hour), Reason: "the sale"}
	if _, err := c.AddFreeze(t.Context(), freeze); err != nil {
		t.Fatal(err)
	}
	f.ask("r2", runs.Request{Workflow: "patch"})
	f.ask("look", runs.Request{Workflow: "look", Nodes: []string{"h1"}})
	f.wantRun("r2", "to wait for the freeze of h1", func(d runs.Detail) bool { return len(working(d)) == 1 })
	for _, h := range f.hosts {
		h.open("patch")
	}
	f.wantRun("r2", "to wait for the freeze of h1", func(d runs.Detail) bool {
		return d.Counts.Done == 1 && strings.Contains(d.Why, "h1: frozen until")
	})
	f.wantRun("look", "to be done", ended(runs.Done)) // although it is younger
	if _, err := c.RemoveFreeze(t.Context(), "f1"); err != nil {
		t.Fatal(err)
	}
	f.wantRun("r2", "to be done", ended(runs.Done))
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.most != 1 || len(f.out) > 0 {
		t.Errorf("%d were in maintenance at the same time, and %v are; want 1 and none", f.most, f.out)
	}
}

// TestRunSurvivesTheAgent: the maintenance for a run stays while the agent is restarted, as convergence does
// not end it, and ends with the run; the maintenance for a run that was forgotten meanwhile ends, too.
func TestRunSurvivesTheAgent(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 1)
	stop := f.orchestrate("boss", nil)
	h := f.hosts["h0"]
	inMaintenance := func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.out["h0"]
	}
	restart := func(meanwhile func()) {
		t.Helper()
		h.stop()
		meanwhile()
		h.start(f.client, nil)
	}
	f.ask("p1", runs.Request{Workflow: "patch"})
	f.wantRun("p1", "to be at work", func(d runs.Detail) bool { return len(working(d)) == 1 })
	restart(func() {})
	// Its convergence reports again; had it ended the maintenance, it would be over now.
	f.ask("look", runs.Request{Workflow: "look"})
	if !inMaintenance() {
		t.Error("the restart ended the maintenance of a run that continues")
	}
	h.open("patch")
	f.wantRun("p1", "to be done", ended(runs.Done))
	f.wantRun("look", "to end", ended(runs.Done))
	if inMaintenance() {
		t.Error("the run has ended, and the maintenance has not")
	}
	if err := os.Remove(filepath.Join(h.dir, "patch")); err != nil {
		t.Fatal(err)
	}
	f.ask("p2", runs.Request{Workflow: "patch"})
	f.wantRun("p2", "to be at work", func(d runs.Detail) bool { return len(working(d)) == 1 })
	stop()
	restart(func() {
		if _, err := kv.New(f.client, "jorc/default").Txn().Set(cluster.GrantsKey("h0"), []byte(`{"format":1,"grants":[]}`)).Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	f.eventually("the maintenance of a forgotten run to end", func() error {
		if inMaintenance() {
			return errors.New("it is in maintenance")
		}
		return nil
	})
}
