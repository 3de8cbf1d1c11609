package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/web"
	"github.com/jorc/jorc/internal/workflow"
)

// TestScheduleKilledAgent: a due time whose workflow an agent had begun when it was
// killed runs once, and one that an agent has handled does not run again.
func TestScheduleKilledAgent(t *testing.T) {
	t.Parallel()
	m := newMachine(t, consultest.Start(t), `
http { address = "127.0.0.1:0" }
trigger "nightly" {
  schedule = "0 3 * * *"
  zone     = "Europe/Berlin"
  workflow = "backup"
  missed   = "run-once"
}
workflow "backup" {
  task "begin" { command = ["/bin/sh", "-c", "echo began >> DIR/said"] }
  task "copy" {
    command    = ["/bin/sh", "-c", "cp \"$JORC_CHANGE\" DIR/change; test -e DIR/copied || exec sleep 1000"]
    idempotent = true
  }
  task "end" { command = ["/bin/sh", "-c", "echo ended >> DIR/said"] }
}`)
	killed := func(d *process) {
		t.Helper()
		d.signal(syscall.SIGKILL)
		m.eventually("the end of the agent", func() error {
			if err := d.cmd.Process.Signal(syscall.Signal(0)); err == nil {
				return errors.New("it runs")
			}
			return nil
		})
	}
	d := m.agent()
	state := m.path("state/triggers/nightly.json")
	m.eventually("the trigger's state", func() error { _, err := os.Stat(state); return err })
	killed(d)

	var saved map[string]any
	if err := json.Unmarshal([]byte(m.read("state/triggers/nightly.json")), &saved); err != nil {
		t.Fatal(err)
	}
	saved["due"] = time.Now().Add(-72 * time.Hour).UTC().Format(time.RFC3339)
	text, err := json.Marshal(saved)
	if err != nil {
		t.Fatal(err)
	}
	m.write("state/triggers/nightly.json", string(text))
	for range 2 {
		d = m.agent()
		m.eventually("the job", func() error { _, err := os.Stat(m.path("change")); return err })
		m.wantFile("said", "began\n")
		killed(d)
		if err := os.Remove(m.path("change")); err != nil {
			t.Fatal(err)
		}
	}
	m.write("copied", "")
	d = m.agent()
	m.wantFile("said", "began\nended\n")
	if change := m.read("change"); !strings.Contains(change, `"kind":"schedule"`) || !strings.Contains(change, `"change":"missed"`) {
		t.Errorf("the workflow was given %s", change)
	}
	m.eventually("the job to be handled", func() error {
		if text := m.read("state/triggers/nightly.json"); strings.Contains(text, "pending") {
			return fmt.Errorf("got %s", text)
		}
		return nil
	})
	killed(d)
	d = m.agent()
	d.wantNotified("READY=1")
	jobs := m.run("workflow", "jobs", "-o", "json")
	if n := strings.Count(jobs.stdout, `"origin": "trigger nightly"`) + strings.Count(jobs.stdout, `"origin":"trigger nightly"`); n != 1 {
		t.Errorf("got %d jobs of the trigger, want 1: %+v", n, jobs)
	}
	m.wantFile("said", "began\nended\n")

	var listed []workflow.ScheduleStatus
	if got := m.run("--config", m.path("jorc.hcl"), "workflow", "schedules", "-o", "json"); got.code != 0 || json.Unmarshal([]byte(got.stdout), &listed) != nil || len(listed) != 1 {
		t.Fatalf("workflow schedules: %+v", got)
	}
	s := listed[0]
	if s.Trigger != "nightly" || s.Workflow != "backup" || s.Missed.Count != 1 || s.Missed.Due.IsZero() || s.LastRun.IsZero() || !s.NextRun.After(s.LastRun) || s.Error != "" {
		t.Errorf("workflow schedules: %+v", s)
	}
	if got := d.status().Schedules; len(got) != 1 || got[0].Missed != web.Missed(s.Missed) || !got[0].NextRun.Equal(s.NextRun) {
		t.Errorf("the agent's status has %+v, want %+v", got, s)
	}
	for _, line := range []string{
		`jorc_schedule_missed_total{trigger="nightly"} 1`, `jorc_schedule_last_missed_timestamp_seconds{trigger="nightly"} `,
		`jorc_schedule_last_run_timestamp_seconds{trigger="nightly"} `, `jorc_schedule_next_run_timestamp_seconds{trigger="nightly"} `,
	} {
		if got := d.get("/metrics"); !strings.Contains(got, line) {
			t.Errorf("%s is missing in the metrics", line)
		}
	}
}
