package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/control"
	"github.com/jorc/jorc/internal/lease"
	"github.com/jorc/jorc/internal/leasetest"
)

// maintained is a host whose agent answers on its control socket.
type maintained struct {
	*leasetest.Holder
	t       *testing.T
	state   string
	env     map[string]string
	reboots int
	reboot  error // how the next one ends
}

func maintain(t *testing.T) *maintained {
	t.Helper()
	m := &maintained{Holder: &leasetest.Holder{}, t: t, state: t.TempDir()}
	m.env = map[string]string{"JORC_STATE_DIR": m.state}
	m.serve()
	return m
}

// serve runs the agent's side until the returned function is called.
func (m *maintained) serve() (stop func()) {
	m.t.Helper()
	s := control.New(control.Options{
		Socket: filepath.Join(m.state, "control.sock"), Holder: m.Holder, Version: "v1", Log: hclog.NewNullLogger(),
		Reboot: func(context.Context) error { m.reboots++; return m.reboot },
	})
	if err := s.Listen(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			m.t.Error(err)
		}
	})
	m.t.Cleanup(stop)
	return stop
}

func (m *maintained) run(args ...string) result {
	m.t.Helper()
	return jorc(m.t, m.env, append([]string{"maintenance"}, args...)...)
}

func (m *maintained) want(state lease.State) {
	m.t.Helper()
	consultest.Eventually(m.t, "the state "+string(state), func(context.Context) error {
		if s := m.Status(); s.State != state {
			return fmt.Errorf("it is %+v", s)
		}
		return nil
	})
}

func TestMaintenance(t *testing.T) {
	t.Parallel()
	m := maintain(t)
	if got, want := m.run("show"), (result{0, "WHAT   DETAIL\nstate  none\n", ""}); got != want {
		t.Errorf("show: %+v, want %+v", got, want)
	}
	m.env["JORC_JOB"] = "j1"
	got := m.run("begin", "--reason", "patch", "--for", "3h", "--drain", "1ms", "--min-healthy", "1m")
	until := when(m.Status().Until)
	if want := (result{0, "", "jorc: waiting: this host is in maintenance, and drains\njorc: this host is out of service until " + until + "; 'jorc maintenance end' ends it\n"}); got != want {
		t.Errorf("begin: %+v, want %+v", got, want)
	}
	want := lease.Request{ID: "jorc maintenance", Reason: "patch", For: 3 * time.Hour, Drain: time.Millisecond, MinHealthy: time.Minute, Job: "j1"}
	if got := m.Requests(); len(got) != 1 || got[0] != want {
		t.Errorf("the request: %+v, want %+v", got, want)
	}
	if got := m.run("begin", "--timeout", "0", "-o", "json"); got.code != 0 || got.stderr != "" || !json.Valid([]byte(got.stdout)) || !strings.Contains(got.stdout, `"state": "ready"`) {
		t.Errorf("begin again: %+v", got)
	}
	if got, want := m.run("show"), (result{0, "WHAT    DETAIL\nstate   ready\nid      jorc maintenance\nreason  patch\nuntil   " + until + "\n", ""}); got != want {
		t.Errorf("show: %+v, want %+v", got, want)
	}
	if got := m.run("end", "--id", "other"); got != (result{6, "", "jorc: this host is not back in service: this host is out of service for jorc maintenance\n"}) {
		t.Errorf("end of another: %+v", got)
	}
	m.Sicken("check web is critical")
	if got := m.run("end", "--timeout", "1ms"); got != (result{124, "", "jorc: this host is not back in service: check web is critical\n"}) {
		t.Errorf("end of a host that is not healthy: %+v", got)
	}
	if got := m.run("show", "-o", "plain"); got.code != 0 || !strings.Contains(got.stdout, "waits for\tcheck web is critical\n") {
		t.Errorf("show: %+v", got)
	}
	m.Sicken("")
	if got := m.run("end"); got != (result{}) {
		t.Errorf("end: %+v", got)
	}
	if got := m.run("end", "-o", "json"); got.code != 0 || !strings.Contains(got.stdout, `"state": "none"`) {
		t.Errorf("end again: %+v", got)
	}
}

