package watch

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/replace"
)

// How long a new set of dependencies may wait for the jobs that are due, so
// that the sources are not rearranged for each of them: every query that is
// abandoned stays with Consul until its wait ends.
const replanWithin = 10 * time.Second

// replanLull is how long no job may have begun or ended for the same: those
// that still run are slow.
const replanLull = 250 * time.Millisecond

// coldStart is how long Consul has to answer before the data of an earlier
// process may stand in, for files that do not exist.
const coldStart = 3 * time.Second

// run is the engine's loop: all of the engine's state but the store belongs to it.
func (e *Engine) run(ctx context.Context, once bool) error {
	ctx, stop := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer stop()
	if !once {
		e.edits = newEditWatcher(e.o.Templates, e.editNews, e.o.Log)
		helpers.Go(func() { e.edits.Run(ctx) })
	}
	e.once = once
	e.begin(ctx, &helpers)
	defer e.end()
	e.looping.Store(true)
	cold := time.NewTimer(coldStart)
	defer cold.Stop()
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	for {
		now := time.Now()
		e.start(ctx, now)
		e.plan(ctx, now)
		if once && e.inFlight == 0 && e.finished() {
			return e.failure(nil)
		}
		e.save(now)
		e.noteLoaded(now)
		alarm.Reset(e.next(now))
		select {
		case <-ctx.Done():
			if once {
				return e.failure(ctx.Err())
			}
			return nil
		case b := <-e.changes:
			// A watcher that was ended and is slow to notice must not put old data after what the
			// next one has brought: this loop ends watchers, so what it sees here holds.
			if b.watcher.Err() == nil {
				e.accept(b.changes)
			}
		case j := <-e.done:
			e.finish(j)
		case ed := <-e.editNews:
			e.checkEdit(ed)
		case g := <-e.gates:
			e.open(g)
		case n := <-e.slotNews:
			n.unit.slot = n.why
			e.publish(n.unit, nil)
		case <-e.pings:
		case <-e.stageChanges():
			e.touchStaged(time.Now())
		case <-cold.C:
			if e.past != nil {
				e.fallBack()
				cold.Reset(coldStart)
			}
		case <-e.saver.saving:
			e.saver.ended()
		case <-alarm.C:
			e.settleDoubts(time.Now())
		}
	}
}

// end waits for jobs and watchers, and saves what is known.
func (e *Engine) end() {
	for e.inFlight > 0 {
		select {
		case j := <-e.done:
			e.finish(j)
		case <-e.changes:
		}
	}
	e.sources.stop()
	e.saver.finish(e.snapshot)
}

// accept puts changes into the store and makes the units that use them due.
func (e *Engine) accept(changes []change) {
	var news news
	turned := false // data can be read, or no longer
	for _, c := range changes {
		if e.wanted[c.id] == nil {
			if !e.replan.IsZero() { // until then a template may use it again, and nothing sends it twice
				e.keep(c)
			}
			continue
		}
		failed := e.store.get(c.id).err != nil
		turned = turned || failed != (c.err != nil)
		news.note(e.wanted[c.id], c, c.err != nil && !failed)
		if e.keep(c) {
			e.touch(c.id, c.at)
		}
	}
	if turned && e.o.Changed != nil {
		e.o.Changed()
	}
	e.absent = news.logTo(e.o.Log, e.absent)
}

// keep puts a change into the store and reports whether templates would see
// other data.
func (e *Engine) keep(c change) (changed bool) {
	c = e.refuse(c)
	changed, settle := e.store.put(c)
	e.count(c.id)
	if !settle.IsZero() {
		e.settle[c.id] = settle
	}
	return changed
}

func (e *Engine) touch(id string, at time.Time) {
	e.saver.dirty = true
	for _, u := range e.index[id] {
		u.touch(at)
		u.queue.reschedule(u)
	}
}

// settleDoubts accepts doubted values whose time has come.
func (e *Engine) settleDoubts(now time.Time) {
	for id, at := range e.settle {
		if now.Before(at) {
			continue
		}
		delete(e.settle, id)
		if e.store.settle(id, now) {
			e.count(id)
			e.touch(id, now)
		}
	}
}

func (e *Engine) open(g gate) {
	g.unit.blocked = g.why
	if g.ok {
		g.unit.blocked = ""
	}
	if !g.unit.running {
		e.publish(g.unit, nil)
	}
	g.unit.queue.reschedule(g.unit)
}

