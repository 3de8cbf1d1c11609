package runs

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
)

// TestPausedBeforeItBegins: a job that may begin does not once the control of the cluster is another one: it asks again.
func TestPausedBeforeItBegins(t *testing.T) {
	t.Parallel()
	x := newSite(t, "a")
	x.orchestrate("o", quickDecider())
	w := x.worker(x.server.Client(), "a", sh("one", ""))
	asked, resumed := make(chan struct{}, 10), make(chan struct{})
	w.o.Begin = func(ctx context.Context) (uint64, error) {
		asked <- struct{}{}
		if len(asked) > 1 { // paused
			select {
			case <-resumed:
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
		e, err := kv.NewText(x.runs.store, cluster.KeyControl).Get(ctx)
		return e.Index, err
	}
	var once sync.Once
	w.hook = func(step string) {
		if step == "begin" {
			once.Do(func() {
				if _, err := x.cluster.Pause(t.Context(), cluster.Hold{By: "ann"}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	x.background(func(ctx context.Context) { _ = w.Run(ctx) })
	x.ask("r", Request{})
	consultest.Eventually(t, "it to ask again", func(context.Context) error {
		if len(asked) < 2 {
			return fmt.Errorf("it asked %d times", len(asked))
		}
		return nil
	})
	if q, err := x.runs.queueAt(t.Context(), "a"); err != nil || q.Jobs[0].State != Pending || x.traces("a", "ran") != "" {
		t.Errorf("while the cluster is paused the job is %+v, %v; it ran %q", q.Jobs, err, x.traces("a", "ran"))
	}
	if _, err := x.cluster.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(resumed)
	x.becomes("r", "done: a=done")
}

// TestTakenBackUnnoticed: a node that does not learn that its grant was taken back begins nothing, and says nothing.
func TestTakenBackUnnoticed(t *testing.T) {
	t.Parallel()
	for name, manager := range map[string]bool{"of a member": false, "of a manager": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newSite(t, "a/manager")
			stop := x.orchestrate("o", quickDecider())
			x.ask("r", Request{OnManager: manager, Role: map[bool]string{false: "manager"}[manager]})
			x.becomes("r", "running: a=pending")
			stop()
			proxy := x.server.Proxy()
			proxy.Do(func(r *http.Request) consultest.Fault {
				return consultest.Fault{Hang: r.URL.Query().Has("index")} // no watch delivers anything
			})
			w := x.worker(proxy.Client(), "a", crashTasks()...)
			grants, over := change.GrantsAt(x.runs.store, "a"), make(chan struct{})
			w.hook = func(step string) {
				switch step {
				case "begin":
					if _, err := grants.Update(t.Context(), func(kv.Entry[change.Grants]) (change.Grants, bool, error) { return change.Grants{}, true, nil }); err != nil {
						t.Error(err)
					}
				case "ran":
					close(over)
				}
			}
			x.background(func(ctx context.Context) { _ = w.Run(ctx) })
			<-over
			if said, err := x.runs.results.At("a").Get(t.Context()); err != nil || said.Exists || x.traces("a", "ran") != "" {
				t.Errorf("it said %+v, %v; it ran %q", said.Value, err, x.traces("a", "ran"))
			}
		})
	}
}

// TestBegunMeanwhile: an orchestrator that has not seen that a job began does not take it back.
func TestBegunMeanwhile(t *testing.T) {
	t.Parallel()
	x := newSite(t, "a")
	ctx, client, d := t.Context(), x.server.Client(), quickDecider()
	x.ask("r", Request{})
	if _, err := x.decide(ctx, x.cluster.Store(), client, "o", d); err != nil {
		t.Fatal(err)
	}
	if _, _, err := x.runs.Cancel(ctx, "r", "ann", false); err != nil {
		t.Fatal(err)
	}
	o, err := x.observe(ctx, client, "o")
	if err != nil {
		t.Fatal(err)
	}
	begun := Results{[]Result{{Job: "run-r", State: Running, Started: stamp()}}}
	if _, err := x.runs.results.At("a").CompareAndSwap(ctx, kv.Entry[Results]{}, begun); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Decide(ctx, x.cluster.Store(), o); err != nil {
		t.Fatal(err)
	}
	if q, err := x.runs.queueAt(ctx, "a"); err != nil || len(q.Jobs) != 1 || q.Jobs[0].State != Running {
		t.Fatalf("the queue is %+v, %v, want the job that has begun", q.Jobs, err)
	}
	if _, err := x.decide(ctx, x.cluster.Store(), client, "o", d); err != nil {
		t.Fatal(err)
	}
	if q, err := x.runs.queueAt(ctx, "a"); err != nil || len(q.Jobs) != 1 || q.Jobs[0].Cancel != "ann" {
		t.Errorf("the queue is %+v, %v, want the job that ann cancelled", q.Jobs, err)
	}
}

// TestRestoredRun: after a restore of Consul's KV from before a job ended, and from before it began, the node says again what it came
// to, and runs nothing twice.
func TestRestoredRun(t *testing.T) {
	t.Parallel()
	for name, begun := range map[string]bool{"before it began": false, "before it ended": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newSiteOn(t, newServer(t), "a")
			snapshot := filepath.Join(t.TempDir(), "kv.snap")
			stop := x.orchestrate("o", quickDecider())
			x.ask("r", Request{})
			x.becomes("r", "running: a=pending")
			work := func() { x.work("a", sh("one", "until [ -e $DIR/go ]; do sleep 0.02; done")) }
			if begun {
				work()
				x.becomes("r", "running: a=running")
			}
			stop()
			x.server.Run("snapshot", "save", snapshot)
			x.orchestrate("o", quickDecider())
			if !begun {
				work()
			}
			touch(t, x, "a", "go")
			x.becomes("r", "done: a=done")
			x.ask("s", Request{}) // indexes continue
			x.becomes("s", "done: a=done")
			x.server.Run("snapshot", "restore", snapshot)
			x.becomes("r", "done: a=done")
			if ran := x.traces("a", "ran"); ran != "one\none\n" { // of r and s
				t.Errorf("it ran %q", ran)
			}
		})
	}
}

// TestNothingBeginsAfterRestore: a job that has not begun does not for a while after Consul's KV was restored.
func TestNothingBeginsAfterRestore(t *testing.T) {
	t.Parallel()
	x := newSiteOn(t, newServer(t), "a")
	snapshot := filepath.Join(t.TempDir(), "kv.snap")
	stop := x.orchestrate("o", quickDecider())
	x.ask("r", Request{})
	x.becomes("r", "running: a=pending")
	x.server.Run("snapshot", "save", snapshot)
	if _, _, err := x.runs.Cancel(t.Context(), "r", "ann", false); err != nil {
		t.Fatal(err)
	}
	x.becomes("r", "cancelled: a=cancelled")
	stop()
	w := x.worker(x.server.Client(), "a", sh("one", ""))
	waits := make(chan struct{})
	var once sync.Once
	w.hook = func(step string) {
		if step == "quiet" {
			once.Do(func() { close(waits) })
		}
	}
	x.background(func(ctx context.Context) { _ = w.Run(ctx) })
	if _, err := w.now.Wait(t.Context(), func(granted) bool { return true }); err != nil {
		t.Fatal(err)
	}
	x.server.Run("snapshot", "restore", snapshot)
	<-waits
	if q, err := x.runs.queueAt(t.Context(), "a"); err != nil || len(q.Jobs) != 1 || q.Jobs[0].State != Pending || x.traces("a", "ran") != "" {
		t.Errorf("the queue is %+v, %v; it ran %q", q.Jobs, err, x.traces("a", "ran"))
	}
}

// TestForgottenResults: what a node says of jobs that are no longer granted goes with the next thing that it says.
func TestForgottenResults(t *testing.T) {
	t.Parallel()
	x := newSite(t, "a")
	x.orchestrate("o", quickDecider())
	x.work("a", sh("one", ""))
	for i := range 3 {
		id := fmt.Sprintf("r%d", i)
		x.ask(id, Request{})
		x.becomes(id, "done: a=done")
		said, err := x.runs.results.At("a").Get(t.Context())
		if err != nil || len(said.Value.Jobs) != 1 || said.Value.Jobs[0].Job != "run-"+id {
			t.Fatalf("after %s the node says %+v, %v", id, said.Value.Jobs, err)
		}
	}
}

// TestMostJobs: a node is granted so many jobs at most.
func TestMostJobs(t *testing.T) {
	t.Parallel()
	q, unread := Queue{}, map[string]bool{}
	for i := range pace.MostJobs {
		id := fmt.Sprintf("u%d", i)
		q.Jobs, unread[id] = append(q.Jobs, Queued{Run: id, Result: Result{Job: jobID(id, 1), State: Done}}), true
	}
	s := Situation{Now: epoch, Holder: "o", Members: []cluster.Member{{Node: "a", Agent: cluster.AgentUp}}, Unread: unread}
	run := Active{Run: Run{ID: "r", Request: Request{Workflow: "w"}, State: Pending}}
	c := Plan(s, []Active{run}, map[string]Queue{"a": q})
	if _, changed := c.Queues["a"]; changed || !strings.Contains(c.Runs["r"].Why, "a: the host has 8 jobs already") {
		t.Errorf("the queue becomes %+v, and the run waits because of %q", c.Queues["a"], c.Runs["r"].Why)
	}
	q.Jobs = slices.Delete(q.Jobs, 0, 1)
	if c := Plan(s, []Active{run}, map[string]Queue{"a": q}); len(c.Queues["a"].Jobs) != pace.MostJobs {
		t.Errorf("with a place the queue becomes %+v", c.Queues["a"])
	}
}

// TestGrantsBesideJobs: what is granted for other changes stays as it is when jobs change, and jobs stay when it does.
func TestGrantsBesideJobs(t *testing.T) {
	t.Parallel()
	version := change.Grant{Change: cluster.VersionChange, Tag: "v1", ID: "1.1.s", State: pace.Offered, Session: "s"}
	all := change.Grants{All: []change.Grant{version}}
	one := Queue{Jobs: []Queued{{Run: "r", JobGrant: change.JobGrant{Disturbs: true}, Result: Result{Job: "run-r"}}}}.Granted(all, epoch)
	if len(one.All) != 2 || one.Of(cluster.VersionChange) != version {
		t.Fatalf("with a job: %+v", one)
	}
	files := change.Grant{Change: cluster.FilesChange("edge"), ID: "1.2.s", State: pace.Offered, Session: "s"}
	both := one.With(files)
	q := queueOf(both, Results{[]Result{{Job: "run-r", State: Running}}})
	if len(q.Jobs) != 1 || q.Jobs[0].Run != "r" || !q.Jobs[0].Disturbs || q.Jobs[0].State != Running {
		t.Errorf("the queue is %+v", q)
	}
	q.Jobs[0].Cancel, q.Jobs[0].Kill = "ann", true
	cancelled := q.Granted(both, epoch.AddDate(1, 0, 0))
	job := cancelled.Of(cluster.RunChange("r"))
	if job.Job == nil || *job.Job != (change.JobGrant{Disturbs: true, Cancel: "ann", Kill: true}) || !job.Since.Equal(one.Of(cluster.RunChange("r")).Since) {
		t.Errorf("the job that was cancelled: %+v", job)
	}
	if none := (Queue{}).Granted(cancelled, epoch); len(none.All) != 2 || none.Of(cluster.RunChange("r")).ID != "" {
		t.Errorf("without jobs: %+v", none)
	}
}
