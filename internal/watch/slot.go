package watch

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jorc/jorc/internal/config"
)

// slotNews says what fleet slot a unit waits for; empty: none any more.
type slotNews struct {
	unit *unit
	why  string
}

// limits returns how many may hold each slot that templates name: the least of
// what they say, 0 for any number, below zero when none of them says.
func limits(templates []config.Template) map[string]int {
	all := map[string]int{}
	for i := range templates {
		c := &templates[i]
		if c.Slot == "" {
			continue
		}
		known, ok := all[c.Slot]
		switch {
		case !ok || known < 0, known == 0 && c.MaxParallel > 0:
			all[c.Slot] = c.MaxParallel
		case c.MaxParallel > 0:
			all[c.Slot] = min(known, c.MaxParallel)
		}
	}
	return all
}

// gate returns what a unit waits at before its files are replaced; nil: nothing.
func (e *Engine) gate(u *unit) func(ctx context.Context) (release func(), err error) {
	groups := map[string]bool{}
	for _, t := range u.templates {
		if t.conf.Slot != "" {
			groups[t.conf.Slot] = true
		}
	}
	if len(groups) == 0 {
		return nil
	}
	// In one order everywhere, so that no two hosts wait for each other.
	names := slices.Sorted(maps.Keys(groups))
	return func(ctx context.Context) (func(), error) { return e.pass(ctx, u, names) }
}

// pass takes the slots one after the other, and tells what the unit waits for.
func (e *Engine) pass(ctx context.Context, u *unit, names []string) (release func(), err error) {
	var taken []func()
	release = func() {
		for _, r := range slices.Backward(taken) {
			r()
		}
	}
	defer e.tellSlot(ctx, u, "")
	for _, name := range names {
		e.tellSlot(ctx, u, fmt.Sprintf("a slot of %q", name))
		r, err := e.o.Slot(ctx, name, e.slots[name], "reload of "+u.name)
		if err != nil {
			release()
			return nil, err
		}
		taken = append(taken, r)
	}
	if err := e.held(); err != nil { // it may have been meanwhile
		release()
		return nil, err
	}
	return release, nil
}

// tellSlot tells the engine's loop, if it runs.
func (e *Engine) tellSlot(ctx context.Context, u *unit, why string) {
	if !e.looping.Load() {
		return
	}
	select {
	case e.slotNews <- slotNews{u, why}:
	case <-ctx.Done():
	}
}

// Gate is replace.RecoverOptions.Gate: it takes the fleet slots that the
// templates of a unit name now. Call it before Run.
func (e *Engine) Gate(ctx context.Context, unit string) (release func(), err error) {
	for _, u := range e.units {
		if gate := e.gate(u); u.name == unit && gate != nil {
			return gate(ctx)
		}
	}
	return nil, nil
}
