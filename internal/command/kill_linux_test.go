package command

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestStartTime(t *testing.T) {
	t.Parallel()
	for stat, want := range map[string]string{"1 (a) b) S " + strings.Repeat("0 ", 18) + "77 1": "77", "1 (a": ""} {
		if got := startTime(stat); got != want {
			t.Errorf("%q: got %q, want %q", stat, got, want)
		}
	}
	if StartTime(os.Getpid()) == "" || StartTime(1<<30) != "" {
		t.Errorf("got %q and %q, want a time and none", StartTime(os.Getpid()), StartTime(1<<30))
	}
}

// TestKill: only the process that is meant ends.
func TestKill(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	pid := cmd.Process.Pid
	if err := Kill(pid, func() bool { return false }, time.Minute); err != nil || StartTime(pid) == "" {
		t.Errorf("another process: got %v, want it untouched", err)
	}
	if err := Kill(pid, func() bool { return true }, time.Minute); err != nil {
		t.Error(err)
	}
	<-ended
	if err := Kill(pid, func() bool { t.Error("asked about a process that has ended"); return false }, time.Minute); err != nil {
		t.Errorf("it has ended: %v", err)
	}
}
