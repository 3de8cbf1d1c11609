package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"time"

	dep "github.com/hashicorp/consul-template/dependency"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/replace"
)

// Pauses before a unit that failed is tried again.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
	heldRetry  = 2 * time.Second
)

// ErrHeld: the host is held, so nothing was replaced; see Options.Held.
var ErrHeld = errors.New("held")

// job is one attempt to bring a unit's files to what the data says.
type job struct {
	unit       *unit
	renderings []rendering // of the unit's templates, in their order
	loaded     []*source   // templates that were loaded only now
	holds      []map[string]hold
	outcome    replace.Outcome
	err        error     // of the check, the replacement or the reload
	complete   bool      // all templates had their data and were executed
	past       *snapshot // what may stand in for data that is not known
	since      time.Time
	written    []*replace.Hash // of the templates' contents; nil: unchanged
	edited     bool            // it restores a file that another program changed
}

// launch runs a job of u in the background; its end comes through e.done.
func (e *Engine) launch(ctx context.Context, u *unit, now time.Time) {
	e.inFlight++
	j := job{unit: u, since: now}
	if u.dirty {
		j.since = u.first
	}
	if u.fallback {
		j.past = e.past
	}
	j.edited = !u.restore.IsZero()
	u.running, u.dirty, u.restore = true, false, time.Time{}
	if u.queue == e.plain {
		e.stirred = now
	}
	go func() {
		e.render(ctx, &j, now)
		if j.complete {
			e.write(ctx, &j)
		}
		e.done <- j
	}()
}

// render executes the unit's templates.
func (e *Engine) render(ctx context.Context, j *job, now time.Time) {
	j.complete = true
	j.loaded = make([]*source, len(j.unit.templates))
	for i, t := range j.unit.templates {
		v := &guarded{
			store: e.store, guard: t.guard, now: now, accepted: t.accepted, holds: t.holds,
			fileHas: !t.restored && t.accepted == nil && hasContent(t.conf.Destination),
		}
		if j.past != nil && j.past.mayStandIn(t) {
			v.snapshot = j.past.Data
		}
		r := e.execute(ctx, t, v, &j.loaded[i])
		if err := e.refusal(r); err != nil {
			r.err = err
		} else if v.tooMuch != nil {
			r.err = &tooMuchError{v.tooMuch, e.o.Allow.MaxData}
		}
		for id, h := range v.next {
			if _, ok := r.missing[id]; ok {
				r.missing[id] = "is held back: " + h.why
			}
		}
		j.complete = j.complete && r.err == nil && len(r.missing) == 0
		j.renderings = append(j.renderings, r)
		j.holds = append(j.holds, v.next)
	}
}

// execute runs a template, which is loaded first if New could not.
func (e *Engine) execute(ctx context.Context, t *tmpl, v view, loaded **source) rendering {
	src := t.src
	if src == nil {
		var err error
		if src, err = load(t.conf, e.opts); err != nil {
			return rendering{err: err}
		}
		*loaded = src
	}
	return src.execute(ctx, v)
}

// errRefused: Consul refuses what a template asks for, which it will not do otherwise
// the next time.
type errRefused struct{ error }

// refusal says which data a rendering lacks because Consul refuses it, nil if it lacks none.
// Data that was read before is used as it was, as in an outage.
func (e *Engine) refusal(r rendering) error {
	id, err := e.store.refused(r.missing)
	if err == nil {
		return nil
	}
	d := r.used[id]
	why := d.reading(err)
	if d.hidden {
		why = fmt.Sprintf("read %s: %s", d, why)
	}
	return errRefused{errors.New(why)}
}

// lacks reports whether data is missing.
func (r *rendering) lacks() bool { return len(r.missing) > 0 }

// mayStandIn: a file that is there is better than one made of old data, unless
// the template has changed.
func (s *snapshot) mayStandIn(t *tmpl) bool {
	return !hasContent(t.conf.Destination) || s.Sources[t.conf.Name] != t.hash()
}

func hasContent(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() > 0
}

