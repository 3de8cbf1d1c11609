package runs

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/kv"
)

// write writes changes, each with the decisions that it carries out, and
// returns the decisions that were written. What another write overtook is left out,
// and so is all that depends on it.
func (d *Decider) write(ctx context.Context, r *Runs, st *readState, c Changes) ([]event.Decision, error) {
	w := &written{
		overtaken: map[string]phase{}, changed: map[string]bool{}, open: append(st.decisions, c.Decisions...),
	}
	for _, id := range st.ids() {
		_, run := c.Runs[id]
		_, roster := c.Rosters[id]
		_, jobs := c.Jobs[id]
		w.changed[id] = run || roster || jobs || st.changed[id]
	}
	begin := d.beginnings(r, st, c)
	if err := d.commit(ctx, r, st, slices.Concat(begin, nodeGroups(r, st, c), d.ends(r, st, c, w, begin)), w); err != nil {
		return w.recorded, err
	}
	if w.ended {
		d.pruned = time.Time{} // look now
	}
	d.remember(st, w)
	return w.recorded, nil
}

// remember keeps the runs that are as they were read.
func (d *Decider) remember(st *readState, w *written) {
	d.cache = map[string]*loaded{}
	for id, l := range st.loaded {
		if _, overtaken := w.overtaken[id]; !w.changed[id] && !overtaken {
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
		g := group{phase: begins, txn: r.store.Txn(), runs: []string{id}, whole: true}
		l := st.loaded[id]
		if decided {
			doc := r.members(id)
			doc.SwapIn(g.txn, l.roster, Roster{Nodes: nodes})
			g.keys = append(g.keys, doc.Key())
		}
		d.swapSpec(r, st, c, id, &g)
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
func nodeGroups(r *Runs, st *readState, c Changes) []group {
	by := map[string]*group{}
	of := func(node, run string) *group {
		if by[node+" "+run] == nil {
			by[node+" "+run] = &group{phase: works, node: node, txn: r.store.Txn()}
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
		g, doc, old := of(node, ""), change.GrantsAt(r.store, node), st.said[node].granted
		doc.SwapIn(g.txn, old, q.Granted(old.Value, st.now))
		g.keys = append(g.keys, doc.Key())
		for _, e := range q.Jobs {
			if st.good[node].find(e.Job) < 0 {
				g.offers, g.takes = true, g.takes || e.Disturbs
			}
		}
		if h := st.hosts[node]; g.takes && h != nil && h.Report.AtWork() { // it takes no place only as long as the report says so
			g.txn.CheckIndex(cluster.ReportKey(node), h.Index)
			g.keys = append(g.keys, cluster.ReportKey(node))
		}
	}
	for _, g := range by { // all of it follows from what the node says, and a job's document from what is granted, too
		said := st.said[g.node]
		if _, changed := c.Queues[g.node]; !changed {
			key := cluster.GrantsKey(g.node)
			g.txn.CheckIndex(key, said.granted.Index)
			g.keys = append(g.keys, key)
		}
		key := cluster.ResultsKey(g.node)
		g.txn.CheckIndex(key, said.results.Index)
		g.keys = append(g.keys, key)
	}
	var all []group
	for _, key := range slices.Sorted(maps.Keys(by)) {
		all = append(all, *by[key])
	}
	return all
}

// ends are the runs whose own documents changed, after all that they are the
// sum of, and those whose mark moves. What begins now ends in the next plan at the earliest.
func (d *Decider) ends(r *Runs, st *readState, c Changes, w *written, begin []group) []group {
	var all []group
	for _, id := range st.ids() {
		_, changed := c.Runs[id]
		changed = changed || st.changed[id]
		mark := st.mark(st.run(c, id), c)
		moves := mark != markOf(st.index[id].Value) && st.index[id].Index != 0
		if !changed && !moves || slices.ContainsFunc(begin, func(g group) bool { return slices.Contains(g.runs, id) }) {
			continue
		}
		g := group{phase: ends, txn: r.store.Txn(), runs: []string{id}, whole: true}
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

// group is what one transaction writes as a whole: all of one node, or one
// run's own documents.
type group struct {
	phase  phase
	node   string // of the first kind
	whole  bool   // of the second kind
	txn    *kv.Txn
	keys   []string
	runs   []string // that it is about
	offers bool     // it offers node a job
	takes  bool     // with offers: node goes out of service for it
}

// phase orders groups: what a run is made of is written before what it does, and what it came to last.
type phase int

const (
	begins phase = iota + 1
	works
	ends
)

// written is the result of writing groups.
type written struct {
	overtaken map[string]phase // runs of which something was not written, with the first phase of that
	changed   map[string]bool  // runs of which something was to be written
	ended     bool             // a run ended
	open      []decided        // not yet recorded
	recorded  []event.Decision
}

func (w *written) overtake(g group) {
	for _, id := range g.runs {
		if first, is := w.overtaken[id]; !is || g.phase < first {
			w.overtaken[id] = g.phase
		}
	}
}

// late reports whether g depends on something of an earlier phase that was not written.
func (w *written) late(g group) bool {
	return slices.ContainsFunc(g.runs, func(id string) bool { first, is := w.overtaken[id]; return is && first < g.phase })
}

// about are the decisions that groups carry out. Of members that are given
// something to do it names the members that groups are about.
func (w *written) about(st *readState, groups []group) []event.Decision {
	var all []event.Decision
	for _, d := range w.open {
		if len(d.nodes) == 0 {
			if slices.ContainsFunc(groups, func(g group) bool { return g.about(d.run(), d.Node) }) {
				all = append(all, d.Decision)
			}
			continue
		}
		here := slices.DeleteFunc(slices.Clone(d.nodes), func(node string) bool {
			return !slices.ContainsFunc(groups, func(g group) bool { return g.about(d.run(), node) })
		})
		if len(here) > 0 {
			all = append(all, scheduled(&st.loaded[d.run()].active.Run, here).Decision)
		}
	}
	return all
}

// about reports whether g writes what run does on node, or the run's own
// documents when that is empty.
func (g group) about(run, node string) bool {
	return g.whole == (node == "") && g.node == node && slices.Contains(g.runs, run)
}

// Of the bounds of a transaction a part is left for the events.
const (
	mostOps  = kv.MaxOps - 8
	mostBody = kv.MaxBody - 64<<10
)

// commit writes groups, in their order, as many per transaction as fit, each
// with the decisions that it carries out. It leaves out groups that another write
// overtook, and the ones of later phases that depend on them.
func (d *Decider) commit(ctx context.Context, r *Runs, st *readState, groups []group, w *written) error {
	for len(groups) > 0 {
		t, n := r.store.Txn(), 0
		for n == 0 || n < len(groups) && t.Len()+groups[n].txn.Len() <= mostOps && t.Size()+groups[n].txn.Size() <= mostBody {
			t.Append(groups[n].txn)
			n++
		}
		d.hook("commit")
		decisions := w.about(st, groups[:n])
		err := d.commitGroups(ctx, t, groups[:n], decisions)
		var conflict *kv.ConflictError
		switch {
		case err == nil:
			w.recorded = append(w.recorded, decisions...)
			groups = groups[n:]
			continue
		case !errors.As(err, &conflict) || errors.Is(err, kv.ErrLockLost):
			return err
		}
		before := len(groups)
		groups = slices.DeleteFunc(groups, func(g group) bool {
			hit := slices.ContainsFunc(conflict.Failures, func(f kv.Failure) bool { return slices.Contains(g.keys, f.Key) })
			left := hit || w.late(g)
			if left {
				w.overtake(g)
			}
			return left
		})
		if len(groups) == before {
			return err
		}
	}
	return nil
}

// commitGroups commits groups, which are in t, with the decisions that they carry out.
func (d *Decider) commitGroups(ctx context.Context, t *kv.Txn, groups []group, decisions []event.Decision) error {
	var offers Offers
	for _, g := range groups {
		offers.Any = offers.Any || g.offers
		if g.takes {
			offers.Disturbed = append(offers.Disturbed, g.node)
		}
	}
	return d.commitWith(ctx, t, decisions, offers)
}

// commitWith commits t and records decisions with it.
func (d *Decider) commitWith(ctx context.Context, t *kv.Txn, decisions []event.Decision, offers Offers) error {
	if d.commits == nil {
		_, err := t.Commit(ctx)
		return err
	}
	return d.commits(ctx, decisions, offers, func(all *kv.Txn) { all.Append(t) })
}

// note is something that is wrong, of which nothing is to be written.
type note struct {
	event.Decision

	what string
}

// warn notes what is wrong, once for each text.
func (st *readState) warn(d *Decider, kind, what, run, text string) {
	if d.recorded[what] != text {
		st.notes = append(st.notes, note{decide(kind, run, "", text), what})
	}
}

// clear forgets what was recorded.
func (d *Decider) clear(what string) { delete(d.recorded, what) }

// recordNotes records what is wrong; what cannot be recorded is recorded the next
// time.
func (d *Decider) recordNotes(ctx context.Context, st *readState) ([]event.Decision, error) {
	if len(st.notes) == 0 {
		return nil, nil
	}
	var all []event.Decision
	for _, n := range st.notes {
		all = append(all, n.Decision)
	}
	if d.commits != nil {
		if err := d.commits(ctx, all, Offers{}, func(*kv.Txn) {}); err != nil {
			return nil, err
		}
	}
	for _, n := range st.notes {
		d.log.Warn(n.Text)
		d.recorded[n.what] = n.Text
	}
	return all, nil
}
