package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
)

// Keys below the cluster's prefix.
const (
	keyView    = cluster.PrefixView
	keyCommit  = keyView + "commit"
	keyBatches = cluster.PrefixEvents + "batch/"
	keyAudit   = cluster.PrefixEvents + "audit/"
)

const journalFormat = 1

// Commit is the pointer: what is current. Everything else below view/,
// events/batch/ and events/audit/ was written ahead by an orchestrator that never committed it.
type Commit struct {
	Generation uint64       `json:"generation"` // grows by one with each commit
	Seq        uint64       `json:"seq"`        // of the last event; 0: none yet
	Time       time.Time    `json:"time"`
	Node       string       `json:"node"`    // the orchestrator that wrote it
	Cluster    uint64       `json:"cluster"` // generation of what the view says of the whole
	Shards     []uint64     `json:"shards"`  // generation of each; 0: it is empty
	Batches    []EventBatch `json:"batches"` // in order
	// Audit are the audit events a second time, kept for longer, and Audited is the last
	// change of the cluster's log among them.
	Audit   []EventBatch `json:"audit,omitempty"`
	Audited AuditMark    `json:"audited,omitzero"`
}

// AuditMark is a place in the cluster's log of changes.
type AuditMark struct {
	Log    string `json:"log"`
	Number uint64 `json:"number"`
}

