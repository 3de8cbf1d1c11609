package runs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/kv"
)

// What is kept of runs that have ended.
const (
	keepRuns   = 100
	keepFor    = 30 * 24 * time.Hour
	pruneEvery = time.Hour
	pruneMost  = 10 // runs at one time: the rest has time
)

// prune forgets runs that ended long ago, looking for them when one has ended
// and every hour.
func (d *Decider) prune(ctx context.Context, r *Runs, now time.Time) ([]Decision, error) {
	if now.Sub(d.pruned) < pruneEvery {
		return nil, nil
	}
	ended, err := r.ended.List(ctx)
	if err != nil {
		return nil, err
	}
	all := old(ended, now)
	if len(all) <= pruneMost {
		d.pruned = now
	}
	if len(all) == 0 {
		return nil, nil
	}
	all = all[:min(len(all), pruneMost)]
	marks := r.store.Txn()
	for _, id := range all {
		if err := d.forget(ctx, r, id); err != nil {
			return nil, d.unpruned(err)
		}
		marks.Delete(r.ended.At(id).Key())
	}
	decisions := []Decision{{Kind: RunPruned, Text: fmt.Sprintf("%d runs that ended long ago are forgotten: %s", len(all), several(all))}}
	if err := d.carryOut(ctx, r, marks, decisions); err != nil {
		return nil, d.unpruned(err)
	}
	return decisions, nil
}

// unpruned makes the next cycle look again.
func (d *Decider) unpruned(err error) error {
	d.pruned = time.Time{}
	return err
}

// old are the ended runs that are not to be kept, the oldest first.
func old(ended map[string]kv.Leaf[string], now time.Time) []string {
	type run struct {
		id string
		at time.Time
	}
	all := make([]run, 0, len(ended))
	for id, leaf := range ended {
		at, _ := time.Parse(time.RFC3339, leaf.Value) // the zero time: long ago
		all = append(all, run{id, at})
	}
	slices.SortFunc(all, func(a, b run) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.id, b.id)) })
	var ids []string
	for i, x := range all {
		if i < len(all)-keepRuns || now.Sub(x.at) > keepFor {
			ids = append(ids, x.id)
		}
	}
	return ids
}

// forget deletes all of a run but its mark: what is left goes the next time.
func (d *Decider) forget(ctx context.Context, r *Runs, id string) error {
	tree := kv.NewTextTree(r.store, keyRuns+id+"/")
	names, err := tree.Names(ctx)
	if err != nil {
		return err
	}
	batch := r.store.NonAtomicBatch()
	for _, name := range names {
		batch.Add(r.store.Txn().Delete(tree.At(name).Key()))
	}
	d.hook("prune")
	return batch.Commit(ctx)
}