// held returns ErrHeld when no file may be replaced now.
func (e *Engine) held() error {
	if e.o.Held == nil {
		return nil
	}
	if why := e.o.Held(); why != "" {
		return fmt.Errorf("%w %s", ErrHeld, why)
	}
	return nil
}

// write replaces the unit's files.
func (e *Engine) write(ctx context.Context, j *job) {
	if j.err = e.held(); j.err != nil {
		return
	}
	u := replace.Unit{Name: j.unit.name, Gate: e.gate(j.unit)}
	for i, t := range j.unit.templates {
		u.Files = append(u.Files, t.file(j.renderings[i].output))
	}
	done := e.stagedUnit(j, &u)
	j.outcome, j.err = e.o.Replacer.Replace(ctx, u)
	if done(j.err); j.err != nil {
		return
	}
	j.written = make([]*replace.Hash, len(j.unit.templates))
	for i, t := range j.unit.templates {
		j.written[i] = t.hashWritten(j.renderings[i].output, &j.outcome)
	}
}

// finish takes in the end of a job.
func (e *Engine) finish(j job) {
	e.inFlight--
	e.stirred = time.Now()
	u := j.unit
	u.running, u.slot = false, ""
	u.queue.running--
	now := time.Now()
	for i, t := range u.templates {
		if j.loaded[i] != nil {
			t.src = j.loaded[i]
		}
		e.use(u, t, &j.renderings[i])
	}
	e.schedule(&j, now)
	if u.recheck {
		u.recheck = false
		e.edits.Check(e.indexes(u)...)
	}
	e.publish(u, func(i int, t *tmpl) { e.report(t, &j, i, now) })
	u.queue.reschedule(u)
	e.notify(&j, now)
}

// indexes are the places in the configuration of a unit's templates with a
// destination.
func (e *Engine) indexes(u *unit) []int {
	list := make([]int, 0, len(u.templates))
	for _, t := range u.templates {
		if t.conf.Destination != "" {
			list = append(list, e.order[t.conf.Name])
		}
	}
	return list
}

// notify reports a job that replaced files, or failed to.
func (e *Engine) notify(j *job, now time.Time) {
	r := Rendered{
		Unit: j.unit.name, Changed: len(j.outcome.Changed), Reloaded: len(j.outcome.Reloaded),
		Took: now.Sub(j.since) - j.outcome.Reloading, Err: j.err, Templates: len(j.renderings),
	}
	for i := range j.renderings {
		if err := j.renderings[i].err; err != nil {
			r.Err, r.Failed = err, true
		}
	}
	if errors.Is(r.Err, ErrNotTaken) && !e.once {
		return // the stage reports it
	}
	if e.o.Rendered != nil && (r.Changed > 0 || r.Err != nil) {
		e.o.Rendered(r)
	}
}

// use brings the index in line with what a template used in its last run. What
// it used before stays while it is not complete: its run may have ended early.
func (e *Engine) use(u *unit, t *tmpl, r *rendering) {
	incomplete := r.err != nil || len(r.missing) > 0
	if t.used.are(r.used, incomplete) {
		return
	}
	if incomplete {
		for _, d := range t.used {
			r.used[d.id] = d
		}
	}
	next := dependenciesOf(r.used)
	for _, d := range next {
		id := d.id
		if t.used.has(id) {
			continue
		}
		if !slices.Contains(e.index[id], u) {
			e.index[id] = append(e.index[id], u)
		}
		if e.wanted[id] == nil {
			e.wanted[id] = d
			e.markReplan()
		}
		value, seen := r.values[id]
		if known := e.store.get(id); known.known && (!seen || !reflect.DeepEqual(value, known.value)) {
			u.touch(time.Now()) // it came while the template ran
		}
	}
	before := t.used
	t.used = next
	defer e.fit(t)
	for _, d := range before {
		if !next.has(d.id) && !u.uses(d.id) {
			e.forget(u, d.id)
		}
	}
}

func (u *unit) uses(id string) bool {
	for _, t := range u.templates {
		if t.used.has(id) {
			return true
		}
	}
	return false
}

