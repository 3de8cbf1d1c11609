package runs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/kv"
)

// crashEnv makes the test binary a worker that kills itself: its value is
// "number of the step|directory|node|address of Consul|cluster".
const crashEnv = "JORC_TEST_RUNS_CRASH"

func crashTasks() []config.Task {
	one, two := sh("one", ""), sh("two", "")
	one.Idempotent, two.Idempotent = true, true
	return []config.Task{one, two}
}

func crashMain() int {
	f := strings.Split(os.Getenv(crashEnv), "|")
	step, err := strconv.Atoi(f[0])
	if err != nil {
		return 2
	}
	client, err := consul.New(config.Consul{Address: f[3], MaxConnections: 16})
	if err != nil {
		return 3
	}
	w := makeWorker(kv.New(client, "jorc/"+f[4]), f[1], f[2], crashTasks()...)
	n := 0
	w.hook = func(string) {
		if n == step {
			consultest.Die()
		}
		n++
	}
	_ = w.Run(context.Background())
	return 4
}

// TestCrash kills a worker at each step of a run. The next one brings it to its
// end, no task is run twice, and the result is reported.
func TestCrash(t *testing.T) {
	t.Parallel()
	x := newSite(t)
	x.orchestrate("o", quickDecider())
	count := 0
	x.join("probe/probe")
	w := x.worker(x.server.Client(), "probe", crashTasks()...)
	w.hook = func(string) { count++ }
	stop := x.background(func(ctx context.Context) { _ = w.Run(ctx) })
	x.ask("probe", Request{Role: "probe"})
	x.becomes("probe", "done: probe=done")
	stop()
	if count < 6 {
		t.Fatalf("only %d steps", count)
	}
	for i := range count {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			node := fmt.Sprintf("n%d", i)
			x.join(node + "/" + node)
			x.ask("r-"+node, Request{Role: node})
			cmd := exec.Command(os.Args[0], "-test.run=^$")
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d|%s|%s|%s|%s", crashEnv, i, filepath.Join(x.dir, node), node, x.server.HTTPAddr, x.name))
			err := cmd.Run()
			if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGKILL {
				t.Fatalf("the worker ended otherwise: %v", err)
			}
			x.work(node, crashTasks()...)
			d := x.becomes("r-"+node, "done: "+node+"=done")
			if got := x.traces(node, "ran"); got != "one\ntwo\n" {
				t.Errorf("it ran %q", got)
			}
			var states []string
			for _, c := range d.Members[0].History {
				states = append(states, string(c.State))
			}
			if got := strings.Join(states, " "); got != "pending running done" {
				t.Errorf("history: %s", got)
			}
		})
	}
}

// TestLostFiles: a job that had begun is not run again when nothing is left of
// it.
func TestLostFiles(t *testing.T) {
	t.Parallel()
	x := newSite(t, "a")
	x.orchestrate("o", quickDecider())
	stop := x.work("a", sh("one", "until [ -e $DIR/go ]; do sleep 0.02; done"))
	x.ask("r", Request{})
	x.becomes("r", "running: a=running")
	stop()
	if err := os.RemoveAll(filepath.Join(x.dir, "a", "state")); err != nil {
		t.Fatal(err)
	}
	x.work("a", sh("one", ""))
	d := x.becomes("r", "failed: a=failed")
	if !strings.Contains(d.Members[0].Why, "not run again") || strings.Count(x.traces("a", "ran"), "one") > 1 {
		t.Errorf("got %+v, ran %q", d.Members[0], x.traces("a", "ran"))
	}
}

// TestComesBack: a member that disappears while it runs is lost, and its result
// is taken when it is back.
func TestComesBack(t *testing.T) {
	t.Parallel()
	x := newSite(t, "a", "b")
	x.orchestrate("o", quickDecider())
	task := sh("one", "until [ -e $DIR/go ]; do sleep 0.02; done")
	task.Idempotent = true
	stop := x.work("a", task)
	x.work("b", sh("one", ""))
	x.ask("r", Request{})
	x.becomes("r", "running: a=running b=done")
	x.agent("a", false)
	stop()
	x.becomes("r", "failed: a=lost b=done")
	x.wasTold(event.ChangeHostFailed, "a")
	x.agent("a", true)
	x.becomes("r", "running: a=running b=done")
	touch(t, x, "a", "go")
	x.work("a", task)
	x.becomes("r", "done: a=done b=done")
	consultest.Eventually(t, "its mark to move", func(ctx context.Context) error {
		if names, err := x.runs.active.Names(ctx); err != nil || len(names) > 0 {
			return fmt.Errorf("under way: %v, %v", names, err)
		}
		return nil
	})
}