// TestMaintenanceRefused: exit codes say whether it is worth to ask again; stderr says each reason once.
func TestMaintenanceRefused(t *testing.T) {
	t.Parallel()
	at := time.Date(2126, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, test := range []struct {
		name    string
		refusal lease.Refusal
		flags   string
		want    result
	}{
		{"final", lease.Refusal{Kind: lease.NoOrchestrator, Reason: "no orchestrator runs", Final: true}, "", result{6, "", "jorc: this host stays in service: no orchestrator runs\n"}},
		{"inside a job", lease.Refusal{Kind: lease.InsideJob, Reason: "say disturbs = true", Final: true}, "", result{6, "", "jorc: this host stays in service: say disturbs = true\n"}},
		{
			"no place in time",
			lease.Refusal{Kind: lease.Budget, Reason: "the budget is used up"},
			"--timeout 10ms",
			result{124, "", "jorc: waiting: the budget is used up\njorc: this host stays in service: the budget is used up\n"},
		},
		{
			"once",
			lease.Refusal{Kind: lease.Budget, Reason: "the budget is used up"},
			"--timeout 0",
			result{124, "", "jorc: waiting: the budget is used up\njorc: this host stays in service: the budget is used up\n"},
		},
		{
			"a freeze that is longer",
			lease.Refusal{Kind: lease.Freeze, Reason: "week\nend", At: at},
			"--timeout 1h",
			result{6, "", "jorc: this host stays in service: week\\nend; that may change at 2126-01-02T03:04:05Z\n"},
		},
		{"a wrong request", lease.Refusal{Kind: lease.InvalidRequest, Reason: "it has no ID", Final: true}, "", result{2, "", "jorc: this host stays in service: it has no ID\n"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m := maintain(t)
			m.Refuse(&test.refusal)
			flags := strings.Fields(test.flags)
			for _, line := range [][]string{{"begin"}, {"reboot"}, {"run"}} {
				line = append(line, flags...)
				if line[0] == "run" {
					line = append(line, "--", "touch", filepath.Join(m.state, "ran"))
				}
				if got := m.run(line...); got != test.want {
					t.Errorf("%q:\ngot  %+v\nwant %+v", line, got, test.want)
				}
			}
			if _, err := os.Stat(filepath.Join(m.state, "ran")); err == nil || m.reboots > 0 {
				t.Errorf("a command ran, or the host was rebooted (%d)", m.reboots)
			}
		})
	}
}

func TestMaintenanceRun(t *testing.T) {
	t.Parallel()
	m := maintain(t)
	for _, test := range []struct {
		line string
		want result
	}{
		{"echo a b", result{0, "a b\n", ""}},
		{"sh -c exit\t7", result{7, "", ""}},
		{"sh -c kill\t-KILL\t$$", result{137, "", ""}},
		{"jorc-no-such-program", result{127, "", "jorc: jorc-no-such-program: command not found\n"}},
		{"/etc/passwd", result{126, "", "jorc: /etc/passwd: command cannot be run: permission denied\n"}},
	} {
		args := []string{"run", "--"}
		for _, field := range strings.Split(test.line, " ") {
			args = append(args, strings.ReplaceAll(field, "\t", " "))
		}
		got := m.run(args...)
		got.stderr = strings.TrimPrefix(got.stderr, "jorc: waiting: this host is in maintenance, and drains\n")
		if got != test.want {
			t.Errorf("%s: %+v, want %+v", test.line, got, test.want)
		}
		m.want(lease.None)
	}
	requests := m.Requests()
	if len(requests) != 5 || requests[0].ID == requests[1].ID || requests[0].Reason != "echo" {
		t.Errorf("the requests: %+v", requests)
	}
	for line, want := range map[string]string{
		"run":               "missing COMMAND after --; see 'jorc maintenance run --help'",
		"run x -- true":     "too many arguments before --; see 'jorc maintenance run --help'",
		"begin --drain 2h":  "the request for maintenance: it drains for 2h0m0s: give a time up to 1h0m0s; see 'jorc maintenance begin --help'",
		"begin --drain -1s": "--drain is -1s, but must be 0 or more; see 'jorc maintenance begin --help'",
		"end --reason disk": "--reason is for the lease of another host: give --node, or leave it out; see 'jorc maintenance end --help'",
		"begin x":           "no arguments expected; see 'jorc maintenance begin --help'",
		"maintain":          `unknown command "maintain"; see 'jorc maintenance --help'`,
	} {
		if got := m.run(strings.Fields(line)...); got != (result{2, "", "jorc: " + want + "\n"}) {
			t.Errorf("%s: %+v, want %s", line, got, want)
		}
	}
}

// TestMaintenanceInRun: commands within 'jorc maintenance run' mean its lease, and leave its end to it.
func TestMaintenanceInRun(t *testing.T) {
	t.Parallel()
	m := maintain(t)
	m.env["JORC_LEASE"] = "jorc maintenance run before" // which is over
	const script = `state=$1; jorc() { JORC_STATE_DIR=$state "$0" maintenance "$@"; }
jorc begin && jorc run -- sh -c 'echo within' && jorc end && jorc reboot && jorc show -o plain`
	got := m.run("run", "--", "sh", "-c", script, builtOnce(t), m.state)
	if got.code != 0 || !strings.HasPrefix(got.stdout, "within\nstate\tready\n") {
		t.Errorf("%+v", got)
	}
	for _, want := range []string{
		"this host is out of service until the command of 'jorc maintenance run' has ended", "this host is back in service when the command of 'jorc maintenance run' has ended",
		"this host is being rebooted\n", "this host is not back in service: this host is being rebooted, and its lease ends after that; it ends later\n",
	} {
		if !strings.Contains(got.stderr, want) {
			t.Errorf("stderr lacks %q: %s", want, got.stderr)
		}
	}
	m.want(lease.Ready)
	if m.reboots != 1 {
		t.Errorf("%d reboots", m.reboots)
	}
	requests := m.Requests()
	for _, r := range requests {
		if r.ID != requests[0].ID || !strings.HasPrefix(r.ID, "jorc maintenance run ") || strings.HasSuffix(r.ID, "before") {
			t.Errorf("the requests: %+v", requests)
		}
	}
	if got := m.run("end"); got != (result{}) {
		t.Errorf("the operator's end: %+v", got)
	}
}

// TestMaintenanceRunEnded: COMMAND continues when an operator ends its time out of service, and stderr says so.
func TestMaintenanceRunEnded(t *testing.T) {
	t.Parallel()
	m := maintain(t)
	file := filepath.Join(m.state, "ended")
	ended := make(chan result)
	go func() { ended <- m.run("run", "--", "sh", "-c", "while ! test -e "+file+"; do sleep 0.01; done") }()
	m.want(lease.Ready)
	if got := m.run("end"); got != (result{}) {
		t.Errorf("end: %+v", got)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := <-ended; got.code != 0 || !strings.Contains(got.stderr, "jorc: this host comes back into service while sh runs: ") {
		t.Errorf("run: %+v", got)
	}
}

// TestMaintenanceRunInterrupted: a signal ends the command, and the time out of service, without waiting for health.
func TestMaintenanceRunInterrupted(t *testing.T) {
	t.Parallel()
	m := maintain(t)
	file := filepath.Join(m.state, "began")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan result)
	go func() {
		var stdout, stderr bytes.Buffer
		code := run(ctx, []string{"maintenance", "run", "--", "sh", "-c", "touch " + file + "; sleep 1000"}, testHost(m.env, &stdout, &stderr))
		ended <- result{code, stdout.String(), stderr.String()}
	}()
	consultest.Eventually(t, "the command", func(context.Context) error { _, err := os.Stat(file); return err })
	m.Sicken("check web is critical")
	cancel(signalError{syscall.SIGTERM})
	if got := <-ended; got.code != exitSignal+int(syscall.SIGTERM) {
		t.Errorf("got %+v, want exit 143", got)
	}
	m.want(lease.Ending)
	m.Sicken("")
	m.want(lease.None)
}

// TestMaintenanceRunKilled: when the program is killed, the command ends, and the host is back in service. A restart of
// the agent ends neither.
func TestMaintenanceRunKilled(t *testing.T) {
	t.Parallel()
	m := &maintained{Holder: &leasetest.Holder{}, t: t, state: t.TempDir()}
	stop := m.serve()
	file := filepath.Join(m.state, "pid")
	cmd := exec.CommandContext(t.Context(), builtOnce(t), "maintenance", "run", "--reason", "patch", "--", "sh", "-c", "echo $$ >"+file+".new; mv "+file+".new "+file+"; exec sleep 1000")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "JORC_STATE_DIR=" + m.state, consultest.NoConfig}
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	var text []byte
	consultest.Eventually(t, "the command", func(context.Context) (err error) { text, err = os.ReadFile(file); return err })
	var pid int
	if n, err := fmt.Sscan(string(text), &pid); n != 1 || err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	stop()
	m.serve()
	consultest.Eventually(t, "the request to the next agent", func(context.Context) error {
		if m.Open() == 0 { // the agent before has ended all of its own
			return errors.New("there is none")
		}
		return nil
	})
	if s := m.Status(); s.State != lease.Ready || s.Reason != "patch" {
		t.Errorf("after the restart the lease is %+v", s)
	}
	kill9(t, cmd.Process.Pid)
	m.want(lease.None)
	ended(t, "the command", pid)
}

