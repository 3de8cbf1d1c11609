package watch

import (
	"errors"
	"time"

	"github.com/jorc/jorc/internal/consul"
)

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