// fallBack lets units that were never rendered use the data of an earlier
// process for as long as Consul does not answer.
func (e *Engine) fallBack() {
	s := e.o.Client.Stats()
	absent := !s.UnreachableSince.IsZero() || s.LastAnswer.Before(e.begun)
	for _, u := range e.units {
		if u.rendered || u.fallback == absent {
			continue
		}
		u.fallback = absent
		if absent {
			u.touch(time.Now())
			u.queue.reschedule(u)
		}
	}
}

// start begins the jobs that are due, as far as there is room.
func (e *Engine) start(ctx context.Context, now time.Time) {
	for _, q := range []*queue{e.plain, e.commands} {
		for u := q.pop(now); u != nil && ctx.Err() == nil; u = q.pop(now) {
			e.launch(ctx, u, now)
		}
	}
}

// next is how long the loop may sleep.
func (e *Engine) next(now time.Time) time.Duration {
	wait := time.Hour
	sooner := func(at time.Time, ok bool) {
		if ok {
			wait = min(wait, max(at.Sub(now), 0))
		}
	}
	sooner(e.plain.next())
	sooner(e.commands.next())
	sooner(e.replan, !e.replan.IsZero())
	sooner(e.stirred.Add(replanLull), !e.replan.IsZero())
	for _, at := range e.settle {
		sooner(at, true)
	}
	sooner(e.saver.due())
	sooner(e.loaded.next, e.loaded.again)
	return wait
}

// plan brings the sources in line with what templates use, once the jobs that
// may add to it have ended.
func (e *Engine) plan(ctx context.Context, now time.Time) {
	if e.replan.IsZero() || e.busy(now) && now.Before(e.replan) {
		return
	}
	e.replan = time.Time{}
	e.sources.want(ctx, e.wanted)
	e.store.keep(e.wanted)
}

// busy reports whether jobs run, or are about to, that may use something new.
// It does not wait for jobs that run commands.
func (e *Engine) busy(now time.Time) bool {
	at, ok := e.plain.next()
	return e.plain.running > 0 && now.Before(e.stirred.Add(replanLull)) || ok && !at.After(now)
}

func (e *Engine) save(now time.Time) {
	if at, ok := e.saver.due(); ok && !now.Before(at) {
		e.saver.begin(e.snapshot())
	}
}

// snapshot copies what the next process may want to know.
func (e *Engine) snapshot() *snapshot {
	s := &snapshot{
		Format: snapshotFormat, Accepted: map[string]map[string]any{}, Sources: make(map[string]replace.Hash, len(e.order)),
		Written: map[string]replace.Hash{},
	}
	s.Data, s.Indexes = e.store.all(e.wanted)
	for _, u := range e.units {
		for _, t := range u.templates {
			if t.accepted != nil {
				s.Accepted[t.conf.Name] = t.accepted
			}
			s.Sources[t.conf.Name] = t.hash()
			if t.written != nil {
				s.Written[t.conf.Name] = *t.written
			}
		}
	}
	return s
}

// finished reports whether every unit has been rendered or has failed, for Once.
func (e *Engine) finished() bool {
	for _, u := range e.units {
		if !u.rendered && u.failures == 0 {
			return false
		}
	}
	return true
}

// failure gathers what did not succeed. It is ErrHeld for what is held.
func (e *Engine) failure(cause error) error {
	var errs []error
	held := e.held()
	for _, s := range e.Status() {
		switch {
		case held != nil && s.Error == oneLine(held):
			errs = append(errs, fmt.Errorf("template %q: %w", s.Name, held))
		case s.Error != "":
			errs = append(errs, fmt.Errorf("template %q: %s", s.Name, s.Error))
		case s.State == StateWaiting && cause != nil:
			errs = append(errs, fmt.Errorf("template %q waits for %s: %w", s.Name, strings.Join(s.Waiting, "; "), cause))
		}
	}
	return errors.Join(errs...)
}

// How many jobs may run at the same time: plain ones, which render and write and
// mostly wait for the disk (package replace stages fewer files at a time), and the ones with commands, which
// may take long and must not keep the others waiting.
const (
	maxPlainJobs   = 128
	maxCommandJobs = 256
)

// queue holds the units that have a job to come, by when it is due.
type queue struct {
	units   []*unit
	running int
	limit   int
}

// reschedule puts u where its next job belongs.
func (q *queue) reschedule(u *unit) {
	due, ok := u.next()
	switch {
	case !ok && u.place >= 0:
		heap.Remove((*byDue)(q), u.place)
	case ok && u.place >= 0:
		u.due = due
		heap.Fix((*byDue)(q), u.place)
	case ok:
		u.due = due
		heap.Push((*byDue)(q), u)
	}
}

