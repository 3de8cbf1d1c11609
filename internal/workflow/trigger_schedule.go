package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/schedule"
)

// schedulePolicy returns the schedule of a trigger on a node.
func schedulePolicy(t config.Trigger, node string) (schedule.Policy, error) {
	s, err := schedule.Parse(t.Schedule, t.Zone)
	return schedule.Policy{Schedule: s, Delay: schedule.Splay(t.Splay, node+" "+t.Name), Missed: t.Missed}, err
}

// followSchedule runs the workflow at its due times until ctx ends or the state
// cannot be written. It waits for the next due time, or until the clock is set.
func (w *triggerWatcher) followSchedule(ctx context.Context) error {
	p, err := schedulePolicy(w.conf, w.r.o.Node)
	if err != nil {
		return err
	}
	if !w.seen.Known {
		now := w.o.Clock.Now().UTC()
		next := w.seen
		next.Known, next.Since, next.Due = true, now.Unix(), now
		if err := w.save(next); err != nil {
			return err
		}
	}
	for ctx.Err() == nil {
		now := w.o.Clock.Now()
		step := p.Step(w.seen.Due, now)
		if !step.Handled.Equal(w.seen.Due) {
			if err := w.handleDue(ctx, step, now); err != nil {
				return err
			}
			continue // the workflow took its time
		}
		if step.Wake.IsZero() { // not due again
			<-ctx.Done()
			return ctx.Err()
		}
		if err := w.o.Clock.Wait(ctx, step.Wake); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// handleDue handles a due time. It saves the job with it, so that the job runs once,
// also after a crash.
func (w *triggerWatcher) handleDue(ctx context.Context, step schedule.Step, now time.Time) error {
	next := w.seen
	next.Due = step.Handled
	due := step.Handled.UTC().Format(time.RFC3339)
	switch {
	case step.Reset:
		w.log.Warn("the clock was set back by more than a day: the schedule begins again", "was_handled_up_to", w.seen.Due.UTC().Format(time.RFC3339))
	case step.Missed && !step.Start:
		w.log.Warn("a due time was missed and is skipped", "due", due)
	case step.Missed:
		w.log.Info("a due time was missed: the workflow runs now", "due", due)
	}
	if step.Missed {
		next.Missed = next.Missed.after(step.Handled, now)
	}
	if step.Start {
		next.LastRun = now.UTC()
		item := ItemChange{Item: due, Change: "due", Value: Item("null")}
		if step.Missed {
			item.Change = "missed"
		}
		next.Count++
		change, err := json.Marshal(Change{
			Trigger: w.conf.Name, Kind: triggerKind(w.conf), Name: triggerSubject(w.conf), At: now.UTC(), Changes: []ItemChange{item}, Total: 1,
		})
		if err != nil {
			return err
		}
		next.Pending = &pendingJob{Job: w.dueID(step.Handled), Change: change}
	}
	if err := w.save(next); err != nil {
		return err
	}
	return w.finish(ctx)
}

// dueID returns the id of a new job for a due time. The state has the id before the job
// exists: a job that has it already ran when the clock was ahead, and this is another one.
func (w *triggerWatcher) dueID(due time.Time) string {
	id := "trigger-" + w.conf.Name + "-" + due.UTC().Format("20060102T150405Z")
	if _, err := w.r.Job(id); errors.Is(err, ErrNoJob) {
		return id
	}
	return id + "-" + nonce(4)
}

// MissedTimes are the due times of a schedule that passed while nothing could start.
type MissedTimes struct {
	Count   int       `json:"count"`            // one for several due times that passed together
	Due     time.Time `json:"due,omitzero"`     // the last one
	Noticed time.Time `json:"noticed,omitzero"` // when it was found to be missed
}

func (m MissedTimes) after(due, now time.Time) MissedTimes {
	return MissedTimes{Count: m.Count + 1, Due: due.UTC(), Noticed: now.UTC()}
}

// ScheduleStatus is the state of a trigger with a schedule.
type ScheduleStatus struct {
	Trigger  string      `json:"trigger"`
	Schedule string      `json:"schedule"`
	Zone     string      `json:"zone"`
	Workflow string      `json:"workflow"`
	LastRun  time.Time   `json:"last_run,omitzero"` // when the workflow was last started at a due time
	NextRun  time.Time   `json:"next_run,omitzero"` // of the first due time that is not handled; in the past: it is overdue
	Missed   MissedTimes `json:"missed"`
	Last     *LastJob    `json:"last"`  // nil: none has ended
	Error    string      `json:"error"` // why the state is not known
}

// Schedules returns the state of the triggers with a schedule, as the agent of the node
// saved it. A trigger that no agent has run yet has no times.
func Schedules(stateDir, node string, triggers []config.Trigger) []ScheduleStatus {
	all := []ScheduleStatus{}
	for _, t := range triggers {
		if t.Schedule == "" {
			continue
		}
		status := ScheduleStatus{Trigger: t.Name, Schedule: t.Schedule, Zone: t.Zone, Workflow: t.Workflow}
		seen, err := savedTrigger(stateDir, t)
		var p schedule.Policy
		if err == nil {
			p, err = schedulePolicy(t, node)
		}
		if err != nil {
			status.Error = err.Error()
		} else if seen.Known {
			status.LastRun, status.Missed, status.Last = seen.LastRun, seen.Missed, seen.Last
			if next := p.Next(seen.Due); !next.IsZero() {
				status.NextRun = next.Add(p.Delay).UTC()
			}
		}
		all = append(all, status)
	}
	return all
}
