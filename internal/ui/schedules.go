package ui

import (
	"cmp"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/schedule"
)

// ScheduleRow is one of the cluster's rules with a schedule. The params of its runs, and
// its filter, are not shown.
type ScheduleRow struct {
	Rule     string    `json:"rule"`
	Workflow string    `json:"workflow"`
	Schedule string    `json:"schedule"`
	Zone     string    `json:"zone"`              // of the schedule's times
	NextRun  time.Time `json:"next_run,omitzero"` // the first due time that is not handled
	Overdue  bool      `json:"overdue"`           // that time has passed
	// Run is the run that was started last, empty: none was; LastRun is when, and State is its
	// state, empty: it is no longer kept.
	Run     string    `json:"run"`
	LastRun time.Time `json:"last_run,omitzero"`
	State   string    `json:"state"`
	// Missed is how often due times were missed; several in a row count once.
	Missed      int       `json:"missed"`
	MissNoticed time.Time `json:"miss_noticed,omitzero"` // when the last of them was found to be missed
	Why         string    `json:"why"`                   // why this is not known; empty: it is
}

// overdueAfter is how long a due time may wait for the orchestrator's next cycle.
const overdueAfter = time.Minute

// schedules returns the rules with a schedule, by name.
func (s *Snapshot) schedules() []ScheduleRow {
	all := []ScheduleRow{}
	if s.State.Profile.Secret(runs.ParamRules) {
		return all
	}
	rules, _ := runs.ParseRules(s.State.Profile.Params[runs.ParamRules])
	for _, rule := range rules {
		if rule.Schedule == "" {
			continue
		}
		row := ScheduleRow{Rule: rule.Name, Workflow: rule.Workflow, Schedule: rule.Schedule, Zone: cmp.Or(rule.Zone, "UTC")}
		t, known, err := s.timetables.Of(rule)
		if err != nil {
			row.Why = err.Error()
			all = append(all, row)
			continue
		}
		if !known {
			t.Due = s.Now
		}
		if p, err := schedule.Parse(rule.Schedule, rule.Zone); err == nil {
			row.NextRun = p.Next(t.Due)
			row.Overdue = s.Now.Sub(row.NextRun) > overdueAfter
		}
		row.Missed, row.MissNoticed = t.Missed, t.MissNoticed
		if s.hidden == nil || !s.hidden.runs[t.Run] {
			row.Run, row.LastRun = t.Run, t.LastRun
		}
		if i := slices.IndexFunc(s.AllRuns, func(r runs.Run) bool { return r.ID == t.Run }); i >= 0 {
			row.State = string(s.AllRuns[i].State)
		}
		all = append(all, row)
	}
	slices.SortFunc(all, func(a, b ScheduleRow) int { return cmp.Compare(a.Rule, b.Rule) })
	return all
}