func TestMaintenanceReboot(t *testing.T) {
	t.Parallel()
	m := maintain(t)
	got := m.run("reboot", "--reason", "kernel")
	if want := (result{0, "", "jorc: waiting: this host is in maintenance, and drains\njorc: this host is being rebooted\n"}); got != want || m.reboots != 1 {
		t.Errorf("reboot: %+v, %d reboots, want %+v", got, m.reboots, want)
	}
	if s := m.Status(); s.State != lease.Ready || s.Reason != "kernel" {
		t.Errorf("the lease is %+v", s)
	}
	m.reboot = errors.New("reboot this host: exit code 1")
	if got := m.run("reboot"); got.code != 1 || !strings.HasSuffix(got.stderr, "jorc: reboot this host: exit code 1\n") {
		t.Errorf("a reboot that fails: %+v", got)
	}
	m.want(lease.None)
}

// TestMaintenanceElsewhere: hosts without an agent, and computers on which no agent runs.
func TestMaintenanceElsewhere(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"begin", "end", "run -- true", "reboot", "show"} {
		got := jorc(t, nil, append([]string{"maintenance"}, strings.Fields(line)...)...)
		want := "jorc: no jorc agent answers at /nonexistent/jorc/control.sock: no such file or directory: start it (systemctl start jorc), or give its own --config\n"
		if got != (result{1, "", want}) {
			t.Errorf("%s: %+v", line, got)
		}
	}
	var stdout, stderr bytes.Buffer
	h := testHost(nil, &stdout, &stderr)
	h.build.Platform = "darwin/arm64"
	if code := run(t.Context(), []string{"maintenance", "show"}, h); code != exitUsage || !strings.HasPrefix(stderr.String(), "jorc: jorc maintenance: Linux only") {
		t.Errorf("exit %d, %s", code, &stderr)
	}
}

// TestMaintenanceSocket: the configuration says where the agent answers.
func TestMaintenanceSocket(t *testing.T) {
	t.Parallel()
	m := maintain(t)
	h := newConfigured(t, fmt.Sprintf("control {\n socket = %q\n}\n", filepath.Join(m.state, "control.sock")), nil)
	if got := h.jorc("maintenance", "begin"); got.code != 0 {
		t.Errorf("begin: %+v", got)
	}
	m.want(lease.Ready)
}
