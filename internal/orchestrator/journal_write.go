package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
)

// viewPart is one value that is written under a new name.
type viewPart struct {
	key   string
	value []byte
}

// Save makes next the view and adds events to the journal, both at once, and
// returns the events with their numbers; their times are now where they have
// none. also, if not nil, adds what is to happen in the same transaction.
//
// After any error but one of also's operations (see Own) it is unknown what is
// current: Open again.
func (j *Journal) Save(ctx context.Context, next View, events []Event, now time.Time, also func(*kv.Txn)) ([]Event, error) {
	old := j.commit.Value
	c := Commit{Generation: old.Generation + 1, Seq: old.Seq, Time: now.UTC().Truncate(time.Millisecond), Node: j.o.Node}
	parts, err := j.saveView(&c, next)
	if err != nil {
		return nil, err
	}
	numbered := number(&c, events)
	var tail, audit []Event
	var more []viewPart
	if c.Batches, tail, more, err = appendBatches(old.Batches, j.tail, numbered, c.Generation, false); err != nil {
		return nil, err
	}
	c.Batches = j.keptBatches(&c)
	parts = append(parts, kept(more, c.Batches)...)
	if c.Audit, audit, more, err = appendBatches(old.Audit, j.audit, auditEvents(numbered), c.Generation, true); err != nil {
		return nil, err
	}
	c.Audit, c.Audited = j.keptAudit(c.Audit), lastChange(numbered, old.Audited)
	parts = append(parts, kept(more, c.Audit)...)
	index, err := j.write(ctx, c, parts, also)
	if err != nil {
		return nil, err
	}
	j.commit = kv.Entry[Commit]{Value: c, Index: index, Exists: true}
	j.view, j.tail, j.audit = next, tail, audit
	return numbered, nil
}

// IsDecisionConflict reports whether err, of Save, says that the operations which also added did
// not hold, and nothing else: then nothing was written, and the journal is as it was.
func IsDecisionConflict(err error) bool {
	var conflict *kv.ConflictError
	if !errors.As(err, &conflict) {
		return false
	}
	return !slices.ContainsFunc(conflict.Failures, func(f kv.Failure) bool { return f.Key == keyCommit })
}

// isDecisionError reports whether err, of saving, is of what also added alone: nothing was
// written then.
func isDecisionError(err error) bool {
	return IsDecisionConflict(err) || errors.Is(err, kv.ErrBadKey) || consul.IsPermanent(err)
}

// saveView encodes the parts of the view that are different.
func (j *Journal) saveView(c *Commit, next View) ([]viewPart, error) {
	old := j.commit.Value
	var parts []viewPart
	c.Cluster = old.Cluster
	if c.Cluster == 0 || !reflect.DeepEqual(j.view.Cluster, next.Cluster) {
		c.Cluster = c.Generation
		value, err := encodePart(clusterPart{journalFormat, next.Cluster})
		if err != nil {
			return nil, err
		}
		parts = append(parts, viewPart{clusterKey(c.Cluster), value})
	}
	shards := shardCount(len(next.Nodes), len(old.Shards))
	for {
		more, largest, err := j.saveShards(c, next, shards)
		if err != nil {
			return nil, err
		}
		if largest <= maxPart || shards == maxShards {
			return append(parts, more...), nil
		}
		shards *= 2
	}
}

// maxPart is what a part should have at most, in bytes.
const maxPart = 128 << 10

// saveShards encodes the shards that are different, and tells the largest.
func (j *Journal) saveShards(c *Commit, next View, shards int) (parts []viewPart, largest int, err error) {
	c.Shards = slices.Clone(j.commit.Value.Shards)
	anew := shards != len(c.Shards)
	if anew {
		c.Shards = make([]uint64, shards)
	}
	dirty := map[int]map[string]NodeView{}
	for _, nodes := range []map[string]NodeView{j.view.Nodes, next.Nodes} {
		for name := range nodes {
			if i := shardOf(name, shards); dirty[i] == nil && (anew || changedNode(j.view.Nodes, next.Nodes, name)) {
				dirty[i] = map[string]NodeView{}
			}
		}
	}
	for name, n := range next.Nodes {
		if nodes := dirty[shardOf(name, shards)]; nodes != nil {
			nodes[name] = n
		}
	}
	for _, i := range slices.Sorted(maps.Keys(dirty)) {
		c.Shards[i] = 0
		if len(dirty[i]) == 0 {
			continue
		}
		c.Shards[i] = c.Generation
		value, err := encodePart(shardPart{journalFormat, dirty[i]})
		if err != nil {
			return nil, 0, err
		}
		largest = max(largest, len(value))
		parts = append(parts, viewPart{shardKey(i, c.Generation), value})
	}
	return parts, largest, nil
}

