package consul

import (
	"context"
	"errors"
	"time"

	"golang.org/x/time/rate"
)

// Source asks Consul once; with an index in q it blocks.
type Source[T any] func(ctx context.Context, q Query) (T, Meta, error)

// Update is one turn of a watch: an answer, or why there is none.
type Update[T any] struct {
	Value T
	Meta  Meta
	// Reset: the index went backwards since the last answer, so Consul lost or
	// restored its state, or another Consul answers now.
	Reset bool
	// Err is the failure that keeps the watch from its answer; Value is then zero.
	Err error
}

// Watch calls handle with source's answer, and again each time its index
// changed, until ctx ends; then it returns ctx's error. Failures are handed to
// handle too and retried without end. handle runs in the caller's goroutine.
//
// The rules are those of Consul's documentation of blocking queries and of
// consul-template's watch/view.go: the same index is no change, a lower index
// starts over, and after any failure the next query carries no index, since an
// index above the store's would block until its wait ends. So does the query
// after one that ended early without a change: with those Consul answers from
// the store that a restored snapshot has just replaced.
func Watch[T any](ctx context.Context, c *Client, q Query, source Source[T], handle func(Update[T])) error {
	leave := c.budget.join()
	defer leave()
	w := watch[T]{client: c, query: q, source: source, idle: rate.NewLimiter(10, 20), begun: time.Now(), shut: c.gate.shutTimes()}
	for {
		if u, ok := w.turn(ctx); ok {
			handle(u)
		}
		if err := w.rest(ctx); err != nil {
			return err
		}
	}
}

type watch[T any] struct {
	client *Client
	query  Query
	source Source[T]

	index uint64 // for the next query; 0 asks for the present state
	hash  string
	last  uint64 // of the last good answer
	begun time.Time
	pause time.Duration
	idle  *rate.Limiter // bounds queries that return without news
	dull  bool          // the last turn brought no news
	part  bool          // the last answer was partial
	shut  uint64        // how often the gate had been shut at the last turn

	content uint64        // of the last answer
	took    time.Duration // for the last answer
	waited  bool          // the last query blocked until its wait ended
	early   bool          // the last query blocked, and ended before its wait did
	doubt   bool          // the last answer was the known one, though early
	calm    time.Duration // the pause after an answer at once that brought nothing new
}

// partialWait is how long a query blocks while rights are missing: Consul does
// not wake it up when they are granted.
const partialWait = 5 * time.Second

// turn asks once. ok is false when there is nothing to tell.
func (w *watch[T]) turn(ctx context.Context) (u Update[T], ok bool) {
	w.dull = false
	leave, err := w.client.gate.enter(ctx)
	if err != nil {
		return u, false
	}
	defer leave()
	if n := w.client.gate.shutTimes(); n != w.shut {
		w.shut, w.index, w.hash = n, 0, "" // another watch's failure is one of this watch too
	}
	value, meta, err := w.ask(ctx)
	switch {
	case ctx.Err() != nil:
		return u, false
	case errors.Is(err, context.Canceled): // its place was wanted back
		return u, false
	case err != nil:
		w.index, w.hash, w.content = 0, "", 0
		w.pause = nextPause(w.pause, err)
		return Update[T]{Err: err}, true
	}
	w.pause = 0
	if meta.Hash != "" {
		ok = meta.Hash != w.hash
		w.hash = meta.Hash
		w.dull = !ok
		return Update[T]{Value: value, Meta: meta}, ok
	}
	part := w.part
	w.part = meta.Partial
	known := w.doubt && meta.Content != 0 && meta.Content == w.content
	if (w.index != 0 || known) && meta.Index == w.last && !part && !w.part {
		w.dull, w.calm, w.doubt = true, 0, w.early
		w.index = max(w.last, 1)
		if w.doubt {
			w.index = 0
		}
		return u, false
	}
	w.doubt = false
	reset := meta.Index < w.last
	w.calm = w.nextCalm(meta, reset)
	w.content = meta.Content
	w.last = meta.Index
	w.index = max(meta.Index, 1) // Consul's rule: an index to wait with is above zero
	return Update[T]{Value: value, Meta: meta, Reset: reset}, true
}

// ask takes a place in the budget for a query that blocks.
func (w *watch[T]) ask(ctx context.Context) (value T, meta Meta, err error) {
	q := w.query
	q.Index, q.Hash = w.index, w.hash
	begin := time.Now()
	defer func() {
		w.took = time.Since(begin)
		w.waited = q.blocking() && w.took > q.Wait/2
		w.early = q.blocking() && w.took < q.Wait
	}()
	if !q.blocking() {
		return w.source(ctx, q)
	}
	want := waitAt(time.Since(w.begun))
	if w.part {
		want = min(want, partialWait)
	}
	ctx, wait, release, err := w.client.budget.acquire(ctx, want)
	if err != nil {
		return value, meta, err
	}
	defer release()
	q.Wait, begin = wait, time.Now()
	return w.source(ctx, q)
}

// rest keeps a watch without news, or with a failure of its own, from
// hammering Consul. Failures to reach it are paced by the gate too.
func (w *watch[T]) rest(ctx context.Context) error {
	if w.pause > 0 {
		return sleep(ctx, jitter(w.pause))
	}
	if w.dull {
		return w.idle.Wait(ctx)
	}
	if w.calm > 0 {
		return sleep(ctx, jitter(w.calm))
	}
	return ctx.Err()
}

// Pauses after answers that come at once and bring nothing new: at first so many
// times as long as Consul took, then longer each time.
const (
	calmShare   = 8
	calmGrowth  = 4
	longestCalm = 4 * time.Second
)

// nextCalm is the pause after an answer. The index of a missing key is that of
// all keys, that of a node's checks that of all checks: while others change, a
// query is answered at once with what is known already. A thousand hosts that
// ask again at once keep Consul busy with nothing else, and the busier it is the
// surer something changed meanwhile.
func (w *watch[T]) nextCalm(meta Meta, reset bool) time.Duration {
	if w.index == 0 || reset || w.waited || meta.Content == 0 || meta.Content != w.content {
		return 0
	}
	return min(max(calmGrowth*w.calm, calmShare*w.took, time.Millisecond), longestCalm)
}

// nextPause grows from 100 ms to a bound that depends on the kind of failure.
// The first failure to reach Consul is left to the gate.
func nextPause(pause time.Duration, err error) time.Duration {
	limit, first := 5*time.Second, 100*time.Millisecond
	switch {
	case errors.Is(err, ErrUnreachable) && outage(err):
		limit = time.Second
		if pause == 0 {
			return time.Nanosecond
		}
	case errors.Is(err, ErrUnreachable):
		limit = 2 * time.Second
	case errors.Is(err, ErrRateLimited):
		limit = 10 * time.Second
	}
	return min(max(2*pause, first), limit)
}
