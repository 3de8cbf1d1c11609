package main

import (
	"io"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
)

// TestUpdateWaitOnTerminal: who looks sees how far the rollout has come, and
// nothing of that is left on stdout.
func TestUpdateWaitOnTerminal(t *testing.T) {
	t.Parallel()
	program := builtOnce(t) // Consul removes hosts that are not part of gossip after a minute
	s := consultest.Start(t)
	env := onServer(t, s)
	if _, err := fleet.New(s.Client(), "jorc", "default").Init(t.Context(), fleet.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	members(t, s, "n1", "n2")
	if got := jorc(t, env, "update", "trigger", "v1"); got.code != 0 {
		t.Fatalf("trigger: %+v", got)
	}
	ours, theirs := pseudoTerminal(t)
	if err := unix.IoctlSetWinsize(int(theirs.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 100}); err != nil {
		t.Fatal(err)
	}
	var screen, stdout output
	seen := make(chan struct{})
	go func() {
		defer close(seen)
		_, _ = io.Copy(&screen, ours) // it ends when the other end is closed
	}()
	wait := exec.CommandContext(t.Context(), program, "update", "wait")
	wait.Env = []string{"PATH=" + os.Getenv("PATH"), "TERM=xterm", consultest.NoConfig}
	for name, v := range env {
		wait.Env = append(wait.Env, name+"="+v)
	}
	wait.Stdout, wait.Stderr = &stdout, theirs
	if err := wait.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = wait.Process.Kill() }) // it may have ended
	cl := fleet.New(s.Client(), "jorc", "default")
	for i, node := range []string{"n1", "n2"} {
		says(t, &screen, []string{" 0 / 2", " 1 / 2"}[i])
		if _, err := cl.ReportVersion(t.Context(), node, "v1"); err != nil {
			t.Fatal(err)
		}
	}
	if err := wait.Wait(); err != nil {
		t.Errorf("update wait: %v: %s", err, screen.String())
	}
	_ = theirs.Close()
	<-seen
	says(t, &screen, "v1: batch 1 of 1, 0 working, 0 failed")
	if got := stdout.String(); got != "" {
		t.Errorf("stdout has %q", got)
	}
}
