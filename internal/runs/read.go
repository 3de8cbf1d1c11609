package runs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/kv"
)

// loaded is a run as it was read, with what its writes compare with.
type loaded struct {
	active Active
	mark   uint64 // index of the run's mark among the active ones, when it was read
	spec   kv.Entry[Run]
	roster kv.Entry[Roster]
	jobs   map[string]kv.Entry[Job]
}

// readState is everything that one decision is made of.
type readState struct {
	now       time.Time
	index     map[string]kv.Leaf[string] // active runs
	queues    map[string]kv.Leaf[Queue]
	good      map[string]Queue   // queues that can be read
	loaded    map[string]*loaded // runs, by id
	unread    map[string]bool
	damaged   []string        // nodes whose queues are rebuilt
	closed    map[string]bool // nodes whose queues are of a newer jorc
	changed   map[string]bool // runs that differ from what was read before there is a plan
	decisions []Decision      // about runs that differ so
	notes     []note
}

func (st *readState) ids() []string { return slices.Sorted(maps.Keys(st.loaded)) }

func (st *readState) runs() []Active {
	all := make([]Active, 0, len(st.loaded))
	for _, id := range st.ids() {
		all = append(all, st.loaded[id].active)
	}
	return all
}

// begins reports whether the members of a run are to be decided.
func (st *readState) begins() bool {
	for _, l := range st.loaded {
		if l.active.Run.State == Pending {
			return true
		}
	}
	return false
}

// read reads the active runs. Documents of runs are written by the holder of the
// orchestrator's lock, and by others only together with the run's mark: as
// long as that is as it was, they are as this Decider left them.
func (d *Decider) read(ctx context.Context, r *Runs, o Observed, now time.Time) (*readState, error) {
	st := &readState{now: now, good: map[string]Queue{}, loaded: map[string]*loaded{}, unread: map[string]bool{}, changed: map[string]bool{}, closed: map[string]bool{}}
	var err error
	if st.index, err = r.active.List(ctx); err != nil {
		return nil, err
	}
	if len(st.index) == 0 {
		d.cache = map[string]*loaded{}
		return st, nil
	}
	if st.queues, err = r.queues.List(ctx); err != nil {
		return nil, err
	}
	for node, leaf := range st.queues {
		switch {
		case errors.Is(leaf.Err, kv.ErrDamaged): // rebuilt, once the runs are read
			st.warn(d, RunUnreadable, "queue "+node, "", fmt.Sprintf("the queue of node %s is rebuilt from its runs: %v", node, leaf.Err))
			st.damaged = append(st.damaged, node)
		case leaf.Err != nil:
			st.warn(d, RunUnreadable, "queue "+node, "", fmt.Sprintf("node %s gets nothing to run: %v", node, leaf.Err))
			st.closed[node] = true
		default:
			d.clear("queue " + node)
			st.good[node] = leaf.Value
		}
	}
	late := d.stillAway(st, o)
	for id, mark := range st.index {
		if l := d.cache[id]; l != nil && l.mark == mark.Index {
			st.loaded[id] = l.clone()
			continue
		}
		if mark.Value == awaitsLate && late[id] {
			st.unread[id] = true
			continue
		}
		l, err := d.load(ctx, r, id, st)
		switch {
		case err == nil:
			l.mark = mark.Index
			st.loaded[id] = l
			d.clear("run " + id)
		case errors.Is(err, ErrNoRun), errors.Is(err, kv.ErrDamaged), errors.Is(err, kv.ErrNewer):
			st.unread[id] = true
			st.warn(d, RunUnreadable, "run "+id, id, err.Error())
		default:
			return nil, err
		}
	}
	for _, node := range st.damaged {
		st.good[node] = st.rebuilt(node)
	}
	return st, nil
}

// rebuilt is the queue of a node as it follows from what is known of the runs:
// the node reports again what it has reported since, because its own files have
// what it has done.
func (st *readState) rebuilt(node string) Queue {
	q := Queue{Jobs: []Queued{}}
	for _, id := range st.ids() {
		run := &st.loaded[id].active.Run
		j, scheduled := st.loaded[id].active.Jobs[node]
		i := slices.IndexFunc(j.History, func(c Change) bool { return c.State == Running })
		late := j.State == Lost && i >= 0 && !run.Request.OnManager
		if !scheduled || j.State.Ended() && !late {
			continue
		}
		e := Queued{Run: id, Job: jobID(id, j.Attempt), Manager: run.Request.OnManager, Done: j.Done, State: Pending}
		if i >= 0 {
			e.State, e.Started = Running, j.History[i].At
		}
		q.Jobs = append(q.Jobs, e)
	}
	return q
}

// stillAway are the runs whose jobs in queues are all of members that are still
// away and have told nothing, for not too long.
func (d *Decider) stillAway(st *readState, o Observed) map[string]bool {
	away, here := map[string]bool{}, map[string]bool{}
	for node, q := range st.good {
		_, down := d.down[node]
		for _, e := range q.Jobs {
			away[e.Run] = true
			if !down && node != o.Node || e.State.Ended() || o.Now.Sub(e.Started) > keepFor {
				here[e.Run] = true
			}
		}
	}
	maps.DeleteFunc(away, func(id string, _ bool) bool { return here[id] })
	return away
}

// load reads one run. It returns ErrNoRun if it does not exist.
func (d *Decider) load(ctx context.Context, r *Runs, id string, st *readState) (*loaded, error) {
	if err := CheckID(id); err != nil {
		return nil, errors.Join(err, ErrNoRun)
	}
	spec, roster := r.spec(id), r.members(id)
	res, err := r.store.Txn().Get(spec.Key()).Get(roster.Key()).Commit(ctx)
	if err != nil {
		return nil, err
	}
	l := &loaded{jobs: map[string]kv.Entry[Job]{}}
	if l.spec, err = spec.From(res); err != nil {
		return nil, err
	}
	if l.roster, err = roster.From(res); err != nil {
		return nil, err
	}
	if !l.spec.Exists {
		return nil, noRun(id)
	}
	l.active = Active{Run: l.spec.Value, Roster: l.roster.Value.Nodes, Jobs: map[string]Job{}}
	l.active.Run.ID = id // whatever the document says
	jobs, err := r.jobs(id).List(ctx)
	if err != nil {
		return nil, err
	}
	for node, leaf := range jobs {
		if leaf.Err != nil {
			// Nothing of it is believed, and nothing is done again because of it.
			st.warn(d, RunUnreadable, "job "+id+" "+node, id, fmt.Sprintf("run %s: what %s did cannot be read: %v", id, node, leaf.Err))
			l.active.Jobs[node] = Job{State: Failed, Why: "its document cannot be read", Attempt: 1}
			continue
		}
		l.active.Jobs[node] = leaf.Value
		l.jobs[node] = leaf.Entry
	}
	return l, nil
}

func (l *loaded) clone() *loaded {
	c := *l
	c.active.Jobs = maps.Clone(l.active.Jobs)
	c.jobs = maps.Clone(l.jobs)
	return &c
}
