package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jorc/jorc/internal/kv"
)

// Options say how much is kept. The zero value is good.
type JournalOptions struct {
	Node      string        // who writes; shown to others
	MaxEvents int           // default 10,000
	MaxAge    time.Duration // of events; default 7 days. Old ones go when new ones come
}

// Journal is the view and the events in the hands of their one writer, the
// holder of the orchestrator's lock. It is not safe for concurrent use.
type Journal struct {
	store  *kv.Store // fenced
	o      JournalOptions
	commit kv.Entry[Commit]
	view   View
	tail   []Event // of the last batch, when it may be continued
	// garbage are keys that are current no more and could not be deleted yet.
	garbage []string
}

// Open reads what is current and deletes what somebody wrote ahead and never
// committed. Problems are parts that could not be read: what they said is not
// in the view. s is the store of the held lock. It returns kv.ErrNewer, or what
// kv.Txn.Commit returns.
func OpenJournal(ctx context.Context, s *kv.Store, o JournalOptions) (j *Journal, problems []error, err error) {
	if o.MaxEvents <= 0 {
		o.MaxEvents = 10_000
	}
	if o.MaxAge <= 0 {
		o.MaxAge = 7 * 24 * time.Hour
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

// recovered is a pointer in place of one that was damaged: the view is lost,
// and the numbers of events go on.
func (j *Journal) recoverCommit(ctx context.Context) (Commit, error) {
	names, err := kv.NewTextTree(j.store, keyBatches).Names(ctx)
	if err != nil {
		return Commit{}, err
	}
	var c Commit
	for _, name := range names {
		var b EventBatch
		if n, err := fmt.Sscanf(name, "%d/%d", &b.First, &b.Generation); n != 2 || err != nil {
			continue
		}
		c.Generation = max(c.Generation, b.Generation)
		e, err := kv.NewDoc[batchPart](j.store, keyBatches+name, journalFormat).Get(ctx)
		switch {
		case errors.Is(err, kv.ErrDamaged), err == nil && len(e.Value.Events) == 0:
			continue // it, too
		case err != nil:
			return Commit{}, err
		}
		last := e.Value.Events[len(e.Value.Events)-1]
		b.Last, b.Time = last.Seq, last.Time
		n := len(c.Batches)
		switch {
		case !b.holds(e.Value.Events):
			continue
		case n == 0 || c.Batches[n-1].First < b.First:
			c.Batches = append(c.Batches, b)
		case c.Batches[n-1].Generation < b.Generation:
			c.Batches[n-1] = b // of two the later one
		}
		c.Seq = max(c.Seq, c.Batches[len(c.Batches)-1].Last)
	}
	c.Generation += 1000 // above those of shards that are deleted next
	return c, nil
}

func (j *Journal) openTail(ctx context.Context) error {
	batches := j.commit.Value.Batches
	if len(batches) == 0 {
		return nil
	}
	events, err := readBatches(ctx, j.store, batches[len(batches)-1:])
	j.tail = events
	return err
}

func (j *Journal) findGarbage(ctx context.Context) error {
	current := j.commit.Value.keys()
	for _, prefix := range []string{keyView, keyBatches} {
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

// collect deletes the garbage; what cannot be deleted now is later.
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
