package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/runs"
)

// TestRunWaitEndsWithFirstFailure: the outcome is certain as soon as one member has
// failed, whatever the others still do.
func TestRunWaitEndsWithFirstFailure(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, "a", "b")
	f.orchestrate()
	do := doer(t, f.env)
	do(result{1, "r\n", "jorc: a: failed: exit code 3\n"}, "run", "half", "--id", "r", "--wait")
	if d := f.show("r"); d.State != runs.Running || d.Members[1].State.Ended() {
		t.Errorf("the run is %s, b is %s: want both to continue", d.State, d.Members[1].State)
	}
	do(result{1, "", "jorc: a: failed: exit code 3\n"}, "wait", "--for", "run=r")
	if err := os.WriteFile(filepath.Join(f.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.eventually("the end of the run", func() error { return is(f.show("r").State, runs.Failed) })
}

// TestCancelKill: a running task ends, also one that ignores SIGTERM; without
// --kill it runs to its end.
func TestCancelKill(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, "a", "b")
	f.orchestrate()
	do := doer(t, f.env)
	do(result{0, "r\n", ""}, "run", "hang", "--id", "r")
	var pids []int
	f.eventually("the tasks", func() error {
		pids = nil
		for _, node := range []string{"a", "b"} {
			data, err := os.ReadFile(filepath.Join(f.dir, "hung-"+node))
			if err != nil {
				return err
			}
			pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
			if err != nil {
				return err
			}
			pids = append(pids, pid)
		}
		return nil
	})
	do(result{0, "ID  STATE\nr   running\n", ""}, "cancel", "r")
	f.eventually("the members to know", func() error {
		return lacks(f.show("r").Why, "cancelled by ann: members end after the task")
	})
	for _, pid := range pids {
		if !consultest.Exists(pid) {
			t.Errorf("the task %d has ended: want it to run to its end", pid)
		}
	}
	do(result{0, "ID  STATE\nr   running\n", ""}, "cancel", "r", "--kill")
	do(result{0, "ID  STATE\nr   running\n", "jorc: run \"r\": it has ended, or was cancelled already; nothing was changed\n"}, "cancel", "r", "--kill")
	f.eventually("the end of the run", func() error { return is(f.show("r").State, runs.Cancelled) })
	for i, m := range f.show("r").Members {
		if m.State != runs.Cancelled || m.Why != "by ann (killed)" || m.Task != "one" || m.ExitCode != 137 {
			t.Errorf("%s is %s: %q in task %q with exit code %d", m.Node, m.State, m.Why, m.Task, m.ExitCode)
		}
		if consultest.Exists(pids[i]) {
			t.Errorf("the task of %s runs: want it gone", m.Node)
		}
	}
	do(result{0, "next\n", ""}, "run", "install", "--id", "next", "--wait") // the queue is free
}

// TestKillGrace: a killed task has the time that its kill_grace gives to it.
func TestKillGrace(t *testing.T) {
	t.Parallel()
	m := newMachine(t, consultest.Start(t), isolationConf+`
workflow "tidy" {
  task "tidy" {
    kill_grace = "1h"
    script     = <<-EOT
      trap 'sleep 3; echo tidied >DIR/tidied; exit 0' TERM
      echo begun >DIR/begun
      while :; do sleep 0.05; done
    EOT
  }
}
`)
	m.must("cluster", "init", "default")
	m.agent()
	m.eventually("the host to be a member", func() error { return lacks(m.run("cluster", "members").stdout, m.server.Node) })
	m.must("cluster", "run", "tidy", "--id", "r")
	m.wantFile("begun", "begun\n")
	m.must("cluster", "cancel", "r", "--kill")
	m.run("cluster", "wait", "--for", "run=r")
	if got := m.read("tidied"); got != "tidied\n" {
		t.Errorf("the task was killed within its grace: it wrote %q", got)
	}
	if got := m.run("cluster", "runs", "r", "-o", "plain"); !strings.Contains(got.stdout, "\ttidy\t143\t") { // it exits 0 after SIGTERM
		t.Errorf("a task that was killed: %+v", got)
	}
	for _, wrong := range []string{"0", `"0s"`, `"-1s"`, `"soon"`, "3"} {
		m.write("wrong.hcl", `workflow "w" {
  task "t" {
    command    = ["true"]
    kill_grace = `+wrong+`
  }
}
`)
		if got := m.run("config", "validate", m.path("wrong.hcl")); got.code != exitUsage || !strings.Contains(got.stderr, "kill_grace") {
			t.Errorf("kill_grace = %s: %+v", wrong, got)
		}
	}
}

// TestRunWithClosedStdout: the id of a run is on stderr when stdout was closed, and
// not when it is a file, a pipe or a shell's /dev/null.
func TestRunWithClosedStdout(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, "a")
	m := newMachine(t, f.server, "")
	m.env = append(m.env, "JORC_CLUSTER=prod")
	for i, tt := range []struct {
		redirect string
		told     bool
	}{{">&-", true}, {"<&- >&-", true}, {">/dev/null", false}, {">out", false}, {"", false}, {"| cat", false}} {
		id := fmt.Sprintf("r%d", i)
		cmd := m.command()
		cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `"$0" cluster run say --id "$1" ` + tt.redirect, cmd.Path, id}
		var stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = new(bytes.Buffer), &stderr
		if err := cmd.Run(); err != nil {
			t.Errorf("%s: %v: %s", tt.redirect, err, &stderr)
		}
		if told := strings.Contains(stderr.String(), "the id of the run is "+id+"\n"); told != tt.told {
			t.Errorf("%s: stderr %q: want the id there: %v", tt.redirect, &stderr, tt.told)
		}
	}
}

