package runs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/profile"
)

func windowsAt(t *testing.T, text string) []pace.Window {
	t.Helper()
	all, err := pace.ParseWindows(text)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestPlanWindow: a job begins within the windows of its run only; what waits for a window is
// not before other runs and not lost, and a job that the host did not begin in time is taken back.
func TestPlanWindow(t *testing.T) {
	t.Parallel()
	w := newWorld("a", "b", "m/manager")
	w.now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	at := func(hour, minute int) { w.now = time.Date(2026, 11, 23, hour, minute, 0, 0, time.UTC) }
	w.ask("r", Request{Workflow: "w", Windows: windowsAt(t, "14:00-15:00")})
	w.ask("s", Request{Workflow: "w"})
	w.ask("m", Request{Workflow: "w", OnManager: true, Windows: windowsAt(t, "14:00-15:00")})
	w.want(t, "r", "running: a=waiting b=waiting")
	w.want(t, "s", "running: a=pending b=pending | a b")
	w.want(t, "m", "running:")
	for _, id := range []string{"r", "m"} {
		if why := w.runs[id].Run.Why; !strings.Contains(why, "outside the window until 2026-11-23T14:00:00Z") {
			t.Errorf("%s waits because of %q", id, why)
		}
	}
	if c := w.plan(); !c.Again.Equal(time.Date(2026, 11, 23, 14, 0, 0, 0, time.UTC)) {
		t.Errorf("the next plan is at %v", c.Again)
	}
	w.begin("a", "b")
	w.end(Done, "a", "b")
	w.agent("b", false)
	at(13, 59)
	w.want(t, "r", "running: a=waiting b=waiting")
	w.agent("b", true)
	at(14, 0)
	w.want(t, "r", "running: a=pending b=pending | a b")
	w.want(t, "m", "running: m=pending | m")
	if e := w.queues["a"].Jobs[0]; !e.Until.Equal(time.Date(2026, 11, 23, 15, 0, 0, 0, time.UTC)) {
		t.Errorf("a may begin until %v", e.Until)
	}
	w.begin("a")
	at(15, 0)
	w.want(t, "r", "running: a=running b=waiting | a")
	w.want(t, "m", "running:")
	w.end(Done, "a")
	w.now = w.now.AddDate(0, 0, 1).Add(-time.Hour)
	w.want(t, "r", "running: a=done b=pending | b")
	if job := w.queues["b"].Jobs[0].Job; job != "run-r.2" {
		t.Errorf("b has the job %s: on the host the first one has ended", job)
	}
	w.begin("b", "m")
	w.end(Done, "b", "m")
	w.want(t, "r", "done: a=done b=done")
	w.want(t, "m", "done: m=done")
}

// TestPlanFrozen: a freeze holds a run that disturbs, unless it was asked for during the freeze,
// and no other one; a job that the host did not begin before the freeze is taken back.
func TestPlanFrozen(t *testing.T) {
	t.Parallel()
	w := newWorld("a", "b", "c")
	w.freezes = pace.Freezes{{ID: "f1", From: w.now.Add(time.Hour), To: w.now.Add(2 * time.Hour), Reason: "the sale"}}
	w.ask("d", Request{Workflow: "w", Disturbs: true, Nodes: []string{"a"}})
	w.ask("n", Request{Workflow: "w", Disturbs: true, Nodes: []string{"b"}, Exceptions: pace.Exceptions{DuringFreeze: "a hole in the fence"}})
	w.ask("p", Request{Workflow: "w", Nodes: []string{"c"}})
	w.want(t, "d", "running: a=pending | a")
	if a, b := w.queues["a"].Jobs[0].Until, w.queues["b"].Jobs[0].Until; !a.Equal(w.now.Add(time.Hour)) || !b.IsZero() {
		t.Errorf("a may begin until %v, b until %v", a, b)
	}
	w.now = w.now.Add(time.Hour)
	w.want(t, "d", "running: a=waiting")
	w.want(t, "n", "running: b=pending | b")
	w.want(t, "p", "running: c=pending | c")
	if why := w.runs["d"].Run.Why; !strings.Contains(why, "by freeze f1: the sale") {
		t.Errorf("it waits because of %q", why)
	}
	w.now = w.now.Add(time.Hour)
	w.want(t, "d", "running: a=pending | a")
}

// TestWindowOfRule: the window of a rule holds its members, and another window is another
// time of the same run: members do not run it again.
func TestWindowOfRule(t *testing.T) {
	t.Parallel()
	x := newSite(t, "a")
	now := time.Now().UTC()
	closed := now.Add(2*time.Hour).Format("15:04") + "-" + now.Add(3*time.Hour).Format("15:04")
	rule := func(window string) {
		x.set(ParamRules, `[{"name": "base", "workflow": "w", "windows": ["`+window+`"]}]`)
	}
	rule(closed)
	x.orchestrate("o", quickDecider())
	x.work("a", sh("one", ""))
	id := Rule{Name: "base", Workflow: "w", Params: profile.Params(nil)}.id()
	x.becomes(id, "running: a=pending")
	if _, err := os.Stat(filepath.Join(x.dir, "a", "traces", "ran")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it ran outside of its window: %v", err)
	}
	rule("00:00-24:00")
	x.becomes(id, "done: a=done")
	rule(closed)
	consultest.Eventually(t, "the window of the run", func(ctx context.Context) error {
		r, err := x.runs.Run(ctx, id)
		if err == nil && r.Request.Windows[0].String() != closed {
			err = errors.New(r.Request.Windows[0].String())
		}
		return err
	})
	x.becomes(id, "done: a=done")
	if ran := x.traces("a", "ran"); ran != "one\n" {
		t.Errorf("it ran: %q", ran)
	}
}

// TestLateJob: a host begins no job after its time, and does the next attempt when it is
// there.
func TestLateJob(t *testing.T) {
	t.Parallel()
	x := newSite(t, "a")
	x.ask("r", Request{})
	queue := func(job string, until time.Time) change.Grants {
		return Queue{Jobs: []Queued{{Run: "r", Until: until, Result: Result{Job: job}}}}.Granted(change.Grants{}, time.Now())
	}
	grants := change.GrantsAt(x.runs.store, "a")
	w := x.worker(x.server.Client(), "a", sh("one", ""))
	begun := make(chan struct{}, 1)
	w.o.Begin = func(context.Context) (uint64, error) { begun <- struct{}{}; return 0, nil }
	e, err := grants.CompareAndSwap(t.Context(), kv.Entry[change.Grants]{}, queue("run-r", time.Now().Add(-time.Second)))
	if err != nil {
		t.Fatal(err)
	}
	x.background(func(ctx context.Context) { _ = w.Run(ctx) })
	<-begun // from here it may begin
	if r, err := x.runs.results.At("a").Get(t.Context()); err != nil || r.Exists {
		t.Errorf("it said %+v, %v", r.Value, err)
	}
	if _, err := grants.CompareAndSwap(t.Context(), e, queue("run-r.2", time.Time{})); err != nil {
		t.Fatal(err)
	}
	consultest.Eventually(t, "the next attempt", func(ctx context.Context) error {
		q, err := x.runs.queueAt(ctx, "a")
		if err == nil && q.Jobs[0].State != Done {
			err = errors.New(string(q.Jobs[0].State))
		}
		return err
	})
	if ran := x.traces("a", "ran"); ran != "one\n" {
		t.Errorf("it ran: %q", ran)
	}
}