// forget ends a unit's use of a dependency, and its watch with its last user.
func (e *Engine) forget(u *unit, id string) {
	e.index[id] = slices.DeleteFunc(e.index[id], func(other *unit) bool { return other == u })
	if len(e.index[id]) == 0 {
		delete(e.index, id)
		delete(e.wanted, id)
		e.markReplan()
	}
}

func (e *Engine) markReplan() {
	if e.replan.IsZero() {
		e.replan = time.Now().Add(replanWithin)
	}
}

// schedule decides when the unit is executed again.
func (e *Engine) schedule(j *job, now time.Time) {
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
	case errors.Is(j.err, ErrNotTaken) && !e.once:
		u.failures, u.retry = 0, time.Time{} // Stager.Changes wakes it
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
		e.scheduleFailed(j, now)
	}
}

// scheduleFailed reports templates that failed: not all that they fail for is
// data that will change, so they are tried again, unless they did not end, or Consul
// refuses what they ask for.
func (e *Engine) scheduleFailed(j *job, now time.Time) {
	u, failed, again := j.unit, false, true
	for i, t := range u.templates {
		err := j.renderings[i].err
		if err == nil {
			continue
		}
		failed, again = true, again && !errors.Is(err, errUnbounded) && !isTooMuch(err) && !errors.As(err, new(errRefused))
		if text := oneLine(err); text != t.status.Error && !slices.Contains(t.status.Held, text) && !errors.Is(err, context.Canceled) {
			e.o.Log.Error("a template failed; its file stays as it was", "template", t.conf.Name, "error", errors.New(text))
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
	if u.failures == 0 || u.backoff == nil {
		u.backoff = concurrency.NewBackoff(firstRetry, lastRetry)
	}
	u.failures++
	u.retry = now.Add(u.backoff.Next())
}

// rendered notes that a unit's files are there; when all are, what an earlier
// process left is no longer of use.
func (e *Engine) rendered(u *unit) {
	e.saver.dirty = true // what the files are made of is part of the snapshot
	if u.rendered {
		return
	}
	u.rendered = true
	e.edits.Check(e.indexes(u)...)
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

// report writes the template's status. The caller holds e.mu.
func (e *Engine) report(t *tmpl, j *job, i int, now time.Time) {
	r := &j.renderings[i]
	s := t.status
	s.Checked = now
	s.Executions++
	s.Held, s.Error, s.Failure = holdLines(t.holds), "", ""
	s.waits, s.used = waits(r), t.used
	s.kept = j.unit.rendered || r.lacks() && e.past != nil && !e.past.mayStandIn(t)
	switch {
	case errors.As(r.err, new(errRefused)) && s.kept && !e.once:
		s.jobState = StateWaiting
	case isTooMuch(r.err) && !e.once:
		s.jobState, s.Held, s.waits, s.Failure = StateHeld, []string{oneLine(r.err)}, nil, failureOf(r.err, nil)
	case r.err != nil:
		s.jobState, s.Error, s.Failure = StateFailed, oneLine(r.err), failureOf(r.err, nil)
	case errors.Is(j.err, ErrNotTaken) && !e.once:
		s.jobState, s.waits = StateWaiting, []wait{{text: notTakenText(j.err)}}
	case j.err != nil:
		s.jobState, s.Error, s.Failure = StateFailed, oneLine(j.err), failureOf(nil, j.err)
	case len(r.missing) > 0:
		s.jobState = StateWaiting
	case !j.complete:
		s.jobState, s.waits = StateWaiting, []wait{{text: "the other templates of " + j.unit.name}}
	case len(s.Held) > 0:
		s.jobState = StateHeld
	default:
		s.jobState = StateRendered
	}
	e.reportEdit(j.unit, t, j, now)
	if slices.Contains(j.outcome.Changed, t.conf.Destination) {
		s.Changed = now
		s.Writes++
		s.Lost = j.outcome.Lost[t.conf.Destination]
	}
}
