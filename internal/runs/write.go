package runs

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/kv"
)

// write writes changes, each with the decisions that it carries out, and
// returns those that came true: what somebody overtook is left out, and so is
// all that depends on it.
func (d *Decider) write(ctx context.Context, r *Runs, st *readState, c Changes) ([]Decision, error) {
	w := &written{
		overtaken: map[string]bool{}, changed: map[string]bool{}, open: append(st.decisions, c.Decisions...),
	}
	for _, id := range st.ids() {
		_, run := c.Runs[id]
		_, roster := c.Rosters[id]
		_, jobs := c.Jobs[id]
		w.changed[id] = run || roster || jobs || st.changed[id]
	}
	if err := d.commit(ctx, r, st, d.beginnings(r, st, c), w); err != nil {
		return w.told, err
	}
	if err := d.commit(ctx, r, st, nodeGroups(r, st, c, w), w); err != nil {
		return w.told, err
	}
	if err := d.commit(ctx, r, st, d.ends(r, st, c, w), w); err != nil {
		return w.told, err
	}
	if w.ended {
		d.pruned = time.Time{} // look now
	}
	d.remember(st, w)
	return w.told, nil
}

// remember keeps the runs that are as they were read.
func (d *Decider) remember(st *readState, w *written) {
	d.cache = map[string]*loaded{}
	for id, l := range st.loaded {
		if !w.changed[id] && !w.overtaken[id] {
			d.cache[id] = l
		}
	}
}

// beginnings are the runs whose members are written down: before anything is
// done for one of them.
func (d *Decider) beginnings(r *Runs, st *readState, c Changes) []group {
	var all []group
	for _, id := range st.ids() {
		nodes, decided := c.Rosters[id]
		if !decided && st.loaded[id].spec.Exists {
			continue
		}
		g := group{txn: r.store.Txn(), runs: []string{id}, whole: true}
		l := st.loaded[id]
		if decided {
			doc := r.members(id)
			doc.SwapIn(g.txn, l.roster, Roster{Nodes: nodes})
			g.keys = append(g.keys, doc.Key())
		}
		d.swapSpec(r, st, c, id, &g)
		delete(c.Runs, id)
		delete(st.changed, id)
		all = append(all, g)
	}
	return all
}

// swapSpec adds the run's own document to g, with its mark when that is new.
func (d *Decider) swapSpec(r *Runs, st *readState, c Changes, id string, g *group) {
	l := st.loaded[id]
	doc := r.spec(id)
	doc.SwapIn(g.txn, l.spec, st.run(c, id))
	g.keys = append(g.keys, doc.Key())
	if st.index[id].Index == 0 {
		r.touch(g.txn, id, st.now)
		g.txn.Delete(r.ended.At(id).Key())
	}
}

// run is the run as it is to be.
func (st *readState) run(c Changes, id string) Run {
	if run, changed := c.Runs[id]; changed {
		return run
	}
	return st.loaded[id].active.Run
}

// nodeGroups are the queues and jobs of nodes: a queue and the jobs that are, or
// should be, in it together; one that never was by itself.
func nodeGroups(r *Runs, st *readState, c Changes, w *written) []group {
	by := map[string]*group{}
	of := func(node, run string) *group {
		if by[node+" "+run] == nil {
			by[node+" "+run] = &group{node: node, txn: r.store.Txn()}
		}
		return by[node+" "+run]
	}
	for id, jobs := range c.Jobs {
		for node, j := range jobs {
			alone, was := id, st.loaded[id].jobs[node]
			if _, queue := c.Queues[node]; queue && (was.Exists || st.good[node].has(id) || c.Queues[node].has(id)) {
				alone = ""
			}
			g, doc := of(node, alone), r.jobs(id).At(node)
			doc.SwapIn(g.txn, was, j)
			g.keys = append(g.keys, doc.Key())
			g.runs = append(g.runs, id)
			if tail, ok := c.Tails[id][node]; ok {
				r.tail(id, node).SetIn(g.txn, tail)
			}
		}
	}
	for node, q := range c.Queues {
		g, doc := of(node, ""), r.queues.At(node)
		doc.SwapIn(g.txn, st.queues[node].Entry, q)
		g.keys = append(g.keys, doc.Key())
	}
	for _, g := range by { // what is said of a job follows from its queue
		if _, changed := c.Queues[g.node]; !changed {
			key := r.queues.At(g.node).Key()
			g.txn.CheckIndex(key, st.queues[g.node].Index)
			g.keys = append(g.keys, key)
		}
	}
	var all []group
	for _, key := range slices.Sorted(maps.Keys(by)) {
		if g := by[key]; slices.ContainsFunc(g.runs, func(id string) bool { return w.overtaken[id] }) {
			w.overtake(*g)
		} else {
			all = append(all, *g)
		}
	}
	return all
}

// ends are the runs whose own documents changed, after all that they are the
// sum of, and those whose mark moves.
func (d *Decider) ends(r *Runs, st *readState, c Changes, w *written) []group {
	var all []group
	for _, id := range st.ids() {
		_, changed := c.Runs[id]
		changed = changed || st.changed[id]
		mark := st.mark(st.run(c, id), c)
		moves := mark != markOf(st.index[id].Value) && st.index[id].Index != 0
		if w.overtaken[id] || !changed && !moves {
			continue
		}
		g := group{txn: r.store.Txn(), runs: []string{id}, whole: true}
		if changed {
			d.swapSpec(r, st, c, id, &g)
		} else {
			key := r.spec(id).Key()
			g.txn.CheckIndex(key, st.loaded[id].spec.Index)
			g.keys = append(g.keys, key)
		}
		if moves {
			r.move(g.txn, id, mark, st.now)
			w.ended = w.ended || mark == markEnded
			w.changed[id] = true
		}
		all = append(all, g)
	}
	return all
}

// Where a run's mark is.
const (
	markActive = "active"
	markLate   = "late"
	markEnded  = "ended"
)

func markOf(value string) string {
	if value == awaitsLate {
		return markLate
	}
	return markActive
}

// mark is where the mark of a run belongs: that of one which has come to its
// end waits for results of lost members in queues.
func (st *readState) mark(run Run, c Changes) string {
	if !run.State.Ended() || run.Rule != nil && !run.Rule.Gone {
		return markActive
	}
	for node, q := range st.good {
		if next, ok := c.Queues[node]; ok {
			q = next
		}
		if q.has(run.ID) {
			return markLate
		}
	}
	return markEnded
}

func (r *Runs) move(t *kv.Txn, id, mark string, now time.Time) {
	switch mark {
	case markActive:
		r.touch(t, id, now)
	case markLate:
		r.active.At(id).SetIn(t, awaitsLate)
	case markEnded:
		t.Delete(r.active.At(id).Key())
		r.ended.At(id).SetIn(t, now.Format(time.RFC3339))
	}
}
