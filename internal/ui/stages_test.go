package ui_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/ui"
	"github.com/jorc/jorc/internal/ui/uitest"
)

// TestStages: a stage is shown with its hosts, what changed and why it is stopped, but without a
// digest; a damaged document of it is a problem.
func TestStages(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	fleet := f.fleet(false)
	f.Stage("a", "pool", "param workers")
	f.Stage("b", "pool", "param workers")
	s := f.eventually("the stage is shown", fleet, func(s *ui.Snapshot) string {
		if v, err := s.Stage("pool"); err != nil || v.Counts.Waiting != 2 {
			return encoded(t, v)
		}
		return ""
	})
	list, err := s.Changes(ui.ChangesQuery{Kind: cluster.KindFiles})
	f.Must(nil, err)
	if len(list.Changes) != 1 || list.Changes[0].ID != "files.pool" || list.Changes[0].State != "changing" || list.Changes[0].Counts.Members != 2 || list.Changes[0].Ended {
		t.Errorf("stages: %s", encoded(t, list))
	}
	if _, err := s.Stage("nothing"); err == nil {
		t.Error("a stage that does not exist has an answer")
	}
	f.Orchestrate("a")
	f.FailStage("a", "pool", "checks of service web are critical", "param workers")
	s = f.eventually("it is stopped", fleet, func(s *ui.Snapshot) string {
		if v, err := s.Stage("pool"); err != nil || v.State != "stopped" || len(v.Events) < 2 {
			return encoded(t, v)
		}
		return missing("change_stopped")(s)
	})
	v, err := s.Stage("pool")
	f.Must(nil, err)
	c, err := fleet.Change(t.Context(), "files.pool", ui.ChangeQuery{Page: ui.Page{Limit: 1}})
	f.Must(nil, err)
	if len(c.Hosts) != 1 || c.Matched != 2 || c.Next != 1 || c.Hosts[0].Node != f.Node("a") || c.Hosts[0].State != pace.Failed || !strings.HasPrefix(c.Hosts[0].Detail, "its old files are restored: checks of service web are critical; it waits: ") {
		t.Errorf("hosts: %s", encoded(t, c.Hosts))
	}
	switch stop := v.Status.Stops[0]; {
	case stop.Node != f.Node("a") || stop.Reason != "checks of service web are critical" || !slices.Equal(stop.Inputs.Names(), []string{"param workers"}):
		t.Errorf("stop: %s", encoded(t, stop))
	case v.Resume != "jorc --cluster="+f.name+" stage resume pool" || v.Stopped != 1:
		t.Errorf("stage: %s", encoded(t, v))
	}
	if text := encoded(t, v) + encoded(t, c); strings.Contains(text, uitest.StageDigest) {
		t.Errorf("a digest is shown: %s", text)
	}
	for _, p := range s.Attention().Problems {
		if p.Kind == "change_stopped" && (p.Cause != "checks of service web are critical (changed: param workers)" || !slices.Equal(p.Hosts, []string{f.Node("a")}) ||
			p.Command != "jorc --cluster="+f.name+" stage show pool" || p.Since.IsZero()) {
			t.Errorf("problem: %+v", p)
		}
	}
	f.Must(f.Store().Txn().Set(cluster.StageStopsKey("pool"), []byte("no JSON")).Commit(t.Context()))
	s = f.eventually("the damage is shown", fleet, missing("damaged"))
	if v, err := s.Stage("pool"); err != nil || v.Status != nil || v.Why == "" || v.State != "" {
		t.Errorf("a damaged stage: %s, %v", encoded(t, v), err)
	}
}

// schedulesOf are the rules with a schedule, which any list of changes has.
func schedulesOf(s *ui.Snapshot) []ui.ScheduleRow {
	v, _ := s.Changes(ui.ChangesQuery{}) // an error is of the query
	return v.Schedules
}

// TestSchedules: rules with a schedule are shown with their next and last run, and with what they
// missed.
func TestSchedules(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Rules(`[{"name": "nightly", "workflow": "vacuum", "schedule": "0 3 * * *", "zone": "Europe/Berlin", "params": {"x": "` + uitest.Secret + `"}}, {"workflow": "other"}]`)
	only := func(s *ui.Snapshot) ui.ScheduleRow {
		if all := schedulesOf(s); len(all) == 1 {
			return all[0]
		}
		return ui.ScheduleRow{}
	}
	s := f.eventually("the rule is shown", f.fleet(true), func(s *ui.Snapshot) string {
		if only(s).Rule == "" {
			return "no rule"
		}
		return ""
	})
	row := only(s)
	if row.Workflow != "vacuum" || row.Zone != "Europe/Berlin" || !row.NextRun.After(s.Now) || row.Overdue || row.Run != "" || row.Missed != 0 || strings.Contains(encoded(t, row), uitest.Secret) {
		t.Errorf("new: %+v", row)
	}
	// An orchestrator has started a run, and missed a due time.
	r := runs.New(f.Store())
	run, _, err := r.Ask(t.Context(), "due-1", runs.Request{Workflow: "vacuum"}, "rule nightly")
	f.Must(run, err)
	due := time.Now().Add(-49 * time.Hour).Truncate(time.Second)
	sum := sha256.Sum256([]byte("nightly"))
	f.Must(f.Store().Txn().Set(fmt.Sprintf("runs/.schedules/nightly-%x", sum[:4]), []byte(`{"format":1,"of":"0 3 * * * Europe/Berlin","due":"`+due.Format(time.RFC3339)+
		`","run":"due-1","last_run":"`+due.Format(time.RFC3339)+`","missed":2,"miss_noticed":"`+due.Format(time.RFC3339)+`"}`)).Commit(t.Context()))
	s = f.eventually("the last run is shown", f.fleet(true), func(s *ui.Snapshot) string {
		if only(s).Run == "" {
			return "no run"
		}
		return ""
	})
	if row := only(s); row.State != "pending" || !row.Overdue || !row.NextRun.After(due) || row.Missed != 2 || !row.LastRun.Equal(due) {
		t.Errorf("later: %+v", row)
	}
}

// TestAudit: the changes of commands are shown, the newest first, in pages.
func TestAudit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	as := func(reason string) context.Context {
		return fleet.WithAuthor(t.Context(), fleet.Author{Command: "jorc cluster pause", Reason: reason, By: func(context.Context) (string, error) { return "ann", nil }})
	}
	f.Must(f.Pause(as("first"), cluster.Hold{Reason: "disks"}))
	f.Must(f.Resume(as("second")))
	fleet := f.fleet(true)
	check := func(what string, journalled bool) {
		t.Helper()
		consultest.Eventually(t, what, func(ctx context.Context) error {
			a, err := fleet.Audit(ctx, ui.Page{Limit: 1})
			if err == nil && (len(a.Changes) != 1 || a.Matched < 2 || a.Changes[0].Reason != "second" || a.Changes[0].By != "ann" || a.Changes[0].Command != "jorc cluster pause" ||
				!strings.Contains(a.Changes[0].What, "control") || a.Changes[0].Seq > 0 != journalled || a.Next != 1) {
				err = fmt.Errorf("%s", encoded(t, a))
			}
			return err
		})
	}
	check("changes that are not journalled", false)
	f.Orchestrate("a")
	check("changes that are journalled", true)
}