// TestFailOver: the next manager continues a run at the first unfinished task,
// and the first manager stops.
func TestFailOver(t *testing.T) {
	t.Parallel()
	x := newSite(t, "m1/manager", "m2/manager", "a")
	x.orchestrate("o", quickDecider())
	tasks := func(node string) []config.Task {
		two := sh("two", "until [ -e $DIR/go ]; do sleep 0.02; done")
		two.Idempotent = true
		return []config.Task{sh("one", ""), two, sh("three", "")}
	}
	x.work("m1", tasks("m1")...)
	x.work("m2", tasks("m2")...)
	x.ask("r", Request{OnManager: true})
	consultest.Eventually(t, "the second task", func(context.Context) error {
		if got := x.traces("m1", "ran"); got != "one\ntwo\n" {
			return fmt.Errorf("m1 ran %q", got)
		}
		return nil
	})
	x.agent("m1", false) // it continues, cut off
	x.wasTold(event.ChangeStepBegan, "m2")
	touch(t, x, "m2", "go")
	x.becomes("r", "done: m1=lost m2=done")
	touch(t, x, "m1", "go")
	w1 := filepath.Join(x.dir, "m1", "manager", "jobs", "run-r")
	consultest.Eventually(t, "the first to end", func(context.Context) error {
		data, err := os.ReadFile(filepath.Join(w1, "job.json"))
		if err == nil && !strings.Contains(string(data), `"state":"stopped"`) {
			err = errors.New(string(data))
		}
		return err
	})
	if m1, m2 := x.traces("m1", "ran"), x.traces("m2", "ran"); m1 != "one\ntwo\n" || m2 != "two\nthree\n" {
		t.Errorf("m1 ran %q, m2 ran %q", m1, m2)
	}
}

// TestManagerStartsRuns: what runs on a manager may wait for runs that the same
// node has a part in.
func TestManagerStartsRuns(t *testing.T) {
	t.Parallel()
	x := newSite(t, "a")
	x.orchestrate("a", quickDecider()) // no manager: the orchestrator's own node
	x.work("a", sh("one", `case $JORC_JOB in run-boss) until [ -e $DIR/inner ]; do sleep 0.02; done;; *) touch $DIR/inner;; esac`))
	x.ask("boss", Request{OnManager: true})
	x.becomes("boss", "running: a=running")
	x.ask("inner", Request{})
	x.becomes("inner", "done: a=done")
	x.becomes("boss", "done: a=done")
}

// TestTwoDeciders: two orchestrators at a time hand nothing out twice, and
// workers run each job once.
func TestTwoDeciders(t *testing.T) {
	t.Parallel()
	nodes := []string{"a", "b", "c", "d"}
	x := newSite(t, nodes...)
	for _, n := range nodes {
		x.work(n, sh("one", ""))
	}
	// The second does not care for the lock: compare-and-swap is what holds.
	x.orchestrate("o1", quickDecider())
	x.background(func(ctx context.Context) {
		d, client := quickDecider(), x.server.Client()
		for ctx.Err() == nil {
			_, _ = x.decide(ctx, x.cluster.Store(), client, "o2", d)
		}
	})
	for i := range 5 {
		x.ask(fmt.Sprintf("r%d", i), Request{})
	}
	for i := range 5 {
		x.becomes(fmt.Sprintf("r%d", i), "done: a=done b=done c=done d=done")
	}
	for _, n := range nodes {
		if got, want := x.traces(n, "ran"), strings.Repeat("one\n", 5); got != want {
			t.Errorf("%s ran %q", n, got)
		}
	}
}

