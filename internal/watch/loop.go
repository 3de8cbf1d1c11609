package watch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

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
		helpers.Go(func() { e.edits.run(ctx) })
	}
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
		alarm.Reset(e.next(now))
		select {
		case <-ctx.Done():
			if once {
				return e.failure(ctx.Err())
			}
			return nil
		case c := <-e.changes:
			e.take(c)
		case j := <-e.done:
			e.finish(j)
		case ed := <-e.editNews:
			e.checkEdit(ed)
		case g := <-e.gates:
			e.open(g)
		case n := <-e.slotNews:
			n.unit.slot = n.why
			e.publish(n.unit)
		case <-e.pings:
		case <-cold.C:
			if e.past != nil {
				e.fallBack()
				cold.Reset(coldStart)
			}
		case <-e.saver.saving:
			e.saver.ended()
		case <-alarm.C:
			e.believe(time.Now())
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
	e.hot.close()
	e.saver.finish(e.snapshot)
}

// take puts changes into the store and makes the units that use them due.
func (e *Engine) take(changes []change) {
	var news news
	for _, c := range changes {
		if e.wanted[c.id] == nil {
			if !e.replan.IsZero() { // until then a template may use it again, and nothing sends it twice
				e.keep(c)
			}
			continue
		}
		news.note(e.wanted[c.id], c, c.err != nil && e.store.get(c.id).err == nil)
		if e.keep(c) {
			e.touch(c.id, c.at)
		}
	}
	e.absent = news.tell(e.o.Log, e.absent)
}

// keep puts a change into the store and reports whether templates would see
// other data.
func (e *Engine) keep(c change) (changed bool) {
	changed, settle := e.store.put(c)
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

// believe takes doubted values whose time has come.
func (e *Engine) believe(now time.Time) {
	for id, at := range e.settle {
		if now.Before(at) {
			continue
		}
		delete(e.settle, id)
		if e.store.settle(id, now) {
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
		e.publish(g.unit)
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

// busy tells whether jobs run, or are about to, that may use something new.
// Those that run commands are not waited for.
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
		Format: snapshotFormat, Accepted: map[string]map[string]any{}, Sources: map[string]string{},
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

// finished tells whether every unit has come to an end, for Once.
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
