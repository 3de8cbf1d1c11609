package catalog

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

// fast returns the options of a Registrar in tests: the state directory, and
// with it the owner, is the test's own.
func fast(t *testing.T) RegistrarOptions {
	t.Helper()
	return RegistrarOptions{StateDir: t.TempDir()}
}

// running is a running Registrar.
type running struct {
	*Registrar
	t    *testing.T
	stop context.CancelFunc
	done chan struct{}
}

// runRegistrar runs a Registrar until the test or its stop ends it. Heartbeats
// of its own service are sent every 50 ms; no TTL expires, however busy the
// machine is.
func runRegistrar(t *testing.T, c *consul.Client, o RegistrarOptions, services ...config.Service) *running {
	t.Helper()
	return runWithTTL(t, c, o, time.Hour, services...)
}

// runWithTTL is runRegistrar with TTLs of at least leastTTL.
func runWithTTL(t *testing.T, c *consul.Client, o RegistrarOptions, leastTTL time.Duration, services ...config.Service) *running {
	t.Helper()
	r := NewRegistrar(c, services, o)
	r.leastTTL, r.presenceEvery = leastTTL, 50*time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	x := &running{Registrar: r, t: t, stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(x.done)
		if err := r.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	t.Cleanup(x.end)
	return x
}

// end stops it and waits for its end.
func (x *running) end() {
	x.stop()
	<-x.done
}

// ready waits for the first registration.
func (x *running) ready() *running {
	x.t.Helper()
	consultest.Eventually(x.t, "the first registration", func(context.Context) error {
		select {
		case <-x.Registered():
			return nil
		default:
			return fmt.Errorf("status %+v", x.Status())
		}
	})
	return x
}

// service is the status of one service.
func (x *running) service(id string) ServiceStatus {
	for _, s := range x.Status() {
		if s.ID == id {
			return s
		}
	}
	return ServiceStatus{}
}

// heartbeats waits until every check that jorc runs had n more of them.
func (x *running) heartbeats(n uint64) {
	x.t.Helper()
	want := map[string]uint64{}
	each := func(do func(CheckStatus)) {
		for _, s := range x.Status() {
			for _, c := range s.Checks {
				if c.Kind == kindScript || c.Kind == kindPresence {
					do(c)
				}
			}
		}
	}
	each(func(c CheckStatus) { want[c.ID] = c.Heartbeats + n })
	consultest.Eventually(x.t, "heartbeats", func(context.Context) (err error) {
		each(func(c CheckStatus) {
			if c.Heartbeats < want[c.ID] {
				err = fmt.Errorf("check %s has %d heartbeats, want %d", c.ID, c.Heartbeats, want[c.ID])
			}
		})
		return err
	})
}

// script is a check whose exit code and output a test sets.
type script struct {
	dir string
}

func newScript(t *testing.T, code int) *script {
	t.Helper()
	s := &script{dir: t.TempDir()}
	s.set(t, code)
	return s
}

// set makes the following runs exit with code. The output of every run differs.
func (s *script) set(t *testing.T, code int) {
	t.Helper()
	file := filepath.Join(s.dir, "code")
	if err := os.WriteFile(file+".new", []byte(strconv.Itoa(code)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

func (s *script) check() config.Check {
	return config.Check{
		Script:   []string{"/bin/sh", "-c", `echo "pid $$"; exit "$(cat "$0")"`, filepath.Join(s.dir, "code")},
		Interval: 50 * time.Millisecond, Timeout: 10 * time.Second,
	}
}

// wantState waits until the agent has a check in a state.
func wantState(t *testing.T, c *consul.Client, checkID, state string) *consul.AgentCheck {
	t.Helper()
	var got *consul.AgentCheck
	consultest.Eventually(t, checkID+" to be "+state, func(ctx context.Context) error {
		checks, err := c.AgentChecks(ctx, "")
		if err != nil {
			return err
		}
		if got = checks[checkID]; got == nil || got.Status != state {
			return fmt.Errorf("the agent has %+v", got)
		}
		return nil
	})
	return got
}

// wantServices waits until the agent has exactly these services, jorc's own
// left aside.
func wantServices(t *testing.T, c *consul.Client, want ...string) {
	t.Helper()
	consultest.Eventually(t, "services "+strings.Join(want, " "), func(ctx context.Context) error {
		have, err := c.AgentServices(ctx, `Service != "jorc"`)
		if err != nil {
			return err
		}
		for _, id := range want {
			if have[id] == nil {
				return fmt.Errorf("%s is missing among %d", id, len(have))
			}
		}
		if len(have) != len(want) {
			return fmt.Errorf("the agent has %v", have)
		}
		return nil
	})
}

func wantError(t *testing.T, x *running, id string, parts ...string) {
	t.Helper()
	consultest.Eventually(t, "an error of "+id, func(context.Context) error {
		s := x.service(id)
		for _, part := range parts {
			if !strings.Contains(s.Error, part) {
				return fmt.Errorf("error %q lacks %q", s.Error, part)
			}
		}
		return nil
	})
}
