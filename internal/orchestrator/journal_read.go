package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/text"
)

// SavedView is a view as it is kept.
type SavedView struct {
	Commit Commit
	View   View
	// Problems are parts that cannot be read; the view lacks what they say.
	Problems []error

	entry kv.Entry[Commit]
}

// ReadView reads the last view with one request. It is not an error if there is no view yet:
// its generation is 0. It returns kv.ErrDamaged or kv.ErrNewer for a pointer
// that cannot be read, or a class of package consul.
func ReadView(ctx context.Context, s *kv.Store) (SavedView, error) {
	texts, err := kv.NewTextTree(s, keyView).List(ctx) // one moment of Consul's
	if err != nil {
		return SavedView{}, err
	}
	pointer, err := commitIn(ctx, s, texts)
	saved := SavedView{Commit: pointer.Value, View: View{Nodes: map[string]NodeView{}}, entry: pointer}
	if err != nil {
		return saved, err
	}
	part := func(key string) (string, error) {
		leaf, ok := texts[key[len(keyView):]]
		if !ok {
			return "", missingPart(s.Path(key))
		}
		return leaf.Value, nil
	}
	c := pointer.Value
	if c.Cluster > 0 {
		key := clusterKey(c.Cluster)
		text, err := part(key)
		if err == nil {
			var p clusterPart
			p, err = decodePart(s.Path(key), text, func(p clusterPart) int { return p.Format })
			saved.View.Cluster = p.Cluster
		}
		saved.problem(err)
	}
	for i, generation := range c.Shards {
		if generation == 0 {
			continue
		}
		key := shardKey(i, generation)
		text, err := part(key)
		if err == nil {
			var p shardPart
			p, err = decodePart(s.Path(key), text, func(p shardPart) int { return p.Format })
			for name, n := range p.Nodes {
				saved.View.Nodes[name] = n
			}
		}
		saved.problem(err)
	}
	return saved, nil
}

func (s *SavedView) problem(err error) {
	if err != nil {
		s.Problems = append(s.Problems, err)
	}
}

// commitIn reads the pointer among texts; one more request only tells why it
// cannot be read.
func commitIn(ctx context.Context, s *kv.Store, texts map[string]kv.Leaf[string]) (kv.Entry[Commit], error) {
	doc := kv.NewDoc[Commit](s, keyCommit, journalFormat)
	leaf, ok := texts[keyCommit[len(keyView):]]
	if !ok {
		return kv.Entry[Commit]{}, nil
	}
	type head struct {
		Format int `json:"format"`
		Commit
	}
	p, err := decodePart(s.Path(keyCommit), leaf.Value, func(h head) int { return h.Format })
	if err != nil {
		return doc.Get(ctx)
	}
	return kv.Entry[Commit]{Value: p.Commit, Index: leaf.Index, Exists: true}, nil
}

// ReadEvents reads the events after number after, the last limit of them when limit
// is not 0, and what was current then. Batches that another program's hand damaged
// are left out, and reported by an error next to the others. It returns
// kv.ErrDamaged, kv.ErrNewer or a class of package consul.
func ReadEvents(ctx context.Context, s *kv.Store, after uint64, limit int) ([]Event, Commit, error) {
	return readKept(ctx, s, allEvents, after, limit)
}

// keptEvents are events that the journal keeps: all, or the audit events a second time.
type keptEvents int

const (
	allEvents keptEvents = iota
	auditAlone
)

// readKept is ReadEvents for one of them. A limit is of all events.
func readKept(ctx context.Context, s *kv.Store, kept keptEvents, after uint64, limit int) ([]Event, Commit, error) {
	doc := kv.NewDoc[Commit](s, keyCommit, journalFormat)
	var last uint64
	for {
		e, err := doc.Get(ctx)
		if err != nil {
			return nil, Commit{}, err
		}
		c := e.Value
		if limit > 0 && c.Seq > uint64(limit) {
			after = max(after, c.Seq-uint64(limit))
		}
		batches := c.Batches
		if kept == auditAlone {
			batches = c.Audit
		}
		events, err := eventsOf(ctx, s, batches, after)
		if !errors.Is(err, errMissing) || e.Index == last {
			return events, c, err
		}
		last = e.Index // what is missing was superseded meanwhile, unless nothing was committed
	}
}

