package runs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/profile"
)

// TestRun: a workflow runs on members, one after the other where it may, and
// all of it can be read.
func TestRun(t *testing.T) {
	t.Parallel()
	x := newSite(t, "a", "b", "c", "m/manager")
	x.orchestrate("o", quickDecider())
	for _, node := range []string{"a", "b", "c", "m"} {
		x.work(node, sh("one", "echo hello; "), sh("two", `echo broken >&2; [ "$JORC_NODE" != b ]`))
	}
	x.ask("r", Request{Params: params(t, `{"k": 1}`)})
	d := x.becomes("r", "failed: a=done b=failed c=done")
	b := d.Members[1]
	if b.Task != "two" || b.ExitCode != 1 || !strings.Contains(b.Why, "broken") || d.Why != "1 of 3 members failed" {
		t.Errorf("got %+v", d)
	}
	if tail, err := x.runs.Tail(t.Context(), "r", "b"); err != nil || tail != "broken\n" {
		t.Errorf("Tail = %q, %v", tail, err)
	}
	if tails, err := x.runs.Tails(t.Context(), "r"); err != nil || tails["b"] != "broken\n" {
		t.Errorf("Tails = %q, %v", tails, err)
	}
	if got := x.traces("a", "ran"); got != "one\ntwo\n" {
		t.Errorf("a ran %q", got)
	}
	x.wasTold(event.ChangeBegan, "")
	x.wasTold(event.ChangeEnded, "")
	x.wasTold(event.ChangeHostFailed, "b")
	x.ask("unknown", Request{Workflow: "nonsense", Filter: `Node == "a"`})
	d = x.becomes("unknown", "failed: a=failed")
	if want := `workflow "nonsense": no such workflow on this node; workflows: w`; d.Members[0].Why != want {
		t.Errorf("got %q, want %q", d.Members[0].Why, want)
	}
	all, bad, err := x.runs.List(t.Context())
	if err != nil || len(bad) > 0 || len(all) != 2 || all[0].ID != "unknown" || all[1].ID != "r" {
		t.Errorf("List = %+v, %v, %v", all, bad, err)
	}
}