// TestOvertakenQueues: runs whose members are written, but not the grants of these, because
// others wrote them meanwhile, begin in a later cycle.
func TestOvertakenQueues(t *testing.T) {
	t.Parallel()
	x := newSite(t, "a", "m/manager")
	d, commits := quickDecider(), 0
	d.hook = func(step string) {
		if step != "commit" || commits == 5 {
			return
		}
		commits++
		for _, node := range []string{"a", "m"} {
			if _, err := x.cluster.Store().Txn().Set(cluster.GrantsKey(node), fmt.Appendf(nil, "%*s{}", commits, "")).Commit(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	x.ask("r", Request{})
	x.ask("boss", Request{OnManager: true})
	x.orchestrate("o", d)
	for _, node := range []string{"a", "m"} {
		x.work(node, sh("one", ""))
	}
	x.becomes("r", "done: a=done")
	x.becomes("boss", "done: m=done")
}

// TestAway: Consul fails at each step of a run; the run ends when it is back.
func TestAway(t *testing.T) {
	t.Parallel()
	x := newSite(t)
	x.orchestrate("o", quickDecider())
	for _, step := range []string{"run", "begin", "begun", "ran", "tell"} {
		t.Run(step, func(t *testing.T) {
			x.join(step + "/" + step)
			proxy := x.server.Proxy()
			w := x.worker(proxy.Client(), step, crashTasks()...)
			failed := make(chan struct{}, 1000)
			var once sync.Once
			w.hook = func(s string) {
				if s == step {
					once.Do(func() {
						proxy.Do(func(*http.Request) consultest.Fault {
							select {
							case failed <- struct{}{}:
							default:
							}
							return consultest.Fault{Status: 500}
						})
					})
				}
			}
			x.background(func(ctx context.Context) { _ = w.Run(ctx) })
			x.ask("r-"+step, Request{Role: step})
			consultest.Eventually(t, "failed requests", func(context.Context) error {
				if n := len(failed); n < 1 {
					return fmt.Errorf("%d requests failed", n)
				}
				return nil
			})
			proxy.Do(nil)
			x.becomes("r-"+step, "done: "+step+"=done")
			if got := x.traces(step, "ran"); got != "one\ntwo\n" {
				t.Errorf("it ran %q", got)
			}
		})
	}
}

// TestFrozen: while Consul is frozen a running job continues to its end.
func TestFrozen(t *testing.T) {
	t.Parallel()
	x := newSiteOn(t, newServer(t), "a")
	x.orchestrate("o", quickDecider())
	w := x.worker(x.server.Client(), "a", crashTasks()...)
	var once sync.Once
	w.hook = func(s string) {
		if s == "begun" {
			once.Do(x.server.Freeze)
		}
	}
	x.background(func(ctx context.Context) { _ = w.Run(ctx) })
	x.ask("r", Request{})
	consultest.Eventually(t, "both tasks", func(context.Context) error {
		if got := x.traces("a", "ran"); got != "one\ntwo\n" {
			return fmt.Errorf("it ran %q", got)
		}
		return nil
	})
	x.server.Thaw()
	x.becomes("r", "done: a=done")
	if got := x.traces("a", "ran"); got != "one\ntwo\n" {
		t.Errorf("it ran %q", got)
	}
}

// TestCancelledUnnoticed: a node that learns of nothing but what it asks for, as one that was frozen
// before a task, begins no task of a run that was cancelled meanwhile.
func TestCancelledUnnoticed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		manager bool
		step    string
		times   int
		ran     string
	}{
		"the first task":               {step: "begin", times: 1},
		"the second task":              {step: "ask", times: 1, ran: "one\n"},
		"the first task of a manager":  {manager: true, step: "begin", times: 1},
		"the second task of a manager": {manager: true, step: "begin", times: 2, ran: "one\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newSite(t, "a/manager")
			x.orchestrate("o", quickDecider())
			x.ask("r", Request{OnManager: tt.manager, Role: map[bool]string{false: "manager"}[tt.manager]})
			queued := func(what string, ok func([]Queued) bool) {
				t.Helper()
				consultest.Eventually(t, what, func(ctx context.Context) error {
					q, err := x.runs.queueAt(ctx, "a")
					if err == nil && !ok(q.Jobs) {
						err = fmt.Errorf("%+v", q)
					}
					return err
				})
			}
			queued("the job to be in the queue", func(jobs []Queued) bool { return len(jobs) == 1 })
			proxy := x.server.Proxy()
			proxy.Do(func(r *http.Request) consultest.Fault {
				return consultest.Fault{Hang: r.URL.Query().Has("index")} // no watch delivers anything
			})
			w := x.worker(proxy.Client(), "a", crashTasks()...)
			times := 0
			w.hook = func(step string) {
				if step != tt.step {
					return
				}
				if times++; times == tt.times {
					if _, _, err := x.runs.Cancel(t.Context(), "r", "ann", false); err != nil {
						t.Error(err)
					}
					queued("the job to be cancelled", func(jobs []Queued) bool { return len(jobs) == 0 || jobs[0].Cancel != "" })
				}
			}
			x.background(func(ctx context.Context) { _ = w.Run(ctx) })
			x.becomes("r", "cancelled: a=cancelled")
			if got := x.traces("a", "ran"); got != tt.ran {
				t.Errorf("it ran %q, want %q", got, tt.ran)
			}
		})
	}
}