// perRead bounds how many batches are read with one request.
const perRead = 16

func eventsOf(ctx context.Context, s *kv.Store, batches []EventBatch, after uint64) ([]Event, error) {
	var wanted []EventBatch
	for _, b := range batches {
		if b.Last > after {
			wanted = append(wanted, b)
		}
	}
	var events []Event
	var problems []error
	for len(wanted) > 0 {
		n := min(perRead, len(wanted))
		got, err := readBatches(ctx, s, wanted[:n])
		if err != nil && !errors.Is(err, kv.ErrDamaged) {
			return nil, err
		}
		problems = append(problems, err)
		for _, e := range got {
			if e.Seq > after {
				events = append(events, e)
			}
		}
		wanted = wanted[n:]
	}
	return events, errors.Join(problems...)
}

func readBatches(ctx context.Context, s *kv.Store, batches []EventBatch) (events []Event, err error) {
	if len(batches) == 0 {
		return nil, nil
	}
	t := s.Txn()
	for _, b := range batches {
		t.Get(b.key())
	}
	r, err := t.Commit(ctx)
	if err != nil {
		return nil, err
	}
	var problems []error
	for _, b := range batches {
		e, err := kv.NewDoc[batchPart](s, b.key(), journalFormat).From(r)
		switch {
		case err == nil && !e.Exists:
			err = missingPart(s.Path(b.key()))
		case err == nil && !b.holds(e.Value.Events):
			err = fmt.Errorf("read key %q: %w: not the events %d to %d", s.Path(b.key()), kv.ErrDamaged, b.First, b.Last)
		case err == nil:
			events = append(events, e.Value.Events...)
		}
		if err != nil && !errors.Is(err, kv.ErrDamaged) {
			return nil, err
		}
		problems = append(problems, err)
	}
	return events, errors.Join(problems...)
}

// holds reports whether events are those of the batch.
func (b EventBatch) holds(events []Event) bool {
	if b.Count > 0 {
		return len(events) == b.Count && events[0].Seq == b.First && events[b.Count-1].Seq == b.Last
	}
	for i, e := range events {
		if e.Seq != b.First+uint64(i) {
			return false
		}
	}
	return uint64(len(events)) == b.Last-b.First+1
}

// ErrEventsGone: events that were asked for are no longer kept.
var ErrEventsGone = errors.New("no longer kept")

// Pauses between two attempts to read events that were committed.
const (
	firstReadRetry = 100 * time.Millisecond
	lastReadRetry  = 10 * time.Second
)

// EventFilter selects events.
type EventFilter struct {
	Kinds  []string // of these kinds; none: of all
	Host   string   // about this host; empty: about all
	Change string   // about the change with this id; empty: about all
}

// Of returns the selected ones of events.
func (f EventFilter) Of(events []Event) []Event {
	return slices.DeleteFunc(slices.Clone(events), func(e Event) bool {
		return len(f.Kinds) > 0 && !slices.Contains(f.Kinds, e.Kind) || f.Host != "" && !e.about(f.Host) || f.Change != "" && e.Change != f.Change
	})
}

// about reports whether the event is about a host: it observed the host, or the command
// changed a key of the host.
func (e Event) about(host string) bool {
	return e.Node == host || e.Audit != nil && slices.ContainsFunc(e.Audit.Keys, func(key string) bool {
		return key == cluster.ReportKey(host) || strings.HasPrefix(key, cluster.HostPrefix(host))
	})
}

