package runs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/schedule"
)

// Timetable is what a rule with a schedule has started; it is kept at
// runs/.schedules/<rule>. It is written in the transaction that creates the run.
type Timetable struct {
	Of  string    `json:"of"`            // the schedule and its zone
	Due time.Time `json:"due"`           // the last due time that was handled
	Run string    `json:"run,omitempty"` // the run that was started last

	LastRun     time.Time `json:"last_run,omitzero"`     // when Run was created
	Missed      int       `json:"missed,omitempty"`      // how often due times were missed
	MissNoticed time.Time `json:"miss_noticed,omitzero"` // when the last of them was found to be missed
}

// RuleSchedule is the state of a rule with a schedule.
type RuleSchedule struct {
	Rule        string
	LastRun     time.Time // when its last run was created; zero: never
	NextRun     time.Time // the first due time that is not handled; in the past: it is overdue
	Missed      int       // how often due times were missed; several in a row count once
	MissNoticed time.Time // when the last of them was found to be missed
}

// Timetables are those of a cluster's rules.
type Timetables struct{ leaves map[string]kv.Leaf[Timetable] }

// Timetables reads the timetables of all rules.
func (r *Runs) Timetables(ctx context.Context) (Timetables, error) {
	leaves, err := r.timetables.List(ctx)
	return Timetables{leaves}, err
}

// Of returns the timetable of a rule; ok is false while no orchestrator has seen its
// present schedule. It returns kv.ErrDamaged or kv.ErrNewer.
func (t Timetables) Of(r Rule) (_ Timetable, ok bool, err error) {
	s, err := schedule.Parse(r.Schedule, r.Zone)
	if err != nil {
		return Timetable{}, false, err
	}
	leaf := t.leaves[r.key()]
	if leaf.Err != nil || !leaf.Exists || leaf.Value.Of != s.String() {
		return Timetable{}, false, leaf.Err
	}
	return leaf.Value, true, nil
}

// noteSchedule sets the state of a rule in Progress.
func (d *Decider) noteSchedule(r Rule, s schedule.Schedule, t Timetable) {
	d.schedules[r.Name] = RuleSchedule{
		Rule: r.Name, LastRun: t.LastRun, NextRun: s.Next(t.Due), Missed: t.Missed, MissNoticed: t.MissNoticed,
	}
}

// checkSchedule returns what is wrong with a rule's schedule, or with what only a rule
// with a schedule may have.
func (r Rule) checkSchedule() error {
	if r.Schedule == "" {
		if r.Zone != "" || r.Missed != "" || r.OnManager || !r.equal(Limits{}) {
			return fmt.Errorf("%w: zone, missed, on_manager and limits belong to a rule with a schedule", ErrInvalid)
		}
		return nil
	}
	if r.After != "" {
		return fmt.Errorf("%w: a rule with a schedule does not come after another", ErrInvalid)
	}
	if r.Missed != "" && r.Missed != schedule.Skip && r.Missed != schedule.RunOnce {
		return fmt.Errorf("%w: missed is %q, but must be %s or %s", ErrInvalid, r.Missed, schedule.Skip, schedule.RunOnce)
	}
	if _, err := schedule.Parse(r.Schedule, r.Zone); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return r.request().Check()
}

// dueID is the id of the run of a rule for a due time.
func (r Rule) dueID(due time.Time) string {
	return "due-" + r.key() + "-" + due.UTC().Format("20060102T150405Z")
}

// NextDue returns when Decide is due again though nothing changes, as its last call left it: for a rule with a schedule, a plan, or
// runs that are to be forgotten.
func (d *Decider) NextDue() time.Time { return d.due }

// startDue creates the runs of rules with a schedule that are due: each in the
// transaction that saves its due time as handled, under an id that follows from rule
// and due time. While the cluster is paused, and while the rule's run before is in
// progress, nothing starts; due times that pass are missed. It reads the timetables once
// per term and after each write.
func (d *Decider) startDue(ctx context.Context, r *Runs, o Observed, now time.Time) (done []event.Decision, err error) {
	d.due, d.schedules = time.Time{}, map[string]RuleSchedule{}
	rules, bad := ParseRules(o.State.Profile.Params[ParamRules])
	if err := d.readTimetables(ctx, r); err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, b := range bad {
		known[Rule{Name: b.Name}.key()] = true
	}
	for _, rule := range rules {
		if rule.Schedule == "" {
			continue
		}
		known[rule.key()] = true
		if err := d.readTimetables(ctx, r); err != nil {
			return done, err
		}
		more, err := d.startRule(ctx, r, o, rule, now)
		done = append(done, more...)
		if err != nil {
			return done, err
		}
	}
	return done, d.forgetTimetables(ctx, r, known, len(bad) > 0)
}

