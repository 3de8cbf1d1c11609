package orchestrator

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
)

// Keys below the cluster's prefix.
const (
	keyView    = cluster.PrefixView
	keyCommit  = keyView + "commit"
	keyBatches = cluster.PrefixEvents + "batch/"
)

const journalFormat = 1

// Commit is the pointer: what is current. Everything else below view/ and
// events/batch/ was written ahead by somebody who never came to commit it.
type Commit struct {
	Generation uint64       `json:"generation"` // grows by one with each commit
	Seq        uint64       `json:"seq"`        // of the last event; 0: none yet
	Time       time.Time    `json:"time"`
	Node       string       `json:"node"`    // the orchestrator that wrote it
	Cluster    uint64       `json:"cluster"` // generation of what the view says of the whole
	Shards     []uint64     `json:"shards"`  // generation of each; 0: it is empty
	Batches    []EventBatch `json:"batches"` // in order
}

// Batch is some events that are kept at one key.
type EventBatch struct {
	First      uint64    `json:"first"`
	Last       uint64    `json:"last"`
	Generation uint64    `json:"generation"`
	Time       time.Time `json:"time"` // of the last
}

// First is the number of the oldest event that is kept; Seq+1 when none is.
func (c Commit) First() uint64 {
	if len(c.Batches) == 0 {
		return c.Seq + 1
	}
	return c.Batches[0].First
}

func clusterKey(generation uint64) string { return fmt.Sprintf("%scluster/%d", keyView, generation) }

func shardKey(shard int, generation uint64) string {
	return fmt.Sprintf("%snodes/%d/%d", keyView, shard, generation)
}

func (b EventBatch) key() string { return fmt.Sprintf("%s%015d/%d", keyBatches, b.First, b.Generation) }

// keys are the names of all that is current, besides the pointer.
func (c Commit) keys() map[string]bool {
	all := make(map[string]bool, len(c.Shards)+len(c.Batches)+1)
	if c.Cluster > 0 {
		all[clusterKey(c.Cluster)] = true
	}
	for i, generation := range c.Shards {
		if generation > 0 {
			all[shardKey(i, generation)] = true
		}
	}
	for _, b := range c.Batches {
		all[b.key()] = true
	}
	return all
}

// What is kept at the keys.
type (
	clusterPart struct {
		Format  int         `json:"format"`
		Cluster ClusterView `json:"cluster"`
	}
	shardPart struct {
		Format int                 `json:"format"`
		Nodes  map[string]NodeView `json:"nodes"`
	}
	batchPart struct {
		Format int     `json:"format"`
		Events []Event `json:"events"`
	}
)

// decode reads one part. It returns kv.ErrDamaged or kv.ErrNewer.
func decodePart[T any](key, text string, of func(T) int) (T, error) {
	var v, zero T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return zero, fmt.Errorf("read key %q: %w: %w", key, kv.ErrDamaged, err)
	}
	if n := of(v); n > journalFormat {
		return zero, fmt.Errorf("read key %q: %w: %d; this jorc reads up to %d: upgrade jorc on this host", key, kv.ErrNewer, n, journalFormat)
	}
	return v, nil
}

var errMissing = errors.New("missing")

func missingPart(key string) error {
	return fmt.Errorf("read key %q: %w: %w", key, kv.ErrDamaged, errMissing)
}

// Sizes of shards, in nodes.
const (
	nodesPerShard = 16 // at most, when the number of shards is chosen
	crowded       = 32 // above: more shards
	sparse        = 4  // below: fewer
	maxShards     = 4096
)

// shardCount is how many shards n nodes are kept in, when they are kept in now
// at present.
func shardCount(n, now int) int {
	if now > 0 && (n <= crowded*now || now == maxShards) && (n >= sparse*now || now == 1) {
		return now
	}
	count := 1
	for count*nodesPerShard < n && count < maxShards {
		count *= 2
	}
	return count
}

func shardOf(node string, shards int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(node)) // it cannot fail
	return int(h.Sum32() % uint32(shards))
}
