package workflow

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consultest"
)

// crashEnv makes the test binary a process that kills itself: its value is
// "scenario|number of the step|directory".
const crashEnv = "JORC_TEST_WORKFLOW_CRASH"

// scenario is a workflow, and what its job must come to although jorc dies.
type scenario struct {
	name  string
	tasks []config.Task
	want  State // without a crash
}

func idempotent(t config.Task) config.Task {
	t.Idempotent = true
	return t
}

func scenarios() []scenario {
	script := config.Task{Name: "script", Script: "echo script >>$DIR/ran\n"}
	flaky := sh("flaky", "[ -e $DIR/second ] || { touch $DIR/second; exit 1; }")
	flaky.Retries = 2
	skipped := sh("skipped", "")
	skipped.OnlyIf = []string{"false"}
	return []scenario{
		{"once", []config.Task{sh("one", ""), script, sh("two", "")}, Success},
		{"idempotent", []config.Task{idempotent(sh("one", "")), idempotent(script), idempotent(sh("two", ""))}, Success},
		{"fails", []config.Task{idempotent(sh("one", "")), idempotent(sh("two", "exit 1")), sh("never", "")}, Failed},
		{"retried", []config.Task{idempotent(flaky), skipped, idempotent(sh("two", ""))}, Success},
		{"stops", []config.Task{idempotent(sh("one", "exit 195")), sh("never", "")}, Stopped},
		{"reboots", []config.Task{idempotent(sh("one", "exit 194")), idempotent(sh("two", ""))}, Success},
		{"not yet", []config.Task{idempotent(sh("one", "[ -e $DIR/now ] || { touch $DIR/now; exit 196; }")), idempotent(sh("two", ""))}, Success},
	}
}

// crashHost is a scenario's host; the same for parent and child. The scenarios
// have retries, so pauses do not last.
func crashHost(t testing.TB, s scenario, root string) *host {
	h := &host{t: t, state: filepath.Join(root, "state"), dir: filepath.Join(root, "traces"), booted: boot{ID: "first"}}
	for _, d := range []string{h.state, h.dir} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.start(Options{}, s.tasks...)
	return h
}

// toEnd runs the job until it has ended, with a reboot when it asks
// for one.
func (h *host) toEnd() (Result, error) {
	for {
		res, err := h.Run(context.Background(), Job{ID: "j", Workflow: "w", Out: true})
		if err != nil || !res.Open {
			return res, err
		}
		if res.State == Reboot {
			h.booted = boot{ID: "second"}
		}
	}
}

// TestCrash kills jorc at every step of a job. What is done is not done again,
// what may not be repeated is not, and the job ends.
func TestCrash(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			h := crashHost(t, s, t.TempDir())
			var steps []string
			h.hook = func(step string) { steps = append(steps, step) }
			res, err := h.toEnd()
			if err != nil || res.State != s.want {
				t.Fatalf("without a crash: got %+v, %v, want %s", res, err, s.want)
			}
			times := count(h.read("ran"))
			for i, step := range steps {
				t.Run(fmt.Sprintf("%02d %s", i, step), func(t *testing.T) {
					root := t.TempDir()
					die(t, s, i, root)
					s.goOn(t, root, times)
				})
			}
		})
	}
}

// goOn is the start after the crash.
func (s scenario) goOn(t *testing.T, root string, times map[string]int) {
	t.Helper()
	h := crashHost(t, s, root)
	before, after := h.read("ran"), ""
	finished := map[string]bool{}
	if res, err := h.Job("j"); err == nil {
		for _, task := range res.Tasks {
			finished[task.Name] = task.State.done() || task.State == TaskFailed
		}
	}
	h.booted = boot{ID: "first"}
	if strings.Contains(before, "two") {
		h.booted = boot{ID: "second"}
	}
	res, err := h.toEnd()
	if err != nil {
		t.Fatalf("after the crash: %v", err)
	}
	after = strings.TrimPrefix(h.read("ran"), before)
	if res.State != s.want && res.State != Interrupted {
		t.Errorf("got %s (%s), want %s or interrupted", res.State, res.Why, s.want)
	}
	for i := range s.tasks {
		task := &s.tasks[i]
		total := count(before + after)[task.Name]
		if finished[task.Name] && count(after)[task.Name] > 0 {
			t.Errorf("task %s was finished and ran again", task.Name)
		}
		if most := times[task.Name]; !task.Idempotent && total > most || total > most+1 {
			t.Errorf("task %s: ran %d times, want at most %d", task.Name, total, most)
		}
		if res.State == Interrupted && task.Idempotent && res.Task == task.Name {
			t.Errorf("task %s is idempotent and ended the job as interrupted", task.Name)
		}
		if res.State == s.want && total < times[task.Name] {
			t.Errorf("task %s: ran %d times, want %d", task.Name, total, times[task.Name])
		}
	}
	entries, err := os.ReadDir(h.jobs)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			t.Errorf("%s was left behind", e.Name())
		}
	}
}