// EventBatch is some events that are kept at one key.
type EventBatch struct {
	First      uint64    `json:"first"`
	Last       uint64    `json:"last"`
	Generation uint64    `json:"generation"`
	Time       time.Time `json:"time"` // of the last
	// Count is how many audit events are in a batch of them, whose numbers have gaps;
	// 0: it is a batch of all events.
	Count int `json:"count,omitempty"`
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

func (b EventBatch) key() string {
	prefix := keyBatches
	if b.Count > 0 {
		prefix = keyAudit
	}
	return fmt.Sprintf("%s%015d/%d", prefix, b.First, b.Generation)
}

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
	for _, b := range slices.Concat(c.Batches, c.Audit) {
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

// decodePart reads one part. It returns kv.ErrDamaged or kv.ErrNewer.
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

// JournalOptions say how much is kept. The zero value is good.
type JournalOptions struct {
	Node      string        // who writes; shown to others
	MaxEvents int           // default 10,000
	MaxAge    time.Duration // of events; default 7 days. Old ones go when new ones come
	MaxAudit  int           // audit events, whatever their age; default 1,000
}

// Journal is the view and the events in the hands of their one writer, the
// holder of the orchestrator's lock. It is not safe for concurrent use.
type Journal struct {
	store  *kv.Store // fenced
	o      JournalOptions
	commit kv.Entry[Commit]
	view   View
	tail   []Event // of the last batch, when it may be continued
	audit  []Event // of the last batch of audit events
	// garbage are keys that are no longer current and could not be deleted yet.
	garbage []string
}

// OpenJournal reads what is current and deletes what another orchestrator wrote ahead and never
// committed. Problems are parts that could not be read: the view lacks them. s is the store of the held lock. It returns kv.ErrNewer, or what
// kv.Txn.Commit returns.
func OpenJournal(ctx context.Context, s *kv.Store, o JournalOptions) (j *Journal, problems []error, err error) {
	if o.MaxEvents <= 0 {
		o.MaxEvents = 10_000
	}
	if o.MaxAge <= 0 {
		o.MaxAge = 7 * 24 * time.Hour
	}
	if o.MaxAudit <= 0 {
		o.MaxAudit = 1000
	}
	j = &Journal{store: s, o: o}
	saved, err := ReadView(ctx, s.Consistent())
	problems = saved.Problems
	if errors.Is(err, kv.ErrDamaged) {
		problems = append(problems, err)
		saved.entry.Value, err = j.recoverCommit(ctx)
		saved.View = View{Nodes: map[string]NodeView{}}
	}
	if err != nil {
		return nil, nil, err
	}
	j.commit, j.view = saved.entry, saved.View
	if problem := j.openTail(ctx); problem != nil {
		if !errors.Is(problem, kv.ErrDamaged) {
			return nil, nil, problem
		}
		problems = append(problems, problem)
	}
	if err := j.findGarbage(ctx); err != nil {
		return nil, nil, err
	}
	return j, problems, j.deleteGarbage(ctx)
}

// recoverCommit is a pointer in place of one that was damaged: the view is lost,
// and the numbers of events continue.
func (j *Journal) recoverCommit(ctx context.Context) (Commit, error) {
	var c Commit
	var err error
	if c.Batches, err = j.recoverBatches(ctx, keyBatches, &c.Generation); err != nil {
		return Commit{}, err
	}
	if n := len(c.Batches); n > 0 {
		c.Seq = c.Batches[n-1].Last
	}
	if c.Audit, err = j.recoverBatches(ctx, keyAudit, &c.Generation); err != nil {
		return Commit{}, err
	}
	if n := len(c.Audit); n > 0 {
		events, err := readBatches(ctx, j.store, c.Audit[n-1:])
		if err != nil {
			return Commit{}, err
		}
		c.Seq, c.Audited = max(c.Seq, c.Audit[n-1].Last), lastChange(events, c.Audited)
	}
	c.Generation += 1000 // above those of shards that are deleted next
	return c, nil
}

// recoverBatches finds the batches below prefix that can be read, and raises
// generation to the highest of theirs.
func (j *Journal) recoverBatches(ctx context.Context, prefix string, generation *uint64) (batches []EventBatch, err error) {
	names, err := kv.NewTextTree(j.store, prefix).Names(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		var b EventBatch
		if n, err := fmt.Sscanf(name, "%d/%d", &b.First, &b.Generation); n != 2 || err != nil {
			continue
		}
		*generation = max(*generation, b.Generation)
		e, err := kv.NewDoc[batchPart](j.store, prefix+name, journalFormat).Get(ctx)
		switch {
		case errors.Is(err, kv.ErrDamaged), err == nil && len(e.Value.Events) == 0:
			continue // it, too
		case err != nil:
			return nil, err
		}
		last := e.Value.Events[len(e.Value.Events)-1]
		b.Last, b.Time = last.Seq, last.Time
		if prefix == keyAudit {
			b.Count = len(e.Value.Events)
		}
		n := len(batches)
		switch {
		case !b.holds(e.Value.Events):
			continue
		case n == 0 || batches[n-1].First < b.First:
			batches = append(batches, b)
		case batches[n-1].Generation < b.Generation:
			batches[n-1] = b // of two the later one
		}
	}
	return batches, nil
}

func (j *Journal) openTail(ctx context.Context) error {
	last := func(batches []EventBatch) ([]Event, error) {
		return readBatches(ctx, j.store, batches[max(0, len(batches)-1):])
	}
	var errs [2]error
	j.tail, errs[0] = last(j.commit.Value.Batches)
	j.audit, errs[1] = last(j.commit.Value.Audit)
	return errors.Join(errs[:]...)
}

func (j *Journal) findGarbage(ctx context.Context) error {
	current := j.commit.Value.keys()
	for _, prefix := range []string{keyView, keyBatches, keyAudit} {
		names, err := kv.NewTextTree(j.store, prefix).Names(ctx)
		if err != nil {
			return err
		}
		for _, name := range names {
			if key := prefix + name; key != keyCommit && !current[key] {
				j.garbage = append(j.garbage, key)
			}
		}
	}
	return nil
}

// deleteGarbage deletes the garbage; what cannot be deleted now is later.
func (j *Journal) deleteGarbage(ctx context.Context) error {
	if len(j.garbage) == 0 {
		return nil
	}
	batch := j.store.NonAtomicBatch()
	for _, key := range j.garbage {
		batch.Add(j.store.Txn().Delete(key))
	}
	if err := batch.Commit(ctx); err != nil {
		return err
	}
	j.garbage = nil
	return nil
}

// View returns the last view that was saved; it is not to be changed.
func (j *Journal) View() View { return j.view }

// Commit returns what is current.
func (j *Journal) Commit() Commit { return j.commit.Value }
