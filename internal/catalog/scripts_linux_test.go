package catalog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

func TestScriptsDecideTheState(t *testing.T) {
	t.Parallel()
	c := consultest.Start(t).Client()
	own := newScript(t, 0)
	shell := own.check()
	shell.Script, shell.Shell = nil, `echo "$((6*7))"; exit 1`
	missing := own.check()
	missing.Script = []string{"/no/such/program"}
	long := own.check()
	long.Script = []string{"/bin/sh", "-c", `head -c 100000 /dev/zero | tr '\0' é; exit 3`}
	runRegistrar(t, c, fast(t),
		config.Service{Name: "own", Checks: []config.Check{own.check()}},
		config.Service{Name: "shell", Checks: []config.Check{shell}},
		config.Service{Name: "missing", Checks: []config.Check{missing}},
		config.Service{Name: "long", Checks: []config.Check{long}},
	).ready()
	// Not critical first: that is a new check's state without an output.
	for _, step := range []struct {
		code  int
		state string
	}{{1, consul.HealthWarning}, {2, consul.HealthCritical}, {0, consul.HealthPassing}, {255, consul.HealthCritical}} {
		own.set(t, step.code)
		if got := wantState(t, c, "service:own", step.state); !strings.HasPrefix(got.Output, "pid ") {
			t.Errorf("output %q", got.Output)
		}
	}
	if got := wantState(t, c, "service:shell", consul.HealthWarning); got.Output != "42" {
		t.Errorf("shell: output %q, want 42", got.Output)
	}
	consultest.Eventually(t, "outputs of what failed", func(ctx context.Context) error {
		checks, err := c.AgentChecks(ctx, "")
		if err != nil {
			return err
		}
		if out := checks["service:missing"].Output; !strings.Contains(out, "not found") {
			return fmt.Errorf("missing: %q", out)
		}
		if n := len(checks["service:long"].Output); n == 0 || n > maxOutput {
			return fmt.Errorf("long: %d bytes", n)
		}
		return nil
	})
}

func TestTimeoutEndsTheWholeScript(t *testing.T) {
	t.Parallel()
	c := consultest.Start(t).Client()
	pidFile := filepath.Join(t.TempDir(), "pid")
	hang := config.Check{
		Script:   []string{"/bin/sh", "-c", `echo begun; sleep 1000 & echo $! >"$0"; wait`, pidFile},
		Interval: time.Hour, Timeout: 300 * time.Millisecond,
	}
	runRegistrar(t, c, fast(t), config.Service{Name: "hang", Checks: []config.Check{hang}}).ready()
	consultest.Eventually(t, "the timeout to show", func(ctx context.Context) error {
		checks, err := c.AgentChecks(ctx, "")
		if err != nil {
			return err
		}
		got := checks["service:hang"]
		if got.Status != consul.HealthCritical || !strings.HasPrefix(got.Output, "timed out after 300ms\nbegun") {
			return fmt.Errorf("the agent has %+v", got)
		}
		return nil
	})
	data, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	consultest.Eventually(t, "the script's child to be gone", func(context.Context) error {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) && !zombie(pid) {
			return fmt.Errorf("process %d is there: %v", pid, err)
		}
		return nil
	})
}

// zombie reports whether a process has ended and its parent has not reaped it.
func zombie(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(data), ") Z ")
}

func TestHundredChecksRunInTheirTurns(t *testing.T) {
	t.Parallel()
	c := consultest.Start(t).Client()
	services := make([]config.Service, 100)
	for i := range services {
		services[i] = config.Service{Name: fmt.Sprintf("s%d", i), Checks: []config.Check{
			{Script: []string{"true"}, Interval: 2 * time.Second, Timeout: 10 * time.Second},
		}}
	}
	services[0].Checks[0].Script = []string{"sleep", "1000"} // must not delay the others
	x := runRegistrar(t, c, fast(t), services...).ready()
	consultest.Eventually(t, "99 checks to have passed twice", func(context.Context) error {
		n := 0
		for _, s := range x.Status() {
			if !s.Presence && s.Checks[0].State == consul.HealthPassing && s.Checks[0].Heartbeats >= 2 {
				n++
			}
		}
		if n != 99 {
			return fmt.Errorf("%d of them", n)
		}
		return nil
	})
	passing, err := c.AgentChecks(t.Context(), `Status == "passing"`)
	if err != nil || len(passing) != 100 { // with jorc's own service
		t.Errorf("%d checks pass, %v; want 100", len(passing), err)
	}
}

