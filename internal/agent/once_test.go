package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/agent"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/web"
)

// endWhen runs do with a context that ends when a's status is as wanted.
func endWhen(t *testing.T, a *agent.Agent, wanted func(web.Status) bool, do func(context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	consultest.Eventually(t, "a status", func(context.Context) error {
		if s := a.Status(); !wanted(s) {
			return fmt.Errorf("got %+v", s)
		}
		return nil
	})
	cancel()
	return <-done
}

// TestOnce: registers, renders and ends, whatever on_stop says.
func TestOnce(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	h := newHost(t, s, `
on_stop = "deregister"
service "web" { port = 80 }
template "t" {
  contents    = "{{ key \"k\" }}"
  destination = "DIR/t"
}
`)
	h.put("k", "1")
	if err := h.make().Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.wantFile("t", "1")
	h.wantServices("jorc", "web")

	h.configure(`template "t" {
  contents    = "{{ fail \"no\" }}"
  destination = "DIR/t"
}`)
	if err := h.make().Once(t.Context()); err == nil || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `template "t"`) {
		t.Errorf("a template that fails: got %v", err)
	}
	h.configure(`template "t" {
  contents    = "{{ key \"absent\" }}"
  destination = "DIR/t"
}`)
	a := h.make()
	err := endWhen(t, a, func(s web.Status) bool { return len(s.Templates[0].Waiting) > 0 }, a.Once)
	if !errors.Is(err, context.Canceled) || errors.Is(err, consul.ErrUnreachable) || !strings.Contains(err.Error(), "absent") {
		t.Errorf("a key that is not there: got %v", err)
	}
	h.wantFile("t", "1")
	s.Stop()
	render := func(mode agent.RenderMode) func(*agent.Agent, context.Context) error {
		return func(a *agent.Agent, ctx context.Context) error {
			_, err := a.Render(ctx, mode, &buffer{})
			return err
		}
	}
	for name, do := range map[string]func(*agent.Agent, context.Context) error{
		"Once": (*agent.Agent).Once, "Render": render(agent.RenderOnce), "Diff": render(agent.Diff),
	} {
		a := h.make()
		unreachable := func(s web.Status) bool { return !s.Consul.UnreachableSince.IsZero() }
		err := endWhen(t, a, unreachable, func(ctx context.Context) error { return do(a, ctx) })
		if !errors.Is(err, consul.ErrUnreachable) {
			t.Errorf("%s without Consul: got %v", name, err)
		}
	}
}

// TestRender: dry runs compare beside a running agent, and write nothing.
func TestRender(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), before)
	h.put("k", "1")
	h.start()
	h.wantFile("t", "1")
	h.wantFile("old", "1")
	var out buffer
	if changes, err := h.make().Render(t.Context(), agent.Diff, &out); changes || err != nil || out.String() != "" {
		t.Errorf("nothing to do: got %v, %v, %q", changes, err, &out)
	}
	h.configure(after)
	for mode, want := range map[agent.RenderMode]string{
		agent.DryRun: h.path("new") + "\n" + h.path("t") + "\n",
		agent.Diff: "--- /dev/null\n+++ " + h.path("new") + "\n@@ -0,0 +1 @@\n+1\n\\ No newline at end of file\n" +
			"--- " + h.path("t") + "\n+++ " + h.path("t") + "\n@@ -1 +1 @@\n-1\n\\ No newline at end of file\n+now 1\n\\ No newline at end of file\n",
	} {
		var out buffer
		if changes, err := h.make().Render(t.Context(), mode, &out); !changes || err != nil || out.String() != want {
			t.Errorf("mode %v: got %v, %v, %q, want %q", mode, changes, err, &out, want)
		}
	}
	h.wantFile("t", "1")
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.make().Render(t.Context(), agent.RenderOnce, &out); err != nil {
		t.Error(err)
	}
	h.wantFile("t", "now 1")
	h.wantFile("new", "1")
	h.wantServices("jorc", "web", "old")
}
