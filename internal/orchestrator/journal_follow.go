package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/kv"
)

// ErrGone: events that were asked for are not kept any more.
var ErrEventsGone = errors.New("not kept any more")

// Pauses between two attempts to read events that were committed.
const (
	firstReadRetry = 100 * time.Millisecond
	lastReadRetry  = 10 * time.Second
)

// Follow calls handle with the events after number after, and again whenever
// there are more, until ctx ends or handle returns an error; it returns that.
// ErrGone, with handle called all the same, says that some had gone before they
// could be read. Failures to read are retried; tell, if not nil, is told of them.
func FollowEvents(ctx context.Context, s *kv.Store, after uint64, handle func([]Event) error, tell func(error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	report := func(err error) {
		if err != nil && tell != nil && ctx.Err() == nil {
			tell(err)
		}
	}
	err := kv.NewDoc[Commit](s, keyCommit, journalFormat).Watch(ctx, func(u kv.Update[Commit]) {
		if u.Err != nil {
			report(u.Err)
			return
		}
		if u.Entry.Value.Seq < after { // the cluster was deleted and begins anew
			after = 0
		}
		if u.Entry.Value.Seq == after {
			return
		}
		events, c, err := retryEvents(ctx, s, after, report)
		if err != nil {
			return // ctx ended
		}
		if len(events) > 0 && events[0].Seq > after+1 {
			report(fmt.Errorf("events %d to %d: %w", after+1, events[0].Seq-1, ErrEventsGone))
		}
		after = c.Seq
		if len(events) == 0 {
			return
		}
		if err := handle(events); err != nil {
			cancel(err)
		}
	})
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// eventsAtLast reads the events after number after, again and again until it
// can; what is damaged is left out. It returns ctx's error only.
func retryEvents(ctx context.Context, s *kv.Store, after uint64, report func(error)) ([]Event, Commit, error) {
	for retry := firstReadRetry; ; retry = min(2*retry, lastReadRetry) {
		events, c, err := ReadEvents(ctx, s, after, 0)
		report(err)
		if err == nil || errors.Is(err, kv.ErrDamaged) && c.Seq > 0 {
			return events, c, nil
		}
		if err := concurrency.Sleep(ctx, retry); err != nil {
			return nil, Commit{}, err
		}
	}
}
