package workflow

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/config"
)

// TestExitCodes: what becomes of a job by the exit code of its first task.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, script string
		ok           []int
		state        State
		open         bool
		tasks        string
		why          string
	}{
		{"success", "exit 0", nil, Success, false, "success success", ""},
		{"failure", "echo broken; exit 1", nil, Failed, false, "failed planned", "exit code 1: broken"},
		{"puppet changed", "exit 2", []int{0, 2}, Success, false, "success success", ""},
		{"puppet failed", "exit 4", []int{0, 2}, Failed, false, "failed planned", "exit code 4"},
		{"puppet changed and failed", "exit 6", []int{0, 2}, Failed, false, "failed planned", "exit code 6"},
		{"0 is not ok", "exit 0", []int{3}, Failed, false, "failed planned", "exit code 0"},
		{"reboot", "exit 194", nil, Reboot, true, "success planned", "a reboot is needed"},
		{"reboot by name", `exit $JORC_EXIT_REBOOT`, nil, Reboot, true, "success planned", "a reboot is needed"},
		{"stop", "echo enough; exit 195", nil, Stopped, false, "success planned", "the task requested to stop here: enough"},
		{"stop by name", `exit $JORC_EXIT_STOP`, nil, Stopped, false, "success planned", "the task requested to stop here"},
		{"not yet", "echo no disk; exit 196", nil, Pending, true, "pending planned", "not yet: no disk"},
		{"not yet by name", `exit $JORC_EXIT_NOT_YET`, nil, Pending, true, "pending planned", "not yet"},
		{"ok_exit_codes win", "exit 194", []int{194}, Success, false, "success success", ""},
		{"signal", "kill -KILL $$", nil, Failed, false, "failed planned", "exit code 137 (signal 9)"},
		{"timeout(1) of its own", "exit 124", nil, Failed, false, "failed planned", "exit code 124"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			first := sh("one", test.script)
			first.OkExitCodes = test.ok
			h := newHost(t, Options{}, first, sh("two", ""))
			res := h.run()
			want(t, "state", res.State, test.state)
			want(t, "open", res.Open, test.open)
			want(t, "tasks", states(res), test.tasks)
			want(t, "why", res.Why, test.why)
			stored, err := h.Job("j")
			if err != nil {
				t.Fatal(err)
			}
			want(t, "stored", fmt.Sprint(stored.State, states(stored), stored.Why), fmt.Sprint(res.State, states(res), res.Why))
			if !res.Open {
				want(t, "again", h.run().State, res.State)
			}
			ran := "one\n"
			if test.state == Success {
				ran = "one\ntwo\n"
			}
			want(t, "ran", h.read("ran"), ran)
		})
	}
}

func TestCannotStart(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		task config.Task
		why  string
	}{
		{"no program", config.Task{Command: []string{"jorc-no-such-program"}}, "command not found"},
		{"no directory", config.Task{Command: []string{"true"}, Dir: "/nonexistent"}, "working directory"},
		{"no user", config.Task{Command: []string{"true"}, User: "jorc-no-such-user"}, `user "jorc-no-such-user"`},
		{"no interpreter", config.Task{Script: "#!/no/such/shell\n"}, "command not found"},
		{"no token", config.Task{Command: []string{"true"}, TokenFile: "/nonexistent"}, "token_file"},
		{"no precondition", config.Task{Command: []string{"true"}, OnlyIf: []string{"jorc-no-such-program"}}, "only_if: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.task.Name = "one"
			res := newHost(t, Options{}, test.task).run()
			want(t, "state", res.State, Failed)
			want(t, "task", res.Task, "one")
			if res.ExitCode != 126 && res.ExitCode != 127 {
				t.Errorf("exit code: got %d, want 126 or 127", res.ExitCode)
			}
			wantText(t, "why", res.Why, test.why)
		})
	}
}

