package watch

import (
	"context"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/config"
)

// gate is news of what a unit requires.
type gate struct {
	unit *unit
	ok   bool
	why  string
}

// begin makes all units due and starts what watches their requirements.
func (e *Engine) begin(ctx context.Context, helpers *sync.WaitGroup) {
	past, err := loadSnapshot(e.o.StateDir)
	if err != nil {
		e.o.Log.Warn(err.Error())
	}
	e.past = past
	if past != nil {
		e.store.remember(past.Data, past.Indexes)
	}
	e.unrendered = len(e.units)
	e.sources = &sources{
		client: e.o.Client, changes: e.changes, log: e.o.Log,
		foreign: &foreignSource{consul: e.o.Consul, vault: e.o.Vault},
		params:  e.o.Params,
		rights:  newRights(e.o.Client), places: share(e.o.Client.Stats().Places, e.o.Others),
		running: map[string]*watcher{},
	}
	now := time.Now()
	e.begun = now
	for _, u := range e.units {
		for _, t := range u.templates {
			if past != nil {
				t.accepted, t.restored = past.Accepted[t.conf.Name], past.Accepted[t.conf.Name] != nil
				if sum, ok := past.Written[t.conf.Name]; ok {
					t.written = &sum
				}
			}
		}
		u.touch(now.Add(-u.wait.Min))
		if r := requirements(u); len(r) > 0 && e.o.Require != nil {
			u.blocked = "its requirements have not been looked at yet"
			helpers.Go(func() { e.watchGate(ctx, u, r) })
		}
		u.queue.reschedule(u)
	}
}

// share is how many of the queries that may block at one time templates take:
// with one loop more than there are places, all have to take turns.
func share(all, others int) int { return max(all/4, all-max(2, all/7, others)) }

func requirements(u *unit) []config.Requires {
	var all []config.Requires
	for _, t := range u.templates {
		all = append(all, t.conf.Requires...)
	}
	return all
}

func (e *Engine) watchGate(ctx context.Context, u *unit, r []config.Requires) {
	err := e.o.Require(ctx, r, func(ok bool, why string) {
		select {
		case e.gates <- gate{unit: u, ok: ok, why: why}:
		case <-ctx.Done():
		}
	})
	if err != nil && ctx.Err() == nil {
		e.o.Log.Error("what a template requires cannot be watched", "unit", u.name, "error", err)
	}
}