// LastEvents reads the last limit events that the filter selects, all when limit is 0,
// and the number of the last event. It fails for a kind that is not known. With
// kv.ErrDamaged and a number above 0 the events are the ones that could be read; its
// other errors are those of ReadEvents.
func LastEvents(ctx context.Context, s *kv.Store, f EventFilter, limit int) ([]Event, uint64, error) {
	read := limit
	if len(f.Kinds) > 0 || f.Host != "" || f.Change != "" {
		read = 0 // how far back such events are is not known
	}
	events, commit, err := ReadEvents(ctx, s, 0, read)
	damaged := errors.Is(err, kv.ErrDamaged) && commit.Seq > 0
	if err != nil && !damaged {
		return nil, 0, err
	}
	if err := checkKinds(f.Kinds, events); err != nil {
		return nil, 0, err
	}
	events = f.Of(events)
	if limit > 0 {
		events = events[max(0, len(events)-limit):]
	}
	return append([]Event{}, events...), commit.Seq, err
}

// checkKinds refuses kinds that are neither known nor among events: a newer jorc may
// write others.
func checkKinds(kinds []string, events []Event) error {
	known := event.Kinds()
	for _, kind := range kinds {
		if slices.Contains(known, kind) || slices.ContainsFunc(events, func(e Event) bool { return e.Kind == kind }) {
			continue
		}
		hint := ""
		if near := text.Closest(kind, known); near != "" {
			hint = fmt.Sprintf("; did you mean %q?", near)
		}
		return fmt.Errorf("events of kind %q: there are none, and no such kind is known%s; known are %s", kind, hint, strings.Join(known, ", "))
	}
	return nil
}

// FollowEvents calls handle with the events after number after, and again whenever
// there are more, until ctx ends or handle returns an error; it returns that.
// ErrEventsGone, with handle called all the same, says that some had gone before they
// could be read. Failures to read are retried; failed, if not nil, is called with
// them.
func FollowEvents(ctx context.Context, s *kv.Store, after uint64, handle func([]Event) error, failed func(error)) error {
	return followBatches(ctx, s, allEvents, after, handle, failed)
}

// FollowAudit is FollowEvents for the audit events alone, which are kept for longer.
func FollowAudit(ctx context.Context, s *kv.Store, after uint64, handle func([]Event) error, failed func(error)) error {
	return followBatches(ctx, s, auditAlone, after, handle, failed)
}

func followBatches(ctx context.Context, s *kv.Store, kept keptEvents, after uint64, handle func([]Event) error, failed func(error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var handled error
	report := func(err error) {
		if err != nil && failed != nil && ctx.Err() == nil {
			failed(err)
		}
	}
	err := kv.NewDoc[Commit](s, keyCommit, journalFormat).Watch(ctx, func(u kv.Update[Commit]) {
		switch {
		case handled != nil:
			return
		case u.Err != nil:
			report(u.Err)
			return
		}
		if u.Entry.Value.Seq < after { // the cluster was deleted and begins again
			after = 0
		}
		if u.Entry.Value.Seq == after {
			return
		}
		events, c, err := retryEvents(ctx, s, kept, after, report)
		if err != nil {
			return // ctx ended
		}
		if kept == allEvents && len(events) > 0 && events[0].Seq > after+1 {
			report(fmt.Errorf("events %d to %d: %w", after+1, events[0].Seq-1, ErrEventsGone))
		}
		after = c.Seq
		if len(events) == 0 {
			return
		}
		if handled = handle(events); handled != nil {
			cancel()
		}
	})
	return cmp.Or(handled, context.Cause(ctx), err)
}

// retryEvents reads the events after number after, again and again until it
// can; what is damaged is left out. It returns ctx's error only.
func retryEvents(ctx context.Context, s *kv.Store, kept keptEvents, after uint64, report func(error)) (events []Event, c Commit, err error) {
	err = concurrency.Retry(ctx, concurrency.NewBackoff(firstReadRetry, lastReadRetry), func(ctx context.Context) error {
		events, c, err = readKept(ctx, s, kept, after, 0)
		report(err)
		if errors.Is(err, kv.ErrDamaged) && c.Seq > 0 {
			return nil
		}
		return err
	}, nil)
	return events, c, err
}