// TestRetries: doubling pauses, a budget that survives, and a suspect.
func TestRetries(t *testing.T) {
	t.Parallel()
	count := `n=$(cat $DIR/n 2>/dev/null || echo 0); n=$((n + 1)); echo $n >$DIR/n; echo try $n; [ $n -gt `
	task := func(passes string) config.Task {
		s := sh("one", count+passes+" ]")
		s.Retries, s.RetryDelay = 4, 3*time.Second
		return s
	}
	h := newHost(t, Options{}, task("3"))
	res := h.run()
	want(t, "state", res.State, Success)
	want(t, "slept", fmt.Sprint(h.slept), "[3s 6s 12s]")
	want(t, "attempts", res.Tasks[0].Attempts, 4)
	want(t, "suspect", strings.Join(res.Suspect, " "), "one")
	want(t, "log", h.log("j", ""), "try 1\ntry 2\ntry 3\ntry 4\n")

	h = newHost(t, Options{}, task("9"))
	res = h.run()
	want(t, "state", res.State, Failed)
	want(t, "why", res.Why, "exit code 1: try 5 (attempt 5)")
	want(t, "tail", res.Tail, "try 5\n")
	want(t, "exit code", res.ExitCode, 1)
	want(t, "slept", fmt.Sprint(h.slept), "[3s 6s 12s 24s]")

	// Stopped in a pause, it continues with what is left of the budget.
	h = newHost(t, Options{}, task("9"))
	ctx, cancel := context.WithCancel(t.Context())
	h.sleep = func(ctx context.Context, _ time.Duration) error { cancel(); return ctx.Err() }
	if _, err := h.Run(ctx, Job{ID: "j", Workflow: "w"}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want the context's end", err)
	}
	h.start(Options{}, task("9"))
	res = h.run()
	want(t, "attempts", res.Tasks[0].Attempts, 5)
	want(t, "slept", fmt.Sprint(h.slept), "[3s 6s 12s 24s]")
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		first time.Duration
		n     int
		want  time.Duration
	}{
		{0, 1, time.Second},
		{0, 2, 2 * time.Second},
		{0, 9, 256 * time.Second},
		{0, 10, 5 * time.Minute},
		{0, 1 << 30, 5 * time.Minute},
		{10 * time.Minute, 1, 10 * time.Minute},
		{10 * time.Minute, 7, 10 * time.Minute},
		{1 << 62, 3, 1 << 62},
	} {
		if got := backoff(test.first, test.n); got != test.want {
			t.Errorf("backoff(%v, %d): got %v, want %v", test.first, test.n, got, test.want)
		}
	}
}

func TestOnlyIf(t *testing.T) {
	t.Parallel()
	one, two := sh("one", ""), sh("two", "")
	one.OnlyIf = []string{"sh", "-c", "echo looking; exit 7"}
	two.OnlyIf = []string{"test", "{{.Node}}", "=", "n1"}
	h := newHost(t, Options{}, one, two)
	res := h.run()
	want(t, "state", res.State, Success)
	want(t, "tasks", states(res), "skipped success")
	want(t, "why", res.Tasks[0].Why, "its only_if failed")
	want(t, "ran", h.read("ran"), "two\n")
	want(t, "log", h.log("j", "one"), "looking\n")

	one.OnlyIf, one.Timeout = []string{"sleep", "600"}, time.Millisecond
	h = newHost(t, Options{}, one)
	res = h.run()
	want(t, "state", res.State, Failed)
	want(t, "why", res.Why, "only_if: timed out after 1ms")
	want(t, "ran", h.read("ran"), "")
}

func TestReboot(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{}, sh("one", ""), sh("two", "echo new kernel; exit 194"), sh("three", ""))
	want(t, "state", h.run().State, Reboot)
	res := h.run()
	want(t, "not rebooted", res.State, Reboot)
	want(t, "why", res.Why, "a reboot is needed: new kernel")
	want(t, "ran", h.read("ran"), "one\ntwo\n")
	h.booted.Init = "99" // was unknown: counts as equal
	want(t, "unknown", h.run().State, Reboot)
	h.booted = boot{ID: "second"}
	h.start(Options{}, sh("other", "exit 1")) // a job keeps the tasks of its creation
	want(t, "rebooted", h.run().State, Success)
	want(t, "ran", h.read("ran"), "one\ntwo\nthree\n")
}

