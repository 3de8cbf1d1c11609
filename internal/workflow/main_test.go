package workflow

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/profile"
)

// TestMain lets the test binary be its own child, one that dies at a step.
func TestMain(m *testing.M) {
	if os.Getenv(crashEnv) != "" {
		os.Exit(crashMain())
	}
	os.Exit(consultest.Main(m))
}

// host is a state directory, a directory where tasks leave traces, and a Runner.
type host struct {
	t      testing.TB
	state  string
	dir    string
	slept  []time.Duration
	booted boot
	*Runner
}

func newHost(t testing.TB, o Options, tasks ...config.Task) *host {
	t.Helper()
	h := &host{t: t, state: t.TempDir(), dir: t.TempDir(), booted: boot{ID: "first"}}
	h.start(o, tasks...)
	return h
}

// start makes a Runner as a new process would.
func (h *host) start(o Options, tasks ...config.Task) {
	o.StateDir = h.state
	if o.Node == "" {
		o.Node = "n1"
	}
	o.Environ = append(o.Environ, "DIR="+h.dir)
	if len(tasks) > 0 {
		o.Workflows = []config.Workflow{{Name: "w", Reboots: true, Tasks: tasks}}
	}
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	h.Runner = New(o)
	h.boot = func() boot { return h.booted }
	h.sleep = func(ctx context.Context, d time.Duration) error {
		h.slept = append(h.slept, d)
		return ctx.Err()
	}
}

// Run advances a job once.
func (h *host) Run(ctx context.Context, j Job) (Result, error) { return h.advance(ctx, j, nil) }

// run runs job "j" of workflow w, which must not be an error.
func (h *host) run() Result {
	h.t.Helper()
	res, err := h.Run(context.Background(), Job{ID: "j", Workflow: "w", Out: true})
	if err != nil {
		h.t.Fatal(err)
	}
	return res
}

func (h *host) read(name string) string {
	h.t.Helper()
	data, err := os.ReadFile(filepath.Join(h.dir, name))
	if err != nil && !os.IsNotExist(err) {
		h.t.Fatal(err)
	}
	return string(data)
}

func (h *host) log(id, task string) string {
	h.t.Helper()
	var b strings.Builder
	if err := h.WriteLog(&b, id, task); err != nil {
		h.t.Fatal(err)
	}
	return b.String()
}

// sh is a task that a shell runs; it leaves its name in the file ran first.
func sh(name, script string) config.Task {
	return config.Task{Name: name, Command: []string{"sh", "-c", "echo " + name + " >>$DIR/ran; " + script}}
}

func params(t testing.TB, text string) profile.Params {
	t.Helper()
	p, err := profile.ParseParams(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func states(res Result) string {
	var all []string
	for _, t := range res.Tasks {
		all = append(all, string(t.State))
	}
	return strings.Join(all, " ")
}

func want(t testing.TB, what string, got, want any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func wantText(t testing.TB, what, got string, parts ...string) {
	t.Helper()
	if slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(got, p) }) {
		t.Errorf("%s: got %q, want %q in it", what, got, parts)
	}
}
