package orchestrator

import (
	"context"
	"errors"
	"slices"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
)

// write makes c current: in one transaction when everything fits, else with the
// parts written ahead.
func (j *Journal) write(ctx context.Context, c Commit, parts []viewPart, also func(*kv.Txn)) (index uint64, err error) {
	var superseded []string
	current := c.keys()
	for key := range j.commit.Value.keys() {
		if !current[key] {
			superseded = append(superseded, key)
		}
	}
	slices.Sort(superseded)
	t := j.commitTxn(c, also)
	for _, p := range parts {
		t.Set(p.key, p.value)
	}
	if !fits(t) {
		ahead := j.store.NonAtomicBatch()
		for _, p := range parts {
			ahead.Add(j.store.Txn().Set(p.key, p.value))
		}
		if err := ahead.Commit(ctx); err != nil {
			return 0, err
		}
		t = j.commitTxn(c, also)
	}
	left := superseded
	for len(left) > 0 && t.Len() < kv.MaxOps && t.Size()+1000+len(left[0]) < kv.MaxBody {
		t.Delete(left[0])
		left = left[1:]
	}
	r, err := t.Commit(ctx)
	if err != nil {
		return 0, err
	}
	j.garbage = append(j.garbage, left...)
	if err := j.deleteGarbage(ctx); err != nil && !canWait(err) {
		return 0, err
	}
	return r.Index(keyCommit), nil
}

// again tells whether garbage that could not be deleted can wait for next time:
// not when the lock is lost.
func canWait(err error) bool {
	return !errors.Is(err, kv.ErrLockLost) && (errors.Is(err, consul.ErrUnreachable) || errors.Is(err, consul.ErrOutcomeUnknown) || errors.Is(err, consul.ErrRateLimited))
}

func (j *Journal) commitTxn(c Commit, also func(*kv.Txn)) *kv.Txn {
	t := j.store.Txn()
	kv.NewDoc[Commit](j.store, keyCommit, journalFormat).SwapIn(t, j.commit, c)
	if also != nil {
		also(t)
	}
	return t
}

func fits(t *kv.Txn) bool { return t.Len() <= kv.MaxOps && t.Size() <= kv.MaxBody }