// TestDamagedQueue: the damaged grants of a node are written again, whatever its node was doing;
// jobs that it has started continue, and nothing is run twice.
func TestDamagedQueue(t *testing.T) {
	t.Parallel()
	x := newSite(t, "a", "b", "m/manager")
	x.orchestrate("o", quickDecider())
	wait := "until [ -e $DIR/go ]; do sleep 0.02; done"
	for _, node := range []string{"a", "b", "m"} {
		x.work(node, sh("one", wait), sh("two", ""))
	}
	damage := func(key func(node string) string, text string, nodes ...string) {
		t.Helper()
		for _, node := range nodes {
			if _, err := x.cluster.Store().Txn().Set(key(node), []byte(text)).Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	x.ask("r", Request{})
	x.ask("boss", Request{OnManager: true})
	x.becomes("r", "running: a=running b=running")
	x.becomes("boss", "running: m=running")
	damage(cluster.GrantsKey, "nonsense", "a", "m")
	x.wasTold(event.RunUnreadable, "")
	for _, node := range []string{"a", "m"} {
		consultest.Eventually(t, "the queue of "+node, func(ctx context.Context) error {
			_, err := change.GrantsAt(x.runs.store, node).Get(ctx)
			return err
		})
	}
	damage(cluster.ResultsKey, `{"jobs": 7}`, "a") // and while the result is to be told
	for _, node := range []string{"a", "b", "m"} {
		touch(t, x, node, "go")
	}
	x.becomes("r", "done: a=done b=done")
	x.becomes("boss", "done: m=done")
	x.ask("next", Request{})
	x.becomes("next", "done: a=done b=done")
	if got := x.traces("a", "ran") + x.traces("m", "ran"); got != "one\ntwo\none\ntwo\none\ntwo\n" {
		t.Errorf("a and m ran %q", got)
	}
}

// TestNewerResults: what a newer jorc says of its jobs is left alone: they are not
// lost, and other nodes continue.
func TestNewerResults(t *testing.T) {
	t.Parallel()
	x := newSite(t, "a", "b")
	x.orchestrate("o", quickDecider())
	x.work("a", sh("one", "until [ -e $DIR/go ]; do sleep 0.02; done"))
	x.work("b", sh("one", ""))
	x.ask("r", Request{})
	x.becomes("r", "running: a=running b=done")
	doc := kv.NewText(x.cluster.Store(), cluster.ResultsKey("a"))
	was, err := doc.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	newer := `{"format": 99}`
	swap := func(text string) {
		t.Helper()
		if _, err := x.cluster.Store().Txn().Set(cluster.ResultsKey("a"), []byte(text)).Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	swap(newer)
	x.wasTold(event.RunUnreadable, "")
	x.ask("next", Request{})
	x.becomes("next", "running: a=pending b=done")
	d, err := New(x.cluster.Store()).Show(t.Context(), "next")
	if err != nil || !strings.Contains(d.Members[0].Why, "upgrade jorc") || d.Members[1].Why != "" {
		t.Errorf("Show = %+v, %v", d.Members, err)
	}
	if now, err := doc.Get(t.Context()); err != nil || now.Value != newer {
		t.Errorf("the results are %q, %v", now.Value, err)
	}
	x.becomes("r", "running: a=running b=done")
	swap(was.Value)
	touch(t, x, "a", "go")
	x.becomes("r", "done: a=done b=done")
	x.becomes("next", "done: a=done b=done")
}

// TestLearn: what this node read does not hide what the watch has delivered since.
func TestLearn(t *testing.T) {
	t.Parallel()
	w := NewWorker(WorkerOptions{Store: kv.New(nil, "x"), Node: "a"})
	grants := func(index uint64, cancel string) kv.Entry[change.Grants] {
		return kv.Entry[change.Grants]{Index: index, Value: change.Grants{All: []change.Grant{{Tag: "j", Job: &change.JobGrant{Cancel: cancel}}}}}
	}
	for _, e := range []kv.Entry[change.Grants]{grants(5, ""), grants(7, "ann"), grants(6, "")} {
		w.learn(e)
	}
	if now, _ := w.now.Get(); now.Index != 7 || now.Value.All[0].Job.Cancel != "ann" {
		t.Errorf("got %+v, want that of index 7", now)
	}
}