func changedNode(a, b map[string]NodeView, name string) bool {
	was, ok := a[name]
	is, still := b[name]
	return ok != still || !was.equal(is)
}

func encodePart(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode a part of the view: %w", err)
	}
	return data, nil
}

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

// canWait reports whether garbage that could not be deleted can wait for next time:
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

// Sizes of batches. A batch is continued, under a new name, while it is short.
const (
	shortBatch = 64        // events
	shortBytes = 24 << 10  // of a batch that is continued
	longBatch  = 512       // events
	longBytes  = 128 << 10 // of a batch that is written at once
)

// number returns the events with numbers, and times where they have none.
func number(c *Commit, events []Event) []Event {
	numbered := make([]Event, 0, len(events))
	for _, e := range events {
		c.Seq++
		e.Seq = c.Seq
		if e.Time.IsZero() {
			e.Time = c.Time
		}
		numbered = append(numbered, e.Bounded())
	}
	return numbered
}

// appendBatches puts events into batches behind the ones that there are; tail are the
// events of the last of these, and after it those of the new last one.
func appendBatches(batches []EventBatch, tail, events []Event, generation uint64, audit bool) (all []EventBatch, last []Event, parts []viewPart, err error) {
	if len(events) == 0 {
		return batches, tail, nil, nil
	}
	all = slices.Clone(batches)
	batch := func(events []Event) EventBatch {
		end := events[len(events)-1]
		b := EventBatch{First: events[0].Seq, Last: end.Seq, Generation: generation, Time: end.Time}
		if audit {
			b.Count = len(events)
		}
		return b
	}
	if n := len(tail) + len(events); len(tail) > 0 && n <= shortBatch {
		longer := slices.Concat(tail, events)
		if value, err := encodePart(batchPart{journalFormat, longer}); err == nil && len(value) <= shortBytes {
			b := batch(longer)
			all[len(all)-1] = b
			return all, longer, []viewPart{{b.key(), value}}, nil
		}
	}
	for rest := events; len(rest) > 0; {
		var value []byte
		n := min(longBatch, len(rest))
		for {
			if value, err = encodePart(batchPart{journalFormat, rest[:n]}); err != nil {
				return nil, nil, nil, err
			}
			if len(value) <= longBytes || n == 1 {
				break
			}
			n /= 2
		}
		b := batch(rest[:n])
		all = append(all, b)
		parts = append(parts, viewPart{b.key(), value})
		last, rest = rest[:n:n], rest[n:]
	}
	return all, last, parts, nil
}

// kept are the parts of batches that are kept.
func kept(parts []viewPart, batches []EventBatch) []viewPart {
	return slices.DeleteFunc(parts, func(p viewPart) bool {
		return !slices.ContainsFunc(batches, func(b EventBatch) bool { return b.key() == p.key })
	})
}

// keptBatches are the batches without the ones that are too old or too many; the last one
// stays.
func (j *Journal) keptBatches(c *Commit) []EventBatch {
	oldest := c.Time.Add(-j.o.MaxAge)
	all := c.Batches
	for len(all) > 1 && (c.Seq-all[0].First+1 > uint64(j.o.MaxEvents) || all[0].Time.Before(oldest)) {
		all = all[1:]
	}
	return all
}

// keptAudit are the batches of audit events without the ones that are too many; the
// last one stays.
func (j *Journal) keptAudit(all []EventBatch) []EventBatch {
	total := 0
	for i := len(all) - 1; i >= 0; i-- {
		if total += all[i].Count; total > j.o.MaxAudit && i < len(all)-1 {
			return all[i+1:]
		}
	}
	return all
}
