package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/runs"
)

// cutOffConf is a host with a workflow whose second task waits until it is released, and
// that may not run again by itself.
const cutOffConf = `
http { address = "127.0.0.1:0" }
cluster = "prod"
version_file = "DIR/version"
member {}
orchestrator { interval = "200ms" }
workflow "cut" {
  task "one" { script = "echo one >>DIR/ran" }
  task "two" { script = "echo two >>DIR/ran; touch DIR/waits; until [ -e DIR/go ]; do sleep 0.05; done" }
  task "three" { script = "echo three >>DIR/ran" }
}
workflow "none" {
  task "nothing" { command = ["true"] }
}
`

// interrupt ends the agent during the second task.
func (m *machine) interrupt(d *process, by syscall.Signal) {
	m.t.Helper()
	m.eventually("the second task", func() error { _, err := os.Stat(m.path("waits")); return err })
	d.signal(by)
	code := exitOK
	if by == syscall.SIGKILL {
		code = -1
	}
	d.wantExit(code)
	if err := os.Remove(m.path("waits")); err != nil {
		m.t.Fatal(err)
	}
	m.write("go", "")
}

func signals() map[string]syscall.Signal {
	return map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGTERM}
}

// TestInterruptedConvergence: a host on which an agent was ended during a task that is not
// idempotent stays failed, over restarts of the agent, until an operator decides. A new
// version begins afresh.
func TestInterruptedConvergence(t *testing.T) {
	t.Parallel()
	for name, by := range signals() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, consultest.Start(t), cutOffConf+`static { workflow = "cut" }`)
			m.must("cluster", "init", "prod")
			m.env = append(m.env, "JORC_CLUSTER=prod")
			m.must("update", "trigger", "v1")
			m.interrupt(m.agent(), by)
			m.wantInterrupted("one\ntwo\n")
			retry := func(wait bool, ran string, args ...string) {
				t.Helper()
				if wait {
					if err := os.Remove(m.path("go")); err != nil {
						t.Fatal(err)
					}
				}
				d := m.agent()
				d.wantNotified("READY=1")
				m.must(append([]string{"update", "retry", m.server.Node}, args...)...)
				if wait {
					m.interrupt(d, by)
				}
				m.wantFile("ran", ran)
				if !wait {
					m.eventually("the version", func() error { return lacks(m.read("version"), "v1") })
					d.signal(syscall.SIGTERM)
					d.wantExit(exitOK)
				}
			}
			retry(true, "one\ntwo\ntwo\n")
			m.wantInterrupted("one\ntwo\ntwo\n")
			retry(true, "one\ntwo\ntwo\none\ntwo\n", "--from-start")
			m.wantInterrupted("one\ntwo\ntwo\none\ntwo\n")
			retry(false, "one\ntwo\ntwo\none\ntwo\ntwo\nthree\n")

			if err := os.Remove(m.path("go")); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(os.Remove(m.path("ran")), os.Remove(m.path("waits"))); err != nil {
				t.Fatal(err)
			}
			m.must("update", "trigger", "v2")
			m.interrupt(m.agent(), by)
			m.wantInterrupted("one\ntwo\n")
			d := m.agent()
			d.wantNotified("READY=1")
			m.must("update", "trigger", "v3")
			m.wantFile("ran", "one\ntwo\none\ntwo\nthree\n")
		})
	}
}

// wantInterrupted restarts the agent twice: the host is failed, interrupted, names what to
// do, and has run nothing else.
func (m *machine) wantInterrupted(ran string) {
	m.t.Helper()
	for range 2 {
		d := m.agent()
		m.eventually("the interruption in the report", func() error {
			got := m.run("update", "why", m.server.Node)
			return errors.Join(lacks(got.stdout, "config failed"), lacks(got.stdout, `interrupted: task "two"`),
				lacks(got.stdout, "'jorc update retry "+m.server.Node+"'"), lacks(got.stdout, "--from-start"))
		})
		m.eventually("the phase", func() error {
			if c := d.status().Convergence; c == nil || c.Phase != "failed" || !c.Next.IsZero() {
				return fmt.Errorf("got %+v", c)
			}
			return nil
		})
		if got := m.read("ran"); got != ran {
			m.t.Errorf("ran %q, want %q", got, ran)
		}
		d.signal(syscall.SIGTERM)
		d.wantExit(exitOK)
	}
}

