//go:build system

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
)

// TestLiveInTmux: a rollout on a real terminal: hosts as they change, more of them
// than the window has lines, names that are wide or hostile, a window that changes its
// size, and a terminal that is as it was after Ctrl-C.
func TestLiveInTmux(t *testing.T) {
	t.Parallel()
	program := builtOnce(t)
	s := consultest.Start(t)
	env := onServer(t, s)
	cl := fleet.New(s.Client(), "jorc", "default")
	if _, err := cl.Init(t.Context(), fleet.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	const wide = "数据库-1" // which some versions of Consul refuse in requests for one key
	s.Plant("jorc/default/"+cluster.MemberKey(wide), `{"format":1}`)
	s.Plant("jorc/default/"+cluster.ReportKey(wide), `{"format":1,"version":"v0","since":"2026-01-01T00:00:00Z"}`)
	names := []string{"web-fails"}
	for i := range 12 {
		names = append(names, fmt.Sprintf("web-%02d", i))
	}
	for _, node := range names { // Consul's catalog lacks them, so their reports make them hosts that are down
		if _, err := cl.Join(t.Context(), node, func(r cluster.Record) (cluster.Record, error) { return r, nil }); err != nil {
			t.Fatal(err)
		}
		if _, err := cl.ReportVersion(t.Context(), node, "v0"); err != nil {
			t.Fatal(err)
		}
	}
	id := catalog.PresenceID("default")
	err := s.Client().CatalogRegister(t.Context(), &consul.CatalogRegistration{ // one that is up keeps the rollout from its end
		Node: "web-11", Address: "10.0.0.1", Service: &consul.AgentService{ID: id, Service: "jorc"},
		Checks: consul.HealthChecks{{Node: "web-11", CheckID: "service:" + id, ServiceID: id, ServiceName: "jorc", Status: "passing"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := jorc(t, env, "update", "trigger", "v1"); got.code != 0 {
		t.Fatalf("trigger: %+v", got)
	}
	dir := t.TempDir()
	tmux := inTmux(t, dir, 70, 12, []string{"bash", "--norc", "-i"}, []string{
		"PATH=" + filepath.Dir(program) + ":/usr/bin:/bin", "PS1=READY ", consultest.NoConfig, "CONSUL_HTTP_ADDR=" + env["CONSUL_HTTP_ADDR"],
	})
	eventually := func(what string, check func(screen string) error) {
		t.Helper()
		consultest.Eventually(t, what, func(context.Context) error {
			screen := tmux.screen()
			for _, line := range strings.Split(screen, "\n") {
				if strings.ContainsAny(line, "\x1b\x07") {
					t.Fatalf("%q", line)
				}
			}
			if err := check(screen); err != nil {
				return fmt.Errorf("%w:\n%s", err, screen)
			}
			return nil
		})
	}
	shows := func(what string, want ...string) {
		t.Helper()
		eventually(what, func(screen string) error {
			for _, text := range want {
				if !strings.Contains(screen, text) {
					return fmt.Errorf("no %q", text)
				}
			}
			return nil
		})
	}
	shows("a prompt", "READY")
	tmux.keys("clear; jorc update wait; echo code=$?", "Enter")
	shows("the first hosts", "v1: batch 1 of 1, 0 working, 0 failed, 1 waiting, 13 down", "] 0 / 14", "web-00", "… and 7 more: 6 down, 1 waiting")
	_, err = cl.ReportWriter("web-fails").Change(t.Context(), func(r cluster.Report) (cluster.Report, error) {
		return r.With(cluster.CategoryConfig, cluster.CategoryState{
			State: cluster.StateFailed, Version: "v1", Detail: "\x1b]0;owned\x07\x1b[2J no disk\n" + strings.Repeat("界", 100),
		}, time.Now()), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	shows("the host that failed", "14", "1 failed", "web-fails", "config failed")
	for i := range 10 {
		if _, err := cl.ReportVersion(t.Context(), fmt.Sprintf("web-%02d", i), "v1"); err != nil {
			t.Fatal(err)
		}
	}
	shows("a wide name in its column", "] 10 / 14", "web-10     down", "web-11     waiting", wide+"   down")
	tmux.do("resize-window", "-x", "40", "-y", "12")
	eventually("one view in a narrow window", func(screen string) error {
		if n := strings.Count(screen, "v1: batch 1 of 1"); n != 1 || !strings.Contains(screen, "] 10 / 14\n") {
			return fmt.Errorf("%d views", n)
		}
		return nil
	})
	tmux.do("resize-window", "-x", "70", "-y", "12")
	tmux.keys("C-c")
	shows("the summary", "v1: batch 1 of 1", "jorc: interrupt", "code=130")
	if got := strings.TrimSpace(tmux.do("display-message", "-p", "#{cursor_flag} #{wrap_flag}")); got != "1 1" {
		t.Errorf("cursor and wrapping: %q, want 1 1", got)
	}
	tmux.keys("stty -a | grep -o ' echo '", "Enter")
	shows("a terminal that echoes", "\n echo")
	if strings.Contains(tmux.screen(), "… and") {
		t.Error("hosts that did not fail stay in the summary")
	}
}
