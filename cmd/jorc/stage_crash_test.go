package main

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
)

// TestStageOfACrashingHost: where each reload of a value kills the agent, the old file returns at
// the first start after the deadline, which counts from the turn, and the turn has failed.
func TestStageOfACrashingHost(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	const deadline = 5 * time.Second
	m := newMachine(t, s, fmt.Sprintf(`
http { address = "127.0.0.1:0" }
member {}
orchestrator { interval = "1s" }
template "limit" {
  contents    = "limit {{ key \"app/limit\" }}\n"
  destination = "DIR/limit"
  reload      = ["sh", "-c", "cat DIR/limit >>DIR/reloads; if grep -q bad DIR/limit; then kill -9 $(cat DIR/pid); fi"]
  stage "edge" {
    min_healthy   = "1s"
    node_deadline = "%v"
  }
}
`, deadline))
	m.must("cluster", "init", "default")
	m.put("app/limit", "1")
	agent := func() *process {
		d := m.agent()
		m.write("pid", fmt.Sprint(d.cmd.Process.Pid))
		return d
	}
	is := func(state, reason string) error {
		e, err := fleet.New(m.client, "jorc", "default").Reports().At(s.Node).Get(t.Context())
		if got := e.Value.Stages["edge"]; err != nil || got.State != state || got.Reason != reason {
			return errors.Join(err, fmt.Errorf("got %+v", got))
		}
		return nil
	}
	d := agent()
	m.eventually("the first content", func() error { return is(cluster.StageDone, "") })
	m.put("app/limit", "bad")
	<-d.ended
	for over := time.Now().Add(deadline); ; {
		if status := d.cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
			t.Fatalf("the agent ended with %v, want that the reload kills it", d.cmd.ProcessState)
		}
		late := time.Now().After(over)
		d = agent()
		lives := false
		m.eventually("the end of the agent or of the turn", func() error {
			select {
			case <-d.ended:
				return nil
			default:
			}
			err := is(cluster.StageRestored, "its replacement was interrupted, and has not ended within 5s of its grant")
			lives = err == nil
			return err
		})
		if lives {
			break
		}
		if late {
			t.Fatalf("a start after the deadline reloads the value again:\n%s", m.read("reloads"))
		}
	}
	m.wantFile("limit", "limit 1\n")
	if got := m.read("reloads"); !strings.HasSuffix(got, "limit bad\nlimit 1\n") {
		t.Errorf("reloaded: %s", got)
	}
	d.signal(syscall.SIGTERM)
	d.wantExit(exitOK)
}
