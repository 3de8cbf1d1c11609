package converge

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/workflow"
)

// crashEnv makes the test binary a host that kills itself: its value is
// "scenario|step|how often it was met|directory|cluster|address of Consul".
const crashEnv = "JORC_TEST_CONVERGE_CRASH"

// scenario is a host on its way to v1, and what tasks must leave although it
// is killed.
type scenario struct {
	name   string
	with   func(*host)
	ran    string
	writes int // to Consul, at most
}

func scenarios() []scenario {
	once := func(name string) string { return "[ -e $DIR/" + name + " ] || { touch $DIR/" + name + "; exit 1; }" }
	return []scenario{
		{"straight", func(*host) {}, "one@v1 two@v1 check@v1", 2},
		{"static fails once", func(h *host) { h.flows[0].Tasks[1] = sh("two", once("failed")) }, "one@v1 two@v1 one@v1 two@v1 check@v1", 4},
		{"validation fails once", func(h *host) { h.flows[1].Tasks[0] = sh("check", once("failed")) }, "one@v1 two@v1 check@v1 one@v1 two@v1 check@v1", 4},
		{"adopted", func(h *host) { h.write("version", "v1\n") }, "check@v1", 1},
	}
}

// inTask is killed by a task, the first time.
func inTask() scenario {
	return scenario{name: "in task", with: func(h *host) {
		h.flows[0].Tasks[0] = sh("one", "[ -e $DIR/again ] || { touch $DIR/again; kill -9 $PPID; sleep 600; }")
	}}
}

// crashHost is a scenario's host; the same for parent and child.
func crashHost(t testing.TB, s scenario, client *consul.Client, cluster, dir string) *host {
	h := newHostOn(t, client, cluster, "n1", dir)
	h.options.Requires, h.options.Requirements = []config.Requires{{Target: "mysql"}}, needs{newSource[[]Missing](nil)}
	h.options.Admission = &gate{source: newSource(true)}
	h.options.Static.Paths = []string{h.path("etc")}
	h.quick = func(q *timing) { q.firstRetry, q.maxRetry = time.Millisecond, time.Millisecond }
	s.with(h)
	return h
}

// toEnd runs h until it has converged.
func (h *host) toEnd(hook func(step string)) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var last Status
	h.options.Changed = func(s Status) {
		if last = s; s.Outcome == Converged && s.Version == "v1" {
			cancel()
		}
	}
	h.build()
	if hook != nil {
		h.hook = hook
	}
	err := h.Run(ctx)
	if last.Outcome != Converged {
		return fmt.Errorf("not converged: %+v, %w", last, err)
	}
	return err
}

// counter counts steps by name.
type counter struct {
	mu    sync.Mutex
	steps map[string]int
}

func (c *counter) met(step string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.steps == nil {
		c.steps = map[string]int{}
	}
	c.steps[step]++
	return c.steps[step]
}

// TestCrash kills a converging host at every step. It continues from there: no
// task runs twice, Consul gets no needless write, and the host converges.
func TestCrash(t *testing.T) {
	proxy := consultest.Start(t).Proxy()
	reports := countReports(proxy)
	client := proxy.Client()
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			all := &counter{}
			h := crashHost(t, s, client, fmt.Sprintf("crash%d", clusters.Add(1)), t.TempDir())
			h.trigger("v1")
			if err := h.toEnd(func(step string) { all.met(step) }); err != nil {
				t.Fatal(err)
			}
			s.check(t, h, reports, s.writes)
			for step, times := range all.steps {
				for n := range times {
					t.Run(fmt.Sprintf("%s %d", step, n+1), func(t *testing.T) {
						h := crashHost(t, s, client, fmt.Sprintf("crash%d", clusters.Add(1)), t.TempDir())
						h.trigger("v1")
						s.die(t, h, proxy.Addr, step, n+1)
						if err := h.toEnd(nil); err != nil {
							t.Fatal(err)
						}
						s.check(t, h, reports, s.writes+1) // the one that was on its way when it died, too
					})
				}
			}
		})
	}
}

