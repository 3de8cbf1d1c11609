package watch

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	dep "github.com/hashicorp/consul-template/dependency"
)

// judge decides when the unit is looked at again.
func (e *Engine) judge(j *job, now time.Time) {
	u := j.unit
	u.wake, u.retry = time.Time{}, time.Time{}
	for i, t := range u.templates {
		t.holds = j.holds[i]
		if at := wake(t.holds); !at.IsZero() && (u.wake.IsZero() || at.Before(u.wake)) {
			u.wake = at
		}
	}
	switch {
	case errors.Is(j.err, ErrHeld):
		u.retry = now.Add(heldRetry)
	case j.err != nil:
		u.fail(now)
		if errors.Is(j.err, context.Canceled) {
			break // jorc is about to stop
		}
		e.o.Log.Error("a file could not be brought up to date; it stays as it was", "unit", u.name, "error", j.err, "retry", u.retry.Format(time.TimeOnly))
	case j.complete:
		u.failures, u.fallback = 0, false
		e.rendered(u)
		for i, t := range u.templates {
			t.accept(j.renderings[i].values)
			if j.written[i] != nil {
				t.written = j.written[i]
			}
		}
		if len(j.outcome.Changed) > 0 {
			e.saver.dirty = true
			e.o.Log.Info("replaced", "unit", u.name, "files", j.outcome.Changed, "reloaded", len(j.outcome.Reloaded), "took", now.Sub(j.since))
		}
	default:
		e.judgeExecution(j, now)
	}
}

// judgeExecution looks at templates that failed: not all that they fail for is
// data that will change, so they are tried again, unless they did not end.
func (e *Engine) judgeExecution(j *job, now time.Time) {
	u, failed, again := j.unit, false, true
	for i, t := range u.templates {
		err := j.renderings[i].err
		if err == nil {
			continue
		}
		failed, again = true, again && !errors.Is(err, errUnbounded)
		if text := oneLine(err); text != t.status.Error && !errors.Is(err, context.Canceled) {
			e.o.Log.Error("a template failed; its file stays as it was", "template", t.conf.Name, "error", text)
		}
	}
	switch {
	case !failed:
		u.failures = 0
	case again:
		u.fail(now)
	default:
		u.failures++
	}
}

// fail plans the next attempt, each later than the last.
func (u *unit) fail(now time.Time) {
	u.failures++
	pause := min(firstRetry<<min(u.failures-1, 10), lastRetry)
	u.retry = now.Add(pause/2 + rand.N(pause/2))
}

// rendered notes that a unit's files are there; when all are, what an earlier
// process left is of no use any more.
func (e *Engine) rendered(u *unit) {
	e.saver.dirty = true // what the files are made of is part of the snapshot
	if u.rendered {
		return
	}
	u.rendered = true
	e.edits.look(e.indexes(u))
	if e.unrendered--; e.unrendered == 0 {
		e.past = nil
		e.store.remember(nil, nil)
	}
}

// accept remembers the services that the file is made of now.
func (t *tmpl) accept(values map[string]any) {
	t.accepted, t.restored = nil, true
	for id, value := range values {
		switch value.(type) {
		case []*dep.HealthService, []*dep.CatalogSnippet:
			if t.accepted == nil {
				t.accepted = map[string]any{}
			}
			t.accepted[id] = value
		}
	}
}

// report writes the template's status.
func (e *Engine) report(t *tmpl, j *job, i int, now time.Time) {
	r := &j.renderings[i]
	s := &t.status
	s.Checked = now
	s.Executions++
	s.Held, s.Error = holdLines(t.holds), ""
	t.waits = waits(r)
	switch {
	case r.err != nil:
		s.State, s.Error = StateFailed, oneLine(r.err)
	case j.err != nil:
		s.State, s.Error = StateFailed, oneLine(j.err)
	case len(r.missing) > 0:
		s.State = StateWaiting
	case !j.complete:
		s.State, t.waits = StateWaiting, []wait{{text: "the other templates of " + j.unit.name}}
	case len(s.Held) > 0:
		s.State = StateHeld
	default:
		s.State = StateRendered
	}
	e.reportEdit(j.unit, t, j, now)
	if slices.Contains(j.outcome.Changed, t.conf.Destination) {
		s.Changed = now
		s.Writes++
		s.Lost = j.outcome.Lost[t.conf.Destination]
	}
}