// TestMayReboot: a task has the host rebooted only in a job for which the host is out of service, of a
// workflow that may reboot; otherwise it fails, without another attempt.
func TestMayReboot(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reboots, out bool
		want         State
	}{
		"neither": {false, false, Failed}, "the workflow may not": {false, true, Failed}, "a trigger": {true, false, Failed}, "both": {true, true, Reboot},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one := sh("one", "echo new kernel; exit 194")
			one.Retries = 3
			h := newHost(t, Options{Workflows: []config.Workflow{{Name: "w", Reboots: test.reboots, Tasks: []config.Task{one, sh("two", "")}}}})
			res, err := h.Run(t.Context(), Job{ID: "j", Workflow: "w", Out: test.out})
			if err != nil {
				t.Fatal(err)
			}
			want(t, "state", res.State, test.want)
			want(t, "ran", h.read("ran"), "one\n")
			if test.want == Failed && !strings.Contains(res.Why, "this workflow may not reboot the host: \"reboots = true\"") {
				t.Errorf("it failed because of %q", res.Why)
			}
		})
	}
}

// TestReboots: the driver asks for the reboot, again while that fails, and continues the job on
// the rebooted host without another one.
func TestReboots(t *testing.T) {
	t.Parallel()
	asked := 0
	reboot := func(context.Context) error {
		if asked++; asked == 1 {
			return errors.New("inhibited")
		}
		return nil
	}
	h := newHost(t, Options{Reboot: reboot}, sh("one", "exit 194"), sh("two", ""))
	ctx, cancel := context.WithCancel(t.Context())
	var slept []time.Duration
	h.sleep = func(_ context.Context, d time.Duration) error {
		if slept = append(slept, d); len(slept) == 2 { // the system ends jorc
			cancel()
			return ctx.Err()
		}
		return nil
	}
	res, err := h.Drive(ctx, Job{ID: "j", Workflow: "w", Out: true}, Hooks{})
	if !errors.Is(err, context.Canceled) || res.State != Reboot || asked != 2 {
		t.Fatalf("%s after %d reboots: %v", res.State, asked, err)
	}
	want(t, "pauses", fmt.Sprint(slept), fmt.Sprint([]time.Duration{rebootRetry, rebootPatience}))
	h.booted = boot{ID: "second"}
	res, err = h.Drive(t.Context(), Job{ID: "j"}, Hooks{})
	if err != nil || res.State != Success || asked != 2 {
		t.Errorf("on the rebooted host: %s after %d reboots (%v)", res.State, asked, err)
	}
	want(t, "ran", h.read("ran"), "one\ntwo\n")
}

func TestHeld(t *testing.T) {
	t.Parallel()
	held := ""
	one := sh("one", "")
	h := newHost(t, Options{Held: func() string { return held }}, one, sh("two", ""))
	h.hook = func(step string) {
		if step == "ran" {
			held = "maintenance"
		}
	}
	res := h.run()
	want(t, "state", res.State, Held)
	want(t, "why", res.Why, "held: maintenance")
	want(t, "tasks", states(res), "success planned")
	updated := res.Updated
	want(t, "nothing new is not written", h.run().Updated, updated)
	held, h.hook = "", func(string) {}
	want(t, "state", h.run().State, Success)
	want(t, "ran", h.read("ran"), "one\ntwo\n")
}