// die has a child go until it kills itself at a step.
func (s scenario) die(t *testing.T, h *host, address, step string, n int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), self, "-test.run=^$")
	child.Env = append(os.Environ(), crashEnv+"="+strings.Join([]string{s.name, step, strconv.Itoa(n), h.dir, h.cluster, address}, "|"))
	out, err := child.CombinedOutput()
	ws, ok := child.ProcessState.Sys().(syscall.WaitStatus)
	killed := ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL
	if merged := step == "report" || step == "reported" || step == "save" || step == "saved"; merged && err == nil {
		return // two of them may have become one: it has converged
	}
	if !killed {
		t.Fatalf("child at %s %d: got %v, want it killed: %s", step, n, err, out)
	}
}

func (s scenario) check(t *testing.T, h *host, reports *reportCount, most int) {
	t.Helper()
	want(t, "ran", h.ran(), s.ran)
	d := h.document()
	want(t, "version", d.Version, "v1")
	want(t, "previous", d.Previous, "")
	want(t, "validation", d.States[cluster.CategoryValidation].State, cluster.StateSuccess)
	if c, ok := d.States[cluster.CategoryConfig]; ok || s.name != "adopted" {
		want(t, "config", c.State, cluster.StateSuccess)
		want(t, "suspect", c.Suspect != "", strings.Contains(s.name, "fails"))
	}
	want(t, "version file", strings.TrimSpace(read(t, h.path("version"))), "v1")
	if n := reports.of(h); n == 0 || n > most {
		t.Errorf("%d writes, want 1 to %d", n, most)
	}
	left, err := filepath.Glob(h.path("state/.*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func crashMain() int {
	parts := strings.SplitN(os.Getenv(crashEnv), "|", 6)
	_ = os.Unsetenv(crashEnv)
	client, err := consul.New(config.Consul{Address: parts[5]})
	if err != nil {
		fmt.Println(err)
		return 2
	}
	defer client.Close()
	met := &counter{}
	for _, s := range append(scenarios(), inTask()) {
		if s.name != parts[0] {
			continue
		}
		h := crashHost(noTest{}, s, client, parts[4], parts[3])
		err := h.toEnd(func(step string) {
			if n := met.met(step); step == parts[1] && strconv.Itoa(n) == parts[2] {
				consultest.Die()
				select {}
			}
		})
		if err != nil {
			fmt.Println(err)
			return 1
		}
	}
	return 0
}

// noTest is for hosts outside of a test.
type noTest struct{ testing.TB }

func (noTest) Helper()           {}
func (noTest) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

// TestCrashInTask: a task that may not be repeated and is cut off is reported
// as interrupted, and waits for an operator.
func TestCrashInTask(t *testing.T) {
	t.Parallel()
	server := consultest.Start(t)
	s := inTask()
	dir := t.TempDir()
	host := crashHost(t, s, server.Client(), "c", dir)
	host.trigger("v1")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), self, "-test.run=^$")
	child.Env = append(os.Environ(), crashEnv+"="+strings.Join([]string{"in task", "", "", dir, "c", server.HTTPAddr}, "|"))
	if out, err := child.CombinedOutput(); err == nil {
		t.Fatalf("the child was not killed: %s", out)
	}
	host.quick = nil
	host.start()
	st := host.untilPhase(PhaseFailed, "v1")
	wantText(t, "detail", st.Detail, "interrupted", `task "one"`, "jorc ended while it ran")
	wantText(t, "reported", host.document().States[cluster.CategoryConfig].Detail, "interrupted")
	host.stop()
	host.start()
	host.untilPhase(PhaseFailed, "v1")
	want(t, "ran", host.ran(), "one@v1")
	host.setRetry(Retry{At: time.Now()})
	host.untilPhase(PhaseConverged, "v1")
	want(t, "ran", host.ran(), "one@v1 one@v1 two@v1 check@v1")
}

