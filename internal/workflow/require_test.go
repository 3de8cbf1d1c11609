package workflow

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/blocker"
	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

// TestRequires: a missing dependency is pending, with target and count;
// when it is there the job continues.
func TestRequires(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	dns, err := catalog.NewResolver(s.DNSAddr)
	if err != nil {
		t.Fatal(err)
	}
	task := sh("two", "")
	task.Requires = []config.Requires{{Target: "mysql", Count: 1}, {Target: "web", Count: 2, For: "addressable"}}
	h := newHost(t, Options{Requirements: FromBlocker(blocker.New(dns, blocker.FromClient(s.Client())))}, sh("one", ""), task)

	res := h.run()
	want(t, "state", res.State, Pending)
	want(t, "task", res.Task, "two")
	want(t, "tasks", states(res), "success pending")
	want(t, "why", res.Why, "waiting for mysql: 0 of 1 functional (none registered); web: 0 of 2 addressable (none registered)")
	want(t, "suspect", len(res.Suspect), 0)
	again := h.run()
	want(t, "nothing new is not written", again.Updated, res.Updated)
	want(t, "attempts", again.Tasks[1].Attempts, 0)

	ready := make(chan error, 1)
	go func() { ready <- h.ready(t.Context(), "j") }()
	for i, name := range []string{"mysql", "web", "web"} {
		err := s.Client().RegisterService(t.Context(), &consul.ServiceRegistration{ID: fmt.Sprint(name, i), Name: name, Port: 1000 + i})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	want(t, "state", h.run().State, Success)
	want(t, "ran", h.read("ran"), "one\ntwo\n")

	// Without Consul it is pending, too.
	task.Requires = task.Requires[:1]
	h = newHost(t, Options{Requirements: h.o.Requirements}, task)
	s.Stop()
	res = h.run()
	want(t, "state", res.State, Pending)
	wantText(t, "why", res.Why, "waiting for mysql: 0 of 1 functional (")
}

func TestNoConsul(t *testing.T) {
	t.Parallel()
	task := sh("one", "")
	task.Requires = []config.Requires{{Target: "mysql", Count: 1}}
	h := newHost(t, Options{}, task)
	res := h.run()
	want(t, "state", res.State, Pending)
	want(t, "why", res.Why, "waiting for mysql: there is no Consul to ask")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.ready(ctx, "j"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's end", err)
	}
}

// failing are Requirements that cannot be asked for.
type failing struct{ Requirements }

func (failing) Missing(context.Context, []config.Requires) (string, error) {
	return "", errors.New("no such target")
}

func TestWrongRequires(t *testing.T) {
	t.Parallel()
	task := sh("one", "")
	task.Requires = []config.Requires{{Target: "=", Count: 1}}
	for _, r := range []Requirements{failing{}, FromBlocker(blocker.New(nil, nil))} {
		res := newHost(t, Options{Requirements: r}, task).run()
		want(t, "state", res.State, Failed)
		want(t, "exit code", res.ExitCode, 126)
		want(t, "attempts", res.Tasks[0].Attempts, 0)
	}
}

// TestReady: what said "not yet" itself is tried again after growing pauses.
func TestReady(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{}, sh("one", "exit 196"))
	for range 8 {
		h.run()
		if err := h.ready(t.Context(), "j"); err != nil {
			t.Fatal(err)
		}
	}
	want(t, "slept", fmt.Sprint(h.slept), "[1s 2s 4s 8s 16s 32s 1m0s 1m0s]")
	h.slept = nil
	if _, err := h.Abandon(t.Context(), "j", "enough"); err != nil {
		t.Fatal(err)
	}
	if err := h.ready(t.Context(), "j"); err != nil || len(h.slept) > 0 {
		t.Errorf("not pending: got %v, %v", err, h.slept)
	}
	if err := h.ready(t.Context(), "x"); !errors.Is(err, ErrNoJob) {
		t.Errorf("got %v, want ErrNoJob", err)
	}
}

func TestWaitingFor(t *testing.T) {
	t.Parallel()
	need := func(text string, level catalog.Level) blocker.Need {
		target, err := blocker.ParseTarget(text)
		if err != nil {
			t.Fatal(err)
		}
		return blocker.Need{Target: target, For: level}
	}
	got := waitingFor([]blocker.State{
		{Need: need("there", 0), Satisfied: true, Since: time.Now()},
		{Need: need("primary.db@dc2=3", catalog.Reachable), Have: 1, Why: "1 of 3: connection refused"},
		{Need: need("web=2", 0), Have: 1, Why: "at least 1 of 2: critical"},
		{Need: need("x", 0), Have: 0, Why: "0 of 1"},
		{Need: need("secret", 0), Denied: true, Why: `the token may not read the service "secret"`},
	})
	want(t, "line", got, "waiting for "+strings.Join([]string{
		"primary.db@dc2: 1 of 3 reachable (connection refused)", "web: 1 of 2 functional (critical)", "x: 0 of 1 functional",
		`secret: 0 of 1 functional (the token may not read the service "secret")`,
	}, "; "))
}