// count is how often each word stands in text.
func count(text string) map[string]int {
	n := map[string]int{}
	for _, word := range strings.Fields(text) {
		n[word]++
	}
	return n
}

// die runs a child that kills itself at a step.
func die(t *testing.T, s scenario, step int, root string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), self, "-test.run=^$")
	child.Env = append(os.Environ(), crashEnv+"="+strings.Join([]string{s.name, strconv.Itoa(step), root}, "|"))
	out, err := child.CombinedOutput()
	ws, ok := child.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !ws.Signaled() || ws.Signal() != syscall.SIGKILL {
		t.Fatalf("child at step %d: got %v, want it killed: %s", step, err, out)
	}
}

func crashMain() int {
	parts := strings.SplitN(os.Getenv(crashEnv), "|", 3)
	at, err := strconv.Atoi(parts[1])
	if err != nil {
		return 2
	}
	_ = os.Unsetenv(crashEnv)
	all := scenarios()
	all = append(all, hanging())
	for _, s := range all {
		if s.name != parts[0] {
			continue
		}
		h := crashHost(nil, s, parts[2])
		n := -1
		h.hook = func(string) {
			if n++; n == at {
				killSelf()
			}
		}
		if at < 0 {
			h.o.Output = diesAtOutput{}
		}
		_, _ = h.toEnd() // it should not come back
	}
	return 2
}

func killSelf() {
	consultest.Die()
	select {}
}

// diesAtOutput kills the process when a task says something.
type diesAtOutput struct{}

func (diesAtOutput) Write([]byte) (int, error) {
	killSelf()
	return 0, nil
}

// hanging is a task that leaves its group and hangs, unless it was there before.
func hanging() scenario {
	return scenario{"hanging", []config.Task{idempotent(sh("hang",
		`[ ! -e $DIR/pids ] || exit 0
		setsid sh -c 'echo $$ >$DIR/other; mv $DIR/other $DIR/pids; while :; do sleep 600; done' &
		while [ ! -e $DIR/pids ]; do sleep 0.01; done
		trap "" TERM; echo here; while :; do sleep 600; done`))}, Success}
}

// TestCrashWhileRunning: what a killed jorc left running is gone before the
// task is run again, wherever it went.
func TestCrashWhileRunning(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	s := hanging()
	die(t, s, -1, root)
	h := crashHost(t, s, root)
	pid, err := strconv.Atoi(strings.TrimSpace(h.read("pids")))
	if err != nil {
		t.Fatal(err)
	}
	res, err := h.toEnd()
	if err != nil {
		t.Fatal(err)
	}
	want(t, "state", res.State, Success)
	want(t, "interruptions", res.Tasks[0].Interruptions, 1)
	want(t, "attempts", res.Tasks[0].Attempts, 2)
	if !gone(pid) {
		t.Errorf("pid %d still runs", pid)
	}
	told := false
	for _, tr := range res.History {
		told = told || tr.State == string(TaskInterrupted) && strings.Contains(tr.Text, "jorc ended while it ran and [") && strings.Contains(tr.Text, "was killed")
	}
	if !told {
		t.Errorf("history: got %+v, want that it was interrupted and killed", res.History)
	}
}

// gone says whether a process has ended; one that is not reaped yet has.
func gone(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	_, state, _ := strings.Cut(string(b), ") ")
	return strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X")
}