// TestInterrupted: a host on which a task was cut off runs nothing again by itself, whatever
// restarts. It continues with that task when an operator asks for that, also if it has to
// wait and restarts first, and runs all with FromStart. Another version begins afresh.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	const wait = "echo $$ >$DIR/waits; until [ -e $DIR/go ]; do sleep 0.02; done; rm $DIR/go"
	for _, test := range []struct {
		name       string
		task       string
		retry      Retry
		version    string
		ran        string
		config     string
		validation string
	}{
		{"static", "two", Retry{}, "v1", "one@v1 two@v1 two@v1 check@v1 end@v1", cluster.StateFailed, ""},
		{"static from the start", "two", Retry{FromStart: true}, "v1", "one@v1 two@v1 one@v1 two@v1 check@v1 end@v1", cluster.StateFailed, ""},
		{"validation", "end", Retry{}, "v1", "one@v1 two@v1 check@v1 end@v1 end@v1", cluster.StateSuccess, cluster.StateFailed},
		{"validation from the start", "end", Retry{FromStart: true}, "v1", "one@v1 two@v1 check@v1 end@v1 one@v1 two@v1 check@v1 end@v1", cluster.StateSuccess, cluster.StateFailed},
		{"another version", "two", Retry{}, "v2", "one@v1 two@v1 one@v2 two@v2 check@v2 end@v2", cluster.StateFailed, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			h.quick = func(q *timing) { q.firstRetry, q.maxRetry = time.Millisecond, time.Millisecond }
			scripts := map[string]string{test.task: wait}
			h.flows = []config.Workflow{
				{Name: "static", Tasks: []config.Task{sh("one", ""), sh("two", scripts["two"])}},
				{Name: "validation", Tasks: []config.Task{sh("check", ""), sh("end", scripts["end"])}},
			}
			h.trigger("v1")
			h.start()
			consultest.Eventually(t, "the task", func(context.Context) error { _, err := os.Stat(h.path("waits")); return err })
			h.stop()
			before := h.ran()
			h.write("go", "")
			for range 2 { // the first one finds out, the second one knows
				h.start()
				s := h.untilPhase(PhaseFailed, "v1")
				wantText(t, "detail", s.Detail, "interrupted: ", `task "`+test.task+`"`, "'jorc update retry n1' continues with this task", "--from-start")
				want(t, "next", s.Next, time.Time{})
				d := h.document()
				want(t, "config", d.States[cluster.CategoryConfig].State, test.config)
				want(t, "validation", d.States[cluster.CategoryValidation].State, test.validation)
				want(t, "ran", h.ran(), before)
				h.stop()
			}
			h.hold.set(Hold{Held: "mended"})
			h.start()
			if test.version != "v1" {
				h.trigger(test.version)
			} else {
				test.retry.At = time.Now()
				h.setRetry(test.retry)
				h.until("the retry on the disk", func(Status) bool {
					p, _, err := readProgress(progressIn(h.o.StateDir))
					return err == nil && p.Retried.At.Equal(test.retry.At)
				})
			}
			h.stop()
			want(t, "ran on hold", h.ran(), before)
			h.hold.set(Hold{})
			h.start()
			h.untilPhase(PhaseConverged, test.version)
			want(t, "ran", h.ran(), test.ran)
		})
	}
}

// TestInterruptedValidation: a validation of a host that has converged and is cut off runs
// again when the next one is due.
func TestInterruptedValidation(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.options.Static.ValidationInterval = time.Hour
	h.flows[1].Tasks[0] = sh("check", "[ ! -e $DIR/wait ] || { echo $$ >$DIR/waits; until [ -e $DIR/go ]; do sleep 0.02; done; }")
	h.trigger("v1")
	h.start()
	h.untilPhase(PhaseConverged, "v1")
	h.stop()
	h.write("wait", "")
	h.build()
	h.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	h.run()
	consultest.Eventually(t, "the validation", func(context.Context) error { _, err := os.Stat(h.path("waits")); return err })
	h.stop()
	h.write("go", "")
	h.build()
	h.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	h.run()
	h.until("the end of the validation", func(s Status) bool {
		jobs, err := h.runner.Jobs()
		p, _, perr := readProgress(progressIn(h.o.StateDir))
		return err == nil && perr == nil && jobs[0].State == workflow.Interrupted && p.Attempt.Validation == "" && s.Phase == PhaseConverged && s.Outcome == Converged
	})
	want(t, "ran", h.ran(), "one@v1 two@v1 check@v1 check@v1")
	want(t, "validation", h.document().States[cluster.CategoryValidation].State, cluster.StateSuccess)
}