// TestInterruptedRun: a run that was interrupted on a member fails there and does not run
// again; --retry-of continues with the interrupted task, with --from-start, or another
// workflow, it runs all.
func TestInterruptedRun(t *testing.T) {
	t.Parallel()
	for name, by := range signals() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, consultest.Start(t), cutOffConf)
			m.must("cluster", "init", "prod")
			m.env = append(m.env, "JORC_CLUSTER=prod")
			d := m.agent()
			m.must("cluster", "wait", "--for", "members=1")
			m.must("cluster", "run", "cut", "--id", "r1")
			m.interrupt(d, by)
			for range 2 {
				d = m.agent()
				if got := m.run("cluster", "wait", "--for", "run=r1"); got.code != exitFailed || !strings.Contains(got.stderr, `: failed: interrupted: `) {
					t.Errorf("got %+v", got)
				}
				d.wantNotified("READY=1")
				if got := m.read("ran"); got != "one\ntwo\n" {
					t.Errorf("ran %q", got)
				}
				d.signal(syscall.SIGTERM)
				d.wantExit(exitOK)
			}
			m.agent()
			if got := m.run("cluster", "run", "cut", "--from-start"); got.code != exitUsage || !strings.Contains(got.stderr, "--from-start goes with --retry-of") {
				t.Errorf("got %+v", got)
			}
			m.must("cluster", "run", "--retry-of", "r1", "--id", "r2", "--wait")
			m.wantFile("ran", "one\ntwo\ntwo\nthree\n")
			m.must("cluster", "run", "--retry-of", "r1", "--from-start", "--id", "r3", "--wait")
			m.wantFile("ran", "one\ntwo\ntwo\nthree\none\ntwo\nthree\n")
			var d2 runs.Detail
			if got := m.run("cluster", "runs", "r3", "-o", "json"); json.Unmarshal([]byte(got.stdout), &d2) != nil || !d2.Request.FromStart {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestInterruptedTrigger: a trigger's job that was interrupted does not run again, and the
// host's status says so until the next change or due time, which is a new job.
func TestInterruptedTrigger(t *testing.T) {
	t.Parallel()
	for name, by := range signals() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, consultest.Start(t), cutOffConf+`
trigger "key" {
  key      = "k"
  workflow = "cut"
}`)
			m.env = append(m.env, "JORC_CLUSTER=prod")
			known := func() {
				t.Helper()
				m.eventually("the trigger's state", func() error { return lacks(m.read("state/triggers/key.json"), `"known":true`) })
			}
			d := m.agent()
			known()
			m.put("k", "1")
			m.interrupt(d, by)
			for range 2 {
				d = m.agent()
				m.wantLast(d, "interrupted", `task "two": `)
				if got := m.read("ran"); got != "one\ntwo\n" {
					t.Errorf("ran %q", got)
				}
				d.signal(syscall.SIGTERM)
				d.wantExit(exitOK)
			}
			d = m.agent()
			m.put("k", "2")
			m.wantFile("ran", "one\ntwo\none\ntwo\nthree\n")
			m.wantLast(d, "success", "")
		})
	}
}

// wantLast waits for how the last job of the only trigger ended.
func (m *machine) wantLast(d *process, state, why string) {
	m.t.Helper()
	m.eventually("the trigger's last job", func() error {
		all := d.status().Triggers
		if len(all) != 1 || all[0].Last == nil || all[0].Last.State != state || !strings.HasPrefix(all[0].Last.Why, why) {
			return fmt.Errorf("got %+v", all)
		}
		return nil
	})
}

// TestInterruptedSchedule: a due time whose job was interrupted is handled; the next one is a
// new job.
func TestInterruptedSchedule(t *testing.T) {
	t.Parallel()
	m := newMachine(t, consultest.Start(t), cutOffConf+`
trigger "nightly" {
  schedule = "0 3 * * *"
  workflow = "cut"
  missed   = "run-once"
}`)
	m.env = append(m.env, "JORC_CLUSTER=prod")
	const state = "state/triggers/nightly.json"
	due := func() { // several due times have passed while no agent ran
		t.Helper()
		var saved map[string]any
		if err := json.Unmarshal([]byte(m.read(state)), &saved); err != nil {
			t.Fatal(err)
		}
		saved["due"] = "2026-01-01T00:00:00Z"
		text, err := json.Marshal(saved)
		if err != nil {
			t.Fatal(err)
		}
		m.write(state, string(text))
	}
	d := m.agent()
	m.eventually("the trigger's state", func() error { return lacks(m.read(state), `"known":true`) })
	d.signal(syscall.SIGTERM)
	d.wantExit(exitOK)
	due()
	m.interrupt(m.agent(), syscall.SIGKILL)
	d = m.agent()
	m.wantLast(d, "interrupted", `task "two": `)
	if got := m.run("--config", m.path("jorc.hcl"), "workflow", "schedules", "-o", "plain"); !strings.Contains(got.stdout, "\tinterrupted\t") {
		t.Errorf("got %+v", got)
	}
	if s := d.status().Schedules; len(s) != 1 || s[0].NextRun.IsZero() {
		t.Errorf("got %+v", s)
	}
	d.signal(syscall.SIGTERM)
	d.wantExit(exitOK)
	if got := m.read("ran"); got != "one\ntwo\n" {
		t.Errorf("ran %q", got)
	}
	due()
	jobs := m.path("state/jobs")
	if err := os.Rename(jobs, m.path("old-jobs")); err != nil { // the job of the same due time, of which this test makes two
		t.Fatal(err)
	}
	d = m.agent()
	m.wantFile("ran", "one\ntwo\none\ntwo\nthree\n")
	m.wantLast(d, "success", "")
}

// TestInterruptedLeader: on_lead that was interrupted is not run again when the agent
// restarts and the member still leads.
func TestInterruptedLeader(t *testing.T) {
	t.Parallel()
	m := newMachine(t, consultest.Start(t), strings.Replace(cutOffConf, "member {}", `member { on_lead = "cut" }`, 1))
	m.must("cluster", "init", "prod")
	m.env = append(m.env, "JORC_CLUSTER=prod")
	m.interrupt(m.agent(), syscall.SIGKILL)
	for range 2 {
		d := m.agent()
		d.wantSaid("workflow was interrupted and is not run again by itself")
		if got := m.read("ran"); got != "one\ntwo\n" {
			t.Errorf("ran %q", got)
		}
		d.signal(syscall.SIGKILL)
		d.wantExit(-1)
	}
	d := m.agent()
	d.wantSaid("workflow was interrupted and is not run again by itself")
	m.must("cluster", "profile", "set", cluster.ParamEligible, "false", "--node", m.server.Node)
	d.wantSaid("this member no longer leads")
	m.must("cluster", "profile", "set", cluster.ParamEligible, "true", "--node", m.server.Node)
	m.wantFile("ran", "one\ntwo\none\ntwo\nthree\n")
}
