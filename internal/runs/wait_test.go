package runs

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/workflow"
)

// gate is what a task requires: it is there when open is closed.
type gate struct{ open chan struct{} }

func (g gate) Missing(context.Context, []config.Requires) (string, error) {
	select {
	case <-g.open:
		return "", nil
	default:
		return "waiting for db: 0 of 1 functional", nil
	}
}

func (g gate) Wait(ctx context.Context, _ []config.Requires) error {
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestWaits: what is required is checked on the node before a task is run;
// what a member waits for stands in the run, and no longer than that.
func TestWaits(t *testing.T) {
	t.Parallel()
	x := newSite(t, "a")
	x.orchestrate("o", quickDecider())
	dir := filepath.Join(x.dir, "a")
	w, g := x.worker(x.server.Client(), "a"), gate{make(chan struct{})}
	one := sh("one", "until [ -e $DIR/go ]; do sleep 0.02; done")
	one.Requires = []config.Requires{{Target: "db"}}
	two := sh("two", "[ -e $DIR/restored ] || { echo the database is being restored; exit 196; }")
	w.o.Runner = workflow.New(workflow.Options{
		StateDir: filepath.Join(dir, "state"), Node: "a", Workflows: []config.Workflow{{Name: "w", Tasks: []config.Task{one, two}}},
		Environ: []string{"DIR=" + filepath.Join(dir, "traces")}, Requirements: g,
	})
	x.background(func(ctx context.Context) {
		if err := w.Run(ctx); err != nil {
			t.Errorf("the worker: %v", err)
		}
	})
	x.ask("r", Request{})
	x.waits("r", "one", "waiting for db: 0 of 1 functional")
	if got := x.traces("a", "ran"); got != "" {
		t.Errorf("it ran %q: what it requires was not there", got)
	}
	close(g.open)
	x.waits("r", "", "")
	consultest.Eventually(t, "the first task", func(context.Context) error {
		if got := x.traces("a", "ran"); got != "one\n" {
			return fmt.Errorf("it ran %q", got)
		}
		return nil
	})
	touch(t, x, "a", "go")
	x.waits("r", "two", "the database is being restored")
	touch(t, x, "a", "restored")
	if d := x.becomes("r", "done: a=done"); d.Members[0].Why != "" || d.Members[0].Task != "" {
		t.Errorf("it is done, and waits for %q at %q", d.Members[0].Why, d.Members[0].Task)
	}
}

// waits until the only member of a running run waits for that reason.
func (x *site) waits(id, task, why string) {
	x.t.Helper()
	consultest.Eventually(x.t, fmt.Sprintf("run %s to wait for %q", id, why), func(ctx context.Context) error {
		d, err := x.runs.Show(ctx, id)
		if err != nil {
			return err
		}
		if len(d.Members) != 1 || d.Members[0].State != Running || d.Members[0].Task != task || !strings.HasSuffix(d.Members[0].Why, why) || why == "" && d.Members[0].Why != "" {
			return fmt.Errorf("it is %+v", d.Members)
		}
		return nil
	})
}

// TestWaitsUntold: a job does not wait longer because its reason cannot be
// reported.
func TestWaitsUntold(t *testing.T) {
	t.Parallel()
	x := newSite(t, "a")
	j := &grantedJob{w: x.worker(x.server.Client(), "a"), e: Queued{Result: Result{Job: "run-gone"}}} // it is not granted
	j.log = j.w.o.Log
	var waited bool
	again, err := j.wait(t.Context(), workflow.Wait{Result: workflow.Result{State: workflow.Pending, Why: "waiting for db"}, Until: func(context.Context) error {
		waited = true
		return nil
	}})
	if err != nil || !again || !waited || j.waits {
		t.Errorf("wait: %v, %v, waited %v, reported %v", again, err, waited, j.waits)
	}
	if e, err := x.runs.results.At("a").Get(t.Context()); err != nil || e.Exists {
		t.Errorf("the results are %+v, %v", e, err)
	}
}

// TestAssessIdle: members are judged by their last run, whatever the order.
func TestAssessIdle(t *testing.T) {
	t.Parallel()
	at := func(minute int) []Change { return []Change{{At: epoch.Add(time.Duration(minute) * time.Minute)}} }
	run := func(id string, s State, members ...Member) Detail {
		return Detail{Run: Run{ID: id, State: s, Why: "1 of 1 members failed"}, Members: members}
	}
	job := func(node string, s State, minute int) Member {
		return Member{Node: node, Job: Job{State: s, Why: "it burns", History: at(minute)}}
	}
	onManager := run("m", Failed, job("m1", Failed, 1))
	onManager.Request.OnManager = true
	moved := run("moved", Done, job("a", Lost, 3), job("m1", Done, 4))
	moved.Request.OnManager = true
	for _, test := range []struct {
		name string
		runs []Detail
		seen string
		want string
	}{
		{"nothing", nil, "", ""},
		{"failed before", []Detail{run("r", Failed, job("a", Failed, 1), job("b", Done, 1))}, "", "a: run r failed: it burns"},
		{"mended since", []Detail{run("r2", Done, job("a", Done, 2)), run("r1", Failed, job("a", Failed, 1))}, "", ""},
		{"of a rule that is older", []Detail{run("r2", Done, job("a", Done, 2)), run("rule", Failed, job("a", Lost, 3))}, "", "a: run rule lost: it burns"},
		{"somebody else", []Detail{run("r", Failed, job("z", Failed, 1))}, "r", ""},
		{"nobody", []Detail{run("r", Failed)}, "r", ": run r failed: 1 of 1 members failed"},
		{"on a manager", []Detail{onManager}, "m", ": run m failed: 1 of 1 members failed"},
		{"on a manager, before", []Detail{onManager}, "", ""},
		{"done elsewhere", []Detail{moved}, "moved", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := reading{members: newWorld("a", "b").members, results: test.runs, seen: map[string]bool{test.seen: true}}
			for _, d := range test.runs {
				l.runs = append(l.runs, d.Run)
			}
			v, got := assessIdle(l), []string{}
			for _, f := range v.Failed {
				got = append(got, f.Node+": "+f.Why)
			}
			if !v.Over || strings.Join(got, "; ") != test.want {
				t.Errorf("got %v, want %q", got, test.want)
			}
		})
	}
}

// TestAssessRun: what ended a member's part is said once, or not at all.
func TestAssessRun(t *testing.T) {
	t.Parallel()
	d := Detail{Run: Run{ID: "r", State: Cancelled, Why: "by ann"}, Members: []Member{
		{Node: "a", Job: Job{State: Cancelled, Why: "by ann"}}, {Node: "b", Job: Job{State: Cancelled}}, {Node: "c", Job: Job{State: Done}},
	}}
	v := Goal{Run: "r"}.assess(reading{run: d})
	if got, want := fmt.Sprint(v.Failed), "[{a cancelled: by ann} {b cancelled}]"; !v.Over || got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