// TestRunOnLogicalMember: where there is no host the run fails at once.
func TestRunOnLogicalMember(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, "a")
	f.orchestrate()
	do := doer(t, f.env)
	do(result{0, "", ""}, "join", "--node", "ghost")
	why := "a logical member: no host of this name is in Consul's catalog"
	do(result{1, "r\n", "jorc: ghost: failed: " + why + "\n"}, "run", "install", "--id", "r", "--wait")
	f.eventually("the end of the run", func() error { return is(f.show("r").State, runs.Failed) })
	if d := f.show("r"); d.Members[0].State != runs.Done || d.Members[1].Why != why {
		t.Errorf("got %+v", d.Members)
	}
}

// TestRunLogs: the last output of tasks that succeeded is shown, too; and what ran
// on a manager is read there with the documented command.
func TestRunLogs(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, "a")
	f.orchestrate()
	do := doer(t, f.env)
	do(result{0, "r\n", ""}, "run", "say", "--id", "r", "--wait")
	do(result{0, "a: done\n  all is well\n", ""}, "logs", "r")
	do(result{0, "a: done\n  all is well\n", ""}, "logs", "r", "a")
	do(result{0, "silent\n", ""}, "run", "install", "--id", "silent", "--wait")
	do(result{0, "a: done\n", ""}, "logs", "silent")

	m := newMachine(t, consultest.Start(t), isolationConf)
	m.must("cluster", "init", "default")
	m.agent()
	m.must("cluster", "run", "hello", "--on-manager", "--id", "m", "--wait")
	if got := m.run("workflow", "logs", "run-m", "--config", m.path("jorc.hcl")); got.code != 0 || !strings.Contains(got.stderr, "job run-m, workflow \"hello\": success") {
		t.Errorf("workflow logs: %+v", got)
	}
	if got := m.run("workflow", "jobs", "-o", "plain", "--config", m.path("jorc.hcl")); !strings.Contains(got.stdout, "run-m\thello") {
		t.Errorf("workflow jobs: %+v", got)
	}
}

// TestRunsSayWhyTheyWait: in the table and in JSON.
func TestRunsSayWhyTheyWait(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, "a")
	do := doer(t, f.env)
	says := func(id, why string) {
		t.Helper()
		f.eventually("run "+id+" to say why it waits", func() error { return is(f.show(id).Why, why) })
		if got := jorc(t, f.env, "cluster", "runs", "-o", "json"); !strings.Contains(got.stdout, strconv.Quote(why)) {
			t.Errorf("runs -o json: %s, want %q in it", got.stdout, why)
		}
		if got := jorc(t, f.env, "cluster", "runs"); !strings.Contains(got.stdout, why) {
			t.Errorf("runs: %s, want %q in it", got.stdout, why)
		}
	}
	absent := "jorc: no orchestrator runs: the run begins when an agent with an orchestrator block is up\n"
	do(result{0, "alone\n", absent}, "run", "say", "--id", "alone")
	says("alone", "waits for the orchestrator")
	f.orchestrate()
	do(result{0, "", ""}, "wait", "--for", "run=alone")

	do(result{0, "approval\n", ""}, "run", "say", "--id", "approval", "--needs-approval")
	says("approval", "'jorc cluster approve approval' lets it begin")
	do(result{0, "ID        STATE\napproval  pending\n", ""}, "approve", "approval")
	do(result{0, "", ""}, "wait", "--for", "run=approval")

	do(result{0, "", ""}, "pause", "--reason", "storm")
	do(result{0, "paused\n", ""}, "run", "say", "--id", "paused")
	says("paused", "the cluster is paused: storm")
	do(result{0, "", ""}, "resume")
	do(result{0, "", ""}, "wait", "--for", "run=paused")

	do(result{0, "", ""}, "observe-only", "on", "--reason", "audit")
	do(result{0, "observed\n", ""}, "run", "say", "--id", "observed")
	says("observed", "the cluster is in observe-only mode: audit")
	do(result{0, "", ""}, "observe-only", "off")
	do(result{0, "", ""}, "wait", "--for", "run=observed")

	do(result{0, "first\n", ""}, "run", "hang", "--id", "first")
	do(result{0, "second\n", ""}, "run", "say", "--id", "second")
	says("second", "a: run first is before it")
	do(result{0, "ID     STATE\nfirst  running\n", ""}, "cancel", "first", "--kill")
	do(result{0, "", ""}, "wait", "--for", "run=second")
	if d := f.show("second"); d.Why != "" {
		t.Errorf("it is done, and waits: %q", d.Why)
	}

	f.up("b") // its agent takes part in no run
	do(result{0, "", ""}, "join", "--node", "b")
	f.down("b")
	do(result{0, "away\n", ""}, "run", "say", "--id", "away", "--filter", `Node == "b"`)
	says("away", "b: its agent is down")
}

func (f *testFleet) show(id string) (d runs.Detail) {
	f.t.Helper()
	got := jorc(f.t, f.env, "cluster", "runs", id, "-o", "json")
	if err := json.Unmarshal([]byte(got.stdout), &d); err != nil {
		f.t.Fatalf("runs %s: %+v: %v", id, got, err)
	}
	return d
}

func (f *testFleet) eventually(what string, check func() error) {
	f.t.Helper()
	consultest.Eventually(f.t, what, func(context.Context) error { return check() })
}

func is[T comparable](got, want T) error {
	if got != want {
		return fmt.Errorf("got %v, want %v", got, want)
	}
	return nil
}