func params(t testing.TB, text string) profile.Params {
	t.Helper()
	p, err := profile.ParseParams(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAsk(t *testing.T) {
	t.Parallel()
	x := newSite(t)
	ctx := t.Context()
	q := Request{Workflow: "w", Params: params(t, `{"k": 1}`)}
	if _, created, err := x.runs.Ask(ctx, "r", q, "ann"); err != nil || !created {
		t.Fatalf("got %v, %v", created, err)
	}
	before := index(t, x.server, "jorc/"+x.name+"/")
	if r, created, err := x.runs.Ask(ctx, "r", q, "bob"); err != nil || created || r.By != "ann" {
		t.Errorf("the same again: %+v, %v, %v", r, created, err)
	}
	q.Params = params(t, `{"k": 2}`)
	if _, _, err := x.runs.Ask(ctx, "r", q, "ann"); !errors.Is(err, ErrTaken) || !errors.Is(err, kv.ErrConflict) {
		t.Errorf("another under its id: %v", err)
	}
	for _, id := range []string{"", ".x", "-x", "a/b", "a b", strings.Repeat("x", 97), "ä"} {
		if _, _, err := x.runs.Ask(ctx, id, q, "ann"); !errors.Is(err, ErrInvalid) {
			t.Errorf("id %q: %v", id, err)
		}
	}
	for _, bad := range []Request{{}, {Workflow: "w", OnManager: true, Role: "x"}, {Workflow: "w", Filter: "=="}} {
		if _, _, err := x.runs.Ask(ctx, "s", bad, "ann"); !errors.Is(err, ErrInvalid) && !errors.Is(err, cluster.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if after := index(t, x.server, "jorc/"+x.name+"/"); after != before {
		t.Error("something was written")
	}
	if NewID(time.Now()) >= NewID(time.Now().Add(time.Second)) || CheckID(NewID(time.Now())) != nil {
		t.Error("IDs do not sort by time")
	}
}

func TestApproveAndCancel(t *testing.T) {
	t.Parallel()
	x := newSite(t, "a", "b")
	x.orchestrate("o", quickDecider())
	x.work("a", sh("one", "until [ -e $DIR/go ]; do sleep 0.02; done"), sh("two", ""))
	ctx := t.Context()
	if _, _, err := x.runs.Approve(ctx, "r", "bob"); !errors.Is(err, ErrNoRun) {
		t.Errorf("Approve before: %v", err)
	}
	x.ask("r", Request{NeedsApproval: true})
	for _, want := range []bool{true, false} {
		if _, changed, err := x.runs.Approve(ctx, "r", "bob"); err != nil || changed != want {
			t.Errorf("Approve = %v, %v, want %v", changed, err, want)
		}
	}
	x.becomes("r", "running: a=running b=pending")
	for _, want := range []bool{true, false} {
		if _, changed, err := x.runs.Cancel(ctx, "r", "bob", false); err != nil || changed != want {
			t.Errorf("Cancel = %v, %v, want %v", changed, err, want)
		}
	}
	x.becomes("r", "running: a=running b=cancelled")
	consultest.Eventually(t, "a to be told", func(ctx context.Context) error {
		q, err := x.runs.queueAt(ctx, "a")
		if err == nil && q.Jobs[0].Cancel != "bob" {
			err = errors.New("not yet")
		}
		return err
	})
	touch(t, x, "a", "go")
	d := x.becomes("r", "cancelled: a=cancelled b=cancelled")
	if got := x.traces("a", "ran"); got != "one\n" || d.Members[0].Why != "by bob" {
		t.Errorf("a ran %q: %+v", got, d.Members[0])
	}
	x.ask("never", Request{NeedsApproval: true})
	if _, changed, err := x.runs.Cancel(ctx, "never", "bob", false); err != nil || !changed {
		t.Errorf("Cancel = %v, %v", changed, err)
	}
	x.becomes("never", "cancelled:")
	if _, _, err := x.runs.Approve(ctx, "never", "bob"); !errors.Is(err, ErrState) {
		t.Errorf("Approve after Cancel: %v", err)
	}
}

// TestSettled: while nothing changes nothing is written.
func TestSettled(t *testing.T) {
	t.Parallel()
	x := newSite(t, "a")
	x.work("a", sh("one", ""))
	x.set(ParamRules, `[{"workflow": "w", "filter": "Node == \"x\""}]`)
	stop := x.orchestrate("o", quickDecider())
	x.ask("r", Request{})
	x.becomes("r", "done: a=done")
	x.wasTold(event.RuleAdded, "")
	stop()
	d := quickDecider()
	cycle := func() {
		t.Helper()
		if told, err := x.decide(t.Context(), x.cluster.Store(), x.server.Client(), "o", d); err != nil || len(told) > 0 {
			t.Errorf("a cycle without news: %v, %v", told, err)
		}
	}
	cycle()
	before := index(t, x.server, "jorc/"+x.name+"/runs/")
	queue := index(t, x.server, "jorc/"+x.name+"/host/")
	for range 3 {
		cycle()
	}
	if index(t, x.server, "jorc/"+x.name+"/runs/") != before || index(t, x.server, "jorc/"+x.name+"/host/") != queue {
		t.Error("cycles without news write")
	}
}

func TestRules(t *testing.T) {
	t.Parallel()
	x := newSite(t, "a", "b")
	x.orchestrate("o", quickDecider())
	for _, node := range []string{"a", "b", "c"} {
		x.work(node, sh("one", ""))
	}
	x.set(ParamRules, `[{"name": "base", "workflow": "w"}, {"name": "second", "workflow": "w", "after": "base", "filter": "Node != \"b\"", "params": {"n": 1}},
		{"name": "bad", "workflow": "w", "filter": "Nonsense =="}, {"name": "loop", "workflow": "x", "after": "loop"}]`)
	rules, bad := ParseRules(paramValue(t, x, ParamRules))
	if len(rules) != 2 || len(bad) != 2 {
		t.Fatalf("rules %+v, bad %+v", rules, bad)
	}
	base, second := rules[0].id(), rules[1].id()
	x.becomes(base, "done: a=done b=done")
	x.becomes(second, "done: a=done")
	x.wasTold(event.RuleInvalid, "")
	x.join("c")
	x.becomes(base, "done: a=done b=done c=done")
	x.becomes(second, "done: a=done c=done")
	if _, _, err := x.runs.Cancel(t.Context(), base, "ann", false); !errors.Is(err, ErrState) {
		t.Errorf("Cancel: %v", err)
	}
	if got := x.traces("a", "ran"); got != "one\none\n" {
		t.Errorf("a ran %q", got)
	}
	x.set(ParamRules, `[{"name": "base", "workflow": "w", "params": {"rev": 2}}]`)
	rules, _ = ParseRules(paramValue(t, x, ParamRules))
	x.becomes(rules[0].id(), "done: a=done b=done c=done")
	x.becomes(base, "cancelled: a=done b=done c=done")
	x.set(ParamRules, `[{"name": "base", "workflow": "w"}]`)
	x.becomes(base, "done: a=done b=done c=done")
	if got := x.traces("b", "ran"); got != "one\none\n" {
		t.Errorf("b ran %q: what it did for a revision is not to be done again", got)
	}
}

func paramValue(t *testing.T, x *site, key string) profile.Value {
	t.Helper()
	d, err := x.cluster.Profile(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d.Params[key]
}

// TestPaused: nothing new begins.
func TestPaused(t *testing.T) {
	t.Parallel()
	x := newSite(t, "a")
	if _, err := x.cluster.Pause(t.Context(), cluster.Hold{}); err != nil {
		t.Fatal(err)
	}
	d := quickDecider()
	x.ask("r", Request{})
	if told, err := x.decide(t.Context(), x.cluster.Store(), x.server.Client(), "o", d); err != nil || len(told) > 0 {
		t.Errorf("got %v, %v", told, err)
	}
	x.becomes("r", "pending:")
	if _, err := x.cluster.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	x.orchestrate("o", d)
	x.work("a", sh("one", ""))
	x.becomes("r", "done: a=done")
}

// TestDamaged: what cannot be read is reported, and the others continue.
func TestDamaged(t *testing.T) {
	t.Parallel()
	x := newSite(t, "a", "b")
	put := func(key, text string) {
		t.Helper()
		if _, err := x.cluster.Store().Txn().Set(key, []byte(text)).Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	put(cluster.ResultsKey("b"), "nonsense")
	put(keyActive+"bad", "")
	put("runs/bad/spec", "{")
	put(keyActive+"newer", "")
	put("runs/newer/spec", `{"format": 99}`)
	put(keyActive+"none", "")
	x.ask("r", Request{Filter: `Node == "a"`})
	x.orchestrate("o", quickDecider())
	x.work("a", sh("one", ""))
	x.becomes("r", "done: a=done")
	consultest.Eventually(t, "all that is wrong", func(context.Context) error {
		x.mu.Lock()
		defer x.mu.Unlock()
		wrong := map[string]int{}
		for _, d := range x.told {
			if d.Kind == event.RunUnreadable {
				wrong[d.After]++
			}
		}
		if len(wrong) != 4 || wrong[""]+wrong["bad"]+wrong["newer"]+wrong["none"] != 4 {
			return errors.New("told other things")
		}
		return nil
	})
	if _, bad, err := x.runs.List(t.Context()); err != nil || len(bad) != 2 {
		t.Errorf("List: %v, %v", bad, err)
	}
}

// TestPrune: the last runs are kept, and nothing of the others.
func TestPrune(t *testing.T) {
	t.Parallel()
	x := newSite(t)
	d := quickDecider()
	for i := range keepRuns + 15 {
		x.ask(NewID(epoch.Add(time.Duration(i)*time.Second)), Request{})
	}
	for range 3 {
		if _, err := x.decide(t.Context(), x.cluster.Store(), x.server.Client(), "o", d); err != nil {
			t.Fatal(err)
		}
	}
	all, _, err := x.runs.List(t.Context())
	if err != nil || len(all) != keepRuns {
		t.Errorf("%d runs are left, %v", len(all), err)
	}
	names, err := kv.NewTextTree(x.cluster.Store(), "runs/").Names(t.Context())
	if err != nil || len(names) != 2*keepRuns {
		t.Errorf("%d keys are left, %v", len(names), err)
	}
}

func touch(t *testing.T, x *site, node, name string) {
	t.Helper()
	write(t, x.dir+"/"+node+"/traces/"+name)
}

// TestManyLost: a member that is lost to more runs at once than a transaction
// holds is reported in several.
func TestManyLost(t *testing.T) {
	t.Parallel()
	x := newSite(t, "a")
	x.agent("a", false)
	const many = 70
	for i := range many {
		x.ask(fmt.Sprintf("r%d", i), Request{})
	}
	x.orchestrate("o", quickDecider())
	for i := range many {
		x.becomes(fmt.Sprintf("r%d", i), "failed: a=lost")
	}
}
