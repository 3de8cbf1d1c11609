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

	"github.com/jorc/jorc/internal/kv"
)

// part is one value that is written under a new name.
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
	numbered, tail, more, err := j.saveEvents(&c, events)
	if err != nil {
		return nil, err
	}
	parts = append(parts, more...)
	index, err := j.write(ctx, c, parts, also)
	if err != nil {
		return nil, err
	}
	j.commit = kv.Entry[Commit]{Value: c, Index: index, Exists: true}
	j.view, j.tail = next, tail
	return numbered, nil
}

// Own tells whether err, of Save, says that the operations which also added did
// not hold, and nothing else: then nothing was written, and the journal is as it was.
func IsDecisionConflict(err error) bool {
	var conflict *kv.ConflictError
	if !errors.As(err, &conflict) {
		return false
	}
	return !slices.ContainsFunc(conflict.Failures, func(f kv.Failure) bool { return f.Key == keyCommit })
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
	return ok != still || !reflect.DeepEqual(was, is)
}

func encodePart(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode a part of the view: %w", err)
	}
	return data, nil
}