// TestBetween: each call has a function of its own before tasks, also for a job that
// another call began.
func TestBetween(t *testing.T) {
	t.Parallel()
	newer := errors.New("version v3 is newer")
	reboot := sh("one", "exit $JORC_EXIT_REBOOT")
	h := newHost(t, Options{}, reboot, sh("two", ""), sh("three", ""))
	do := func(j Job, ask func(context.Context) error) Result {
		t.Helper()
		res, err := h.advance(t.Context(), j, ask)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	calls := 0
	first := do(Job{ID: "j", Workflow: "w", Out: true}, func(context.Context) error { calls++; return nil })
	want(t, "state", first.State, Reboot)
	want(t, "calls", calls, 1)
	h.booted = boot{ID: "second"}
	res := do(Job{ID: "j"}, func(context.Context) error {
		if calls++; calls > 2 {
			return newer
		}
		return nil
	})
	want(t, "state", res.State, Stopped)
	want(t, "open", res.Open, false)
	want(t, "why", res.Why, "version v3 is newer")
	want(t, "calls", calls, 3)
	want(t, "another job", do(Job{ID: "k", Workflow: "w", Out: true}, nil).State, Reboot)
	want(t, "ran", h.read("ran"), "one\ntwo\none\n")
}

func TestAbandon(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{}, sh("one", "exit 196"))
	h.run()
	open, err := h.Open()
	if err != nil || len(open) != 1 || open[0].ID != "j" {
		t.Fatalf("open: got %+v, %v", open, err)
	}
	for range 2 {
		res, err := h.Abandon(t.Context(), "j", "v2 is out")
		if err != nil {
			t.Fatal(err)
		}
		want(t, "state", res.State, Stopped)
		want(t, "why", res.Why, "v2 is out")
	}
	want(t, "again", h.run().State, Stopped)
	want(t, "ran", h.read("ran"), "one\n")
	if _, err := h.Abandon(t.Context(), "x", ""); !errors.Is(err, ErrNoJob) {
		t.Errorf("got %v, want ErrNoJob", err)
	}
}

func TestWrongJobs(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{}, sh("one", ""))
	h.run()
	for _, test := range []struct {
		job  Job
		want error
		text string
	}{
		{Job{Workflow: "nope"}, ErrUnknown, "workflows: w"},
		{Job{ID: "x", Workflow: "nope"}, ErrUnknown, "workflows: w"},
		{Job{ID: "x"}, ErrNoJob, `job "x"`},
		{Job{ID: "j", Workflow: "other"}, ErrInvalid, `it is of workflow "w"`},
		{Job{ID: "x/j", Workflow: "w"}, ErrInvalid, "'/' at position 2"},
		{Job{ID: ".new-x", Workflow: "w"}, ErrInvalid, "taken"},
		{Job{ID: "lock", Workflow: "w"}, ErrInvalid, "taken"},
		{Job{ID: "a b", Workflow: "w"}, ErrInvalid, "a space at position 2"},
		{Job{ID: strings.Repeat("x", 129), Workflow: "w"}, ErrInvalid, "129 bytes"},
	} {
		_, err := h.Run(t.Context(), test.job)
		if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%+v: got %v, want %v with %q", test.job, err, test.want, test.text)
		}
	}
	want(t, "ran", h.read("ran"), "one\n")
	h.start(Options{})
	if _, err := h.Run(t.Context(), Job{Workflow: "w"}); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "there are no workflows") {
		t.Errorf("got %v", err)
	}
}

// TestChanged: every transition is reported in order, and is on the disk by then.
func TestChanged(t *testing.T) {
	t.Parallel()
	var h *host
	var told []string
	o := Options{Changed: func(res Result) {
		stored, err := h.Job(res.ID)
		if err != nil || stored.State != res.State || states(stored) != states(res) {
			t.Errorf("told %s %s before it was stored: %+v, %v", res.State, states(res), stored, err)
		}
		told = append(told, fmt.Sprintf("%s(%s)", res.State, states(res)))
	}}
	retry := sh("one", "[ -e $DIR/f ] || { touch $DIR/f; exit 1; }")
	retry.Retries = 1
	h = newHost(t, o, retry)
	res := h.run()
	want(t, "told", strings.Join(told, " "),
		"running(planned) running(running) running(retrying) running(running) running(success) success(success)")
	var history []string
	for _, tr := range res.History {
		history = append(history, tr.Task+":"+tr.State)
	}
	want(t, "history", strings.Join(history, " "), ":running one:running one:retrying one:running one:success :success")
}
