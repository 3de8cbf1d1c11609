package runs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
)

// List reads all runs, the newest first, those whose documents cannot be read
// left out and named in bad: with two requests and one for each 64 of them. It
// returns a class of package consul.
func (r *Runs) List(ctx context.Context) (all []Run, bad []error, err error) {
	active, err := r.active.Names(ctx)
	if err != nil {
		return nil, nil, err
	}
	ended, err := r.ended.Names(ctx)
	if err != nil {
		return nil, nil, err
	}
	ids := slices.Compact(slices.Sorted(slices.Values(append(active, ended...))))
	all = []Run{}
	for part := range slices.Chunk(ids, kv.MaxOps) {
		t := r.store.Txn()
		for _, id := range part {
			t.Get(r.spec(id).Key())
		}
		res, err := t.Commit(ctx)
		if err != nil {
			return nil, nil, err
		}
		for _, id := range part {
			e, err := r.spec(id).From(res)
			switch {
			case errors.Is(err, consul.ErrDenied):
				return nil, nil, err
			case err != nil:
				bad = append(bad, fmt.Errorf("run %q: %w", id, err))
			case e.Exists:
				e.Value.ID = id
				all = append(all, e.Value)
			}
		}
	}
	slices.SortFunc(all, func(a, b Run) int {
		if c := b.Created.Compare(a.Created); c != 0 {
			return c
		}
		return strings.Compare(b.ID, a.ID)
	})
	return all, bad, nil
}

// Member is a run's part on one member. Of one that has nothing to do yet only
// the state is known.
type Member struct {
	Node string `json:"node"`
	Job
}

// Detail is a run with its members.
type Detail struct {
	Run
	Members []Member `json:"members"` // in order of their names
}

// Show reads one run with its members, with two requests, or three while members
// are in progress. It returns ErrNoRun, ErrInvalid, kv.ErrDamaged, kv.ErrNewer or a
// class of package consul.
func (r *Runs) Show(ctx context.Context, id string) (Detail, error) {
	if err := CheckID(id); err != nil {
		return Detail{}, err
	}
	spec, roster := r.spec(id), r.members(id)
	res, err := r.store.Txn().Get(spec.Key()).Get(roster.Key()).Commit(ctx)
	if err != nil {
		return Detail{}, err
	}
	s, err := spec.From(res)
	if err != nil {
		return Detail{}, err
	}
	if !s.Exists {
		return Detail{}, r.unknown(ctx, id)
	}
	m, err := roster.From(res)
	if err != nil {
		return Detail{}, err
	}
	jobs, err := r.jobs(id).List(ctx)
	if err != nil {
		return Detail{}, err
	}
	d := Detail{Run: s.Value, Members: []Member{}}
	for _, node := range slices.Sorted(slices.Values(m.Value.Nodes)) {
		one := Member{Node: node, Job: Job{State: Pending}}
		leaf, scheduled := jobs[node]
		switch {
		case leaf.Err != nil:
			one.Why = leaf.Err.Error()
		case scheduled:
			one.Job = leaf.Value
		case s.Value.State == Cancelled:
			one.State = Cancelled
		}
		if one.History == nil {
			one.History = []Change{}
		}
		d.Members = append(d.Members, one)
	}
	return d, r.explain(ctx, d.Members)
}

// explain adds why members in progress do not continue: their queue cannot be
// read. It returns a class of package consul.
func (r *Runs) explain(ctx context.Context, members []Member) error {
	silent := func(m Member) bool { return m.Why == "" && (m.State == Pending || m.State == Running) }
	if !slices.ContainsFunc(members, silent) {
		return nil
	}
	queues, err := r.queues.List(ctx)
	if errors.Is(err, consul.ErrDenied) {
		return nil
	}
	for i, m := range members {
		if leaf := queues[m.Node]; leaf.Err != nil && silent(m) {
			members[i].Why = "nothing new begins there: " + leaf.Err.Error()
		}
	}
	return err
}

// Tail reads the end of what the last task of a run printed on a node; empty
// when nothing was. It returns what kv.Doc.Get does.
func (r *Runs) Tail(ctx context.Context, id, node string) (string, error) {
	e, err := r.tail(id, node).Get(ctx)
	return e.Value, err
}

// Tails is Tail for all members that printed something, by node, with one
// request. It returns a class of package consul.
func (r *Runs) Tails(ctx context.Context, id string) (map[string]string, error) {
	leaves, err := kv.NewTextTree(r.store, keyRuns+id+keyTails).List(ctx)
	if err != nil {
		return nil, err
	}
	all := make(map[string]string, len(leaves))
	for node, leaf := range leaves {
		all[node] = leaf.Value
	}
	return all, nil
}

// Explain adds why a run does not continue to one of which the orchestrator cannot
// write it: in observe-only mode it writes nothing.
func (r *Run) Explain(c cluster.Control) {
	if c.ObserveOnly != nil && (r.State == Pending || r.State == Running && r.Counts.Running == 0) {
		r.Why = "the cluster is in observe-only mode" + behind(": ", c.ObserveOnly.Reason)
	}
}