func TestTTLTellsThatJorcIsDead(t *testing.T) {
	t.Parallel()
	c := consultest.Start(t).Client()
	web := config.Service{Name: "web", Checks: []config.Check{newScript(t, 0).check()}}
	web.Checks[0].Timeout = time.Millisecond * 500
	const ttl = 2 * time.Second
	x := runWithTTL(t, c, fast(t), ttl, web).ready()
	wantState(t, c, "service:web", consul.HealthPassing)
	x.end() // with on_stop = keep it sends nothing to Consul, as after kill -9
	for _, id := range []string{"service:web", "service:jorc"} {
		if got := wantState(t, c, id, consul.HealthCritical); !strings.HasPrefix(got.Output, expiredOutput) {
			t.Errorf("%s: %q", id, got.Output)
		}
	}
	// The next process corrects it, and does not adopt the agent's own output.
	x = runWithTTL(t, c, x.o, ttl, web).ready()
	if got := wantState(t, c, "service:web", consul.HealthPassing); !strings.HasPrefix(got.Output, "pid ") {
		t.Errorf("output %q", got.Output)
	}
	x.end()
}

func TestSteadyStateWritesNothing(t *testing.T) {
	t.Parallel()
	// Otherwise the agent would delay the write of an output for minutes.
	s := consultest.Start(t, consultest.WithConfig(map[string]any{"check_update_interval": "0s"}))
	c := s.Client()
	web := config.Service{Name: "web", Checks: []config.Check{newScript(t, 0).check()}}
	db := config.Service{Name: "db", Checks: []config.Check{newScript(t, 1).check()}}
	o := fast(t)
	x := runRegistrar(t, c, o, web, db).ready()
	wantState(t, c, "service:web", consul.HealthPassing)
	wantState(t, c, "service:db", consul.HealthWarning)
	x.heartbeats(1)
	inCatalog(t, s)
	writesNothing(t, s, "20 heartbeats", func() { x.heartbeats(20) })
	writesNothing(t, s, "a restart", func() { // although every run's output differs
		x.end()
		x = runRegistrar(t, c, o, web, db).ready()
		x.heartbeats(5)
	})
	if got := x.service("web").Checks[0]; !strings.HasPrefix(got.Output, "pid ") || got.State != consul.HealthPassing {
		t.Errorf("status: %+v", got)
	}
}

// inCatalog waits until the agent has synced its state to the catalog.
func inCatalog(t *testing.T, s *consultest.Server) {
	t.Helper()
	c := s.Client()
	consultest.Eventually(t, "the catalog to know the states", func(ctx context.Context) error {
		checks, _, err := c.HealthNode(ctx, s.Node, consul.Query{Filter: `Output != "" or ServiceID == ""`})
		if err == nil && len(checks) < 4 {
			err = fmt.Errorf("%d checks", len(checks))
		}
		return err
	})
}

// writesNothing does something up to ten times and wants it to be without a write once:
// a server writes by itself, too, in the first seconds after its start.
func writesNothing(t *testing.T, s *consultest.Server, what string, do func()) {
	t.Helper()
	var seen []string
	for range 10 {
		raft, catalog := raftIndex(t, s), nodeIndex(t, s)
		do()
		nowRaft, nowCatalog := raftIndex(t, s), nodeIndex(t, s)
		if nowRaft == raft && nowCatalog == catalog {
			return
		}
		seen = append(seen, fmt.Sprintf("raft %d to %d, catalog %d to %d", raft, nowRaft, catalog, nowCatalog))
	}
	t.Errorf("%s wrote each time: %s", what, strings.Join(seen, "; "))
}

func raftIndex(t *testing.T, s *consultest.Server) uint64 {
	t.Helper()
	m := regexp.MustCompile(`last_log_index = (\d+)`).FindStringSubmatch(s.Run("info"))
	if m == nil {
		t.Fatal("consul info does not tell the raft index")
	}
	n, err := strconv.ParseUint(m[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func nodeIndex(t *testing.T, s *consultest.Server) uint64 {
	t.Helper()
	_, meta, err := s.Client().HealthNode(t.Context(), s.Node, consul.Query{})
	if err != nil {
		t.Fatal(err)
	}
	return meta.Index
}
