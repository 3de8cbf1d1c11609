package runs

import (
	"context"
	"errors"
	"slices"

	"github.com/jorc/jorc/internal/kv"
)

// Record carries out what also adds to a transaction and tells decisions, both
// or neither; also may be nil. An error is a kv.ConflictError when something of
// also's did not hold; nothing was done then.
type Record func(ctx context.Context, decisions []Decision, also func(*kv.Txn)) error

// group is what one transaction writes as a whole: all of one node, or one
// run's own documents.
type group struct {
	node  string // of the first kind
	whole bool   // of the second kind
	txn   *kv.Txn
	keys  []string
	runs  []string // that it is about
}

// written is what became of the groups.
type written struct {
	overtaken map[string]bool // runs of which something was not written
	changed   map[string]bool // runs of which something was to be written
	ended     bool            // a run came to its end
	open      []Decision      // to be told with what carries them out
	told      []Decision
}

func (w *written) overtake(g group) {
	for _, id := range g.runs {
		w.overtaken[id] = true
	}
}

// about are the decisions that groups carry out. Of members that are given
// something to do it names those that groups are about.
func (w *written) about(st *readState, groups []group) []Decision {
	var all []Decision
	for _, d := range w.open {
		if len(d.nodes) == 0 {
			if slices.ContainsFunc(groups, func(g group) bool { return g.about(d.Run, d.Node) }) {
				all = append(all, d)
			}
			continue
		}
		here := slices.DeleteFunc(slices.Clone(d.nodes), func(node string) bool {
			return !slices.ContainsFunc(groups, func(g group) bool { return g.about(d.Run, node) })
		})
		if len(here) > 0 {
			all = append(all, scheduled(&st.loaded[d.Run].active.Run, here))
		}
	}
	return all
}

// about tells whether g writes what run does on node, or the run's own
// documents when that is empty.
func (g group) about(run, node string) bool {
	return g.whole == (node == "") && g.node == node && slices.Contains(g.runs, run)
}

// Of the bounds of a transaction a part is left for the events.
const (
	mostOps  = kv.MaxOps - 8
	mostBody = kv.MaxBody - 64<<10
)

// commit writes groups, in their order, as many at one time as fit, each with
// the decisions that it carries out. It leaves out those that somebody overtook:
// the others do not depend on them.
func (d *Decider) commit(ctx context.Context, r *Runs, st *readState, groups []group, w *written) error {
	for len(groups) > 0 {
		t, n := r.store.Txn(), 0
		for n == 0 || n < len(groups) && t.Len()+groups[n].txn.Len() <= mostOps && t.Size()+groups[n].txn.Size() <= mostBody {
			t.Append(groups[n].txn)
			n++
		}
		d.hook("commit")
		decisions := w.about(st, groups[:n])
		err := d.carryOut(ctx, r, t, decisions)
		var conflict *kv.ConflictError
		switch {
		case err == nil:
			w.told = append(w.told, decisions...)
			groups = groups[n:]
			continue
		case !errors.As(err, &conflict) || errors.Is(err, kv.ErrLockLost):
			return err
		}
		before := len(groups)
		groups = slices.DeleteFunc(groups, func(g group) bool {
			hit := slices.ContainsFunc(conflict.Failures, func(f kv.Failure) bool { return slices.Contains(g.keys, f.Key) })
			if hit {
				w.overtake(g)
			}
			return hit
		})
		if len(groups) == before {
			return err
		}
	}
	return nil
}

// carryOut commits t and tells decisions with it.
func (d *Decider) carryOut(ctx context.Context, r *Runs, t *kv.Txn, decisions []Decision) error {
	if len(decisions) == 0 || d.record == nil {
		_, err := t.Commit(ctx)
		return err
	}
	return d.record(ctx, decisions, func(all *kv.Txn) { all.Append(t) })
}

// note is something that is wrong, of which nothing is to be written.
type note struct {
	Decision

	what string
}

// say tells what is wrong, once for each text.
func (st *readState) say(d *Decider, kind, what, run, text string) {
	if d.told[what] != text {
		st.notes = append(st.notes, note{Decision{Kind: kind, Run: run, Text: text}, what})
	}
}

// fine forgets what was told.
func (d *Decider) fine(what string) { delete(d.told, what) }

// tellNotes tells what is wrong; what could not be told is told the next time.
func (d *Decider) tellNotes(ctx context.Context, st *readState) ([]Decision, error) {
	if len(st.notes) == 0 {
		return nil, nil
	}
	var all []Decision
	for _, n := range st.notes {
		all = append(all, n.Decision)
	}
	if d.record != nil {
		if err := d.record(ctx, all, nil); err != nil {
			return nil, err
		}
	}
	for _, n := range st.notes {
		d.log.Warn(n.Text)
		d.told[n.what] = n.Text
	}
	return all, nil
}