// pop takes out a unit that is due, if there is one and room for its job.
func (q *queue) pop(now time.Time) *unit {
	if len(q.units) == 0 || q.running >= q.limit || q.units[0].due.After(now) {
		return nil
	}
	q.running++
	return heap.Pop((*byDue)(q)).(*unit)
}

// next is when pop would return the next unit; ok is false when it is not
// time that it waits for.
func (q *queue) next() (at time.Time, ok bool) {
	if len(q.units) == 0 || q.running >= q.limit {
		return time.Time{}, false
	}
	return q.units[0].due, true
}

// byDue implements heap.Interface.
type byDue queue

func (q *byDue) Len() int           { return len(q.units) }
func (q *byDue) Less(i, j int) bool { return q.units[i].due.Before(q.units[j].due) }
func (q *byDue) Swap(i, j int) {
	q.units[i], q.units[j] = q.units[j], q.units[i]
	q.units[i].place, q.units[j].place = i, j
}

func (q *byDue) Push(x any) {
	u := x.(*unit)
	u.place = len(q.units)
	q.units = append(q.units, u)
}

func (q *byDue) Pop() any {
	last := len(q.units) - 1
	u := q.units[last]
	u.place = -1
	q.units[last] = nil
	q.units = q.units[:last]
	return u
}

// news is what a batch of changes says about reading data, for the log: a line
// for each kind of trouble that begins, not one for each dependency.
type news struct {
	answers int
	failed  change      // the first that begins to fail
	data    *dependency // failed's
	others  int         // that do too
}

// note takes in a change; begins reports whether a failure is the first in a row.
func (n *news) note(d *dependency, c change, begins bool) {
	switch {
	case c.err == nil:
		n.answers++
	case begins && n.failed.err == nil:
		n.failed, n.data = c, d
	case begins:
		n.others++
	}
}

// logTo writes the log and returns whether Consul is absent now; was is whether
// it was before.
func (n *news) logTo(log hclog.Logger, was bool) (absent bool) {
	err := n.failed.err
	switch {
	case err == nil && n.answers > 0 && was:
		log.Info("data is read from Consul again")
		return false
	case err == nil:
		return was
	case !errors.Is(err, consul.ErrUnreachable):
		log.Warn("data cannot be read; what is made of it stays as it is", "data", n.data, "others", n.others, "error", n.data.reading(err))
		return was
	case !was:
		log.Warn("Consul does not answer; files stay as they are until it does", "error", err)
	}
	return true
}

// loadedState is how far the first pass over all templates is.
type loadedState struct {
	done    bool
	through time.Time // when all templates were executed; zero: not yet
	next    time.Time // not before then are the templates checked again
	again   bool      // they were not checked since something happened
}

// lookEvery spaces the checks of all templates while they are loaded.
const lookEvery = 500 * time.Millisecond

// noteLoaded calls Options.Loaded when its time has come.
func (e *Engine) noteLoaded(now time.Time) {
	l := &e.loaded
	if l.done || e.o.Loaded == nil {
		return
	}
	if l.again = now.Before(l.next); l.again {
		return
	}
	l.next = now.Add(lookEvery)
	if l.through.IsZero() {
		if e.inFlight > 0 || !e.replan.IsZero() {
			return
		}
		for _, u := range e.units {
			if e.loads(u) {
				return
			}
		}
		l.through = now
	}
	// What was saved before may lack what came last.
	saved := e.saver.dir == "" || !e.saver.dirty || e.saver.next.After(l.through.Add(snapshotEvery))
	if saved && e.saver.saving == nil {
		l.done, l.again = true, false
		e.o.Loaded()
	}
}

// loads reports whether data for a unit is still to come.
func (e *Engine) loads(u *unit) bool {
	if u.rendered || u.failures > 0 || u.blocked != "" || !u.retry.IsZero() {
		return false
	}
	if u.running || u.dirty {
		return true
	}
	for _, t := range u.templates {
		for _, d := range t.used {
			known := e.store.get(d.id)
			unread := known.err == nil || errors.Is(known.err, consul.ErrUnreachable)
			if !known.known && !known.doubtful && unread {
				return true
			}
		}
	}
	return false
}

// HoldAll shows all templates as held, with the reason, until Run executes them.
func (e *Engine) HoldAll(why string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.statuses {
		p := &e.statuses[i]
		p.State, p.jobState, p.Since, p.Held, p.Failure = StateHeld, StateHeld, time.Now(), []string{why}, why
	}
	if e.o.Changed != nil {
		e.o.Changed()
	}
}