// readTimetables reads them unless they are known.
func (d *Decider) readTimetables(ctx context.Context, r *Runs) error {
	if d.timetables != nil {
		return nil
	}
	all, err := r.timetables.List(ctx)
	if err != nil {
		return err
	}
	d.timetables = map[string]kv.Leaf[Timetable]{} // also if the cluster has no timetables
	maps.Copy(d.timetables, all)
	return nil
}

// startRule handles the due time of one rule.
func (d *Decider) startRule(ctx context.Context, r *Runs, o Observed, rule Rule, now time.Time) ([]event.Decision, error) {
	s, err := schedule.Parse(rule.Schedule, rule.Zone)
	if err != nil {
		return nil, err
	}
	policy := schedule.Policy{Schedule: s, Missed: rule.Missed}
	doc, leaf := r.timetables.At(rule.key()), d.timetables[rule.key()]
	if !leaf.Exists || leaf.Err != nil || leaf.Value.Of != s.String() {
		d.wake(s.Next(now))
		t := r.store.Txn()
		first := Timetable{Of: s.String(), Due: now}
		doc.SwapIn(t, leaf.Entry, first)
		d.noteSchedule(rule, s, first)
		return d.commitDue(ctx, t, nil)
	}
	d.noteSchedule(rule, s, leaf.Value)
	step := policy.Step(leaf.Value.Due, now)
	d.wake(step.Wake)
	if step.Handled.Equal(leaf.Value.Due) {
		return nil, nil
	}
	if waits(o, leaf.Value) {
		return nil, nil
	}
	next := leaf.Value
	next.Due = step.Handled
	if step.Missed {
		next.Missed, next.MissNoticed = next.Missed+1, now
	}
	t := r.store.Txn()
	due := step.Handled.UTC().Format(time.RFC3339)
	var decisions []event.Decision
	switch {
	case step.Start:
		next.Run = rule.dueID(step.Handled)
		started, err := r.spec(next.Run).Get(ctx)
		if err != nil && !errors.Is(err, kv.ErrDamaged) && !errors.Is(err, kv.ErrNewer) {
			return nil, err
		}
		if started.Exists || err != nil {
			break // the clock was set back, or the timetable restored
		}
		next.LastRun = now
		run := Run{ID: next.Run, Request: rule.request(), By: fmt.Sprintf("rule %s, due %s", rule.Name, due), Created: now, State: Pending}
		run.History = noted(nil, Change{At: now, State: Pending, By: run.By})
		r.spec(run.ID).SwapIn(t, kv.Entry[Run]{}, run)
		r.touch(t, run.ID, now)
		text := fmt.Sprintf("rule %q was due at %s: workflow %q", rule.Name, due, rule.Workflow)
		if step.Missed {
			text = fmt.Sprintf("rule %q missed its due time %s and starts now: workflow %q", rule.Name, due, rule.Workflow)
		}
		decisions = append(decisions, decide(event.RuleDue, run.ID, "", text))
	case step.Missed:
		decisions = append(decisions, decide(event.RuleMissed, "", "", fmt.Sprintf("rule %q missed its due time %s, which is skipped", rule.Name, due)))
	}
	doc.SwapIn(t, leaf.Entry, next)
	d.noteSchedule(rule, s, next)
	return d.commitDue(ctx, t, decisions)
}

// waits reports whether nothing of a rule may start now.
func waits(o Observed, t Timetable) bool {
	mark := o.State.ActiveRuns[t.Run]
	return o.State.Control.Paused != nil || mark.Exists && mark.Value != awaitsLate
}

// wake makes NextDue at the latest t.
func (d *Decider) wake(t time.Time) {
	if !t.IsZero() && (d.due.IsZero() || t.Before(d.due)) {
		d.due = t
	}
}

// commitDue commits t with its decisions and returns them; the timetables are read
// again after it. It is not an error if they have changed since they were read: the
// next cycle decides again.
func (d *Decider) commitDue(ctx context.Context, t *kv.Txn, decisions []event.Decision) ([]event.Decision, error) {
	d.timetables = nil
	d.hook("due")
	err := d.commitWith(ctx, t, decisions, Offers{})
	d.hook("started")
	if errors.Is(err, kv.ErrConflict) && !errors.Is(err, kv.ErrLockLost) {
		return nil, nil
	}
	return decisions, err
}

// forgetTimetables deletes those of rules that no longer exist; with unreadable rules, of
// which some have no name, none.
func (d *Decider) forgetTimetables(ctx context.Context, r *Runs, known map[string]bool, unreadable bool) error {
	if unreadable {
		return nil
	}
	t, gone := r.store.Txn(), false
	for key, leaf := range d.timetables {
		if !known[key] && t.Len() < mostOps {
			t.DeleteCAS(r.timetables.At(key).Key(), leaf.Index)
			gone = true
		}
	}
	if !gone {
		return nil
	}
	_, err := d.commitDue(ctx, t, nil)
	return err
}
