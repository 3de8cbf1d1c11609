package consul

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"golang.org/x/time/rate"

	"github.com/jorc/jorc/internal/concurrency"
)

// Source sends one query; with an index in q it blocks.
type Source[T any] func(ctx context.Context, q Query) (T, Meta, error)

// Update is one result of a watch: an answer or an error.
type Update[T any] struct {
	Value T
	Meta  Meta
	// Reset: the index is lower than that of the last answer, because Consul lost
	// or restored its state, or another Consul answers.
	Reset bool
	// Err is the error of the query; Value is then zero.
	Err error
}

// Watch calls handle with source's answer, and again after each change of its
// index, until ctx ends; then it returns ctx's error. handle also receives
// errors; Watch retries until ctx ends. handle runs in the caller's goroutine.
//
// The rules are those of Consul's documentation of blocking queries and of
// consul-template's watch/view.go: the same index is not a change, a lower index
// starts over, and after any failure the next query has no index, because an
// index above the store's would block until its wait ends. The query after one
// that ended early without a change has no index either: Consul answers like
// that from a store that a restored snapshot has just replaced.
//
// A query without an index is consistent. A server that has just become leader
// answers others before it has replayed its log, so keys and services seem to be
// gone until it has. A query with an index is safe, because it waits for a later
// state; if it is answered with a lower index after all, a consistent query
// decides what is true.
func Watch[T any](ctx context.Context, c *Client, q Query, source Source[T], handle func(Update[T])) error {
	return WatchInTurn(ctx, c, q, nil, source, handle)
}

// WatchInTurn is Watch for what many clients watch, of which one acts: after an outage it
// asks again when other requests of the client are answered, and only after the pause that
// turn then returns. Most of the clients ask when one has acted, and once.
func WatchInTurn[T any](ctx context.Context, c *Client, q Query, turn func() time.Duration, source Source[T], handle func(Update[T])) error {
	leave := c.budget.join()
	defer leave()
	w := watch[T]{
		client: c, query: q, turn: turn, source: source, begun: time.Now(), trips: c.breaker.tripCount(),
		idle: rate.NewLimiter(10, 20), retry: newRetry(),
	}
	for {
		if u, ok := w.poll(ctx); ok {
			handle(u)
		}
		if err := w.wait(ctx); err != nil {
			return err
		}
	}
}

type watch[T any] struct {
	client *Client
	query  Query
	turn   func() time.Duration // nil: the watch takes no turns
	source Source[T]

	index     uint64 // of the next query; 0 reads the current state
	hash      string
	last      uint64 // index of the last good answer
	begun     time.Time
	retry     *concurrency.Backoff
	failed    bool          // the last query failed
	pause     time.Duration // after a failure
	idle      *rate.Limiter // limits queries that return without a change
	unchanged bool          // the last query returned no change
	partial   bool          // the last answer was partial
	lower     bool          // an answer had a lower index, and is to be confirmed
	trips     uint64        // the breaker's count at the last query

	patience  time.Duration // of the next query; zero: the usual one
	content   uint64        // of the last answer
	took      time.Duration // duration of the last query
	blocked   bool          // the last query could block
	waited    bool          // the last query blocked until its wait ended
	early     bool          // the last query blocked and ended before its wait
	doubt     bool          // the last answer was early and unchanged
	idlePause time.Duration // before the next query, after an answer without new content
	level     time.Duration // what idlePause is next
	misses    int           // queries in a row that were sent at once, and answered at once without new content
	afters    int           // queries after a pause that are not followed by one without
}

// partialWait is how long a query blocks while rights are missing: Consul does
// not wake it when they are granted.
const partialWait = 5 * time.Second

// poll sends one query. ok is false if its answer is not an update.
func (w *watch[T]) poll(ctx context.Context) (u Update[T], ok bool) {
	w.unchanged = false
	how, err := w.client.breaker.enter(ctx, w.turn != nil)
	if err != nil {
		return u, false
	}
	if how == asProbe {
		defer w.client.breaker.probed()
	} else if err := concurrency.Sleep(ctx, w.returning(how)); err != nil {
		return u, false
	}
	if n := w.client.breaker.tripCount(); n != w.trips {
		w.trips, w.index, w.hash = n, 0, "" // an outage that another watch met concerns this watch too
	}
	value, meta, err := w.ask(ctx)
	switch {
	case ctx.Err() != nil:
		return u, false
	case errors.Is(err, context.Canceled): // another loop needed its place
		return u, false
	case err != nil:
		if errors.Is(err, errStuck) {
			w.patience = min(2*cmp.Or(w.patience, requestTimeout), mostPatience)
		}
		w.index, w.hash, w.content = 0, "", 0
		w.pause = w.nextPause(err)
		return Update[T]{Err: err}, true
	}
	w.failed, w.pause = false, 0
	if !w.blocked && w.took < requestTimeout/2 {
		w.patience = 0
	}
	w.retry.Reset()
	if meta.Hash != "" {
		ok = meta.Hash != w.hash
		w.hash = meta.Hash
		w.unchanged = !ok
		return Update[T]{Value: value, Meta: meta}, ok
	}
	partial := w.partial
	w.partial = meta.Partial
	known := w.doubt && meta.Content != 0 && meta.Content == w.content
	if (w.index != 0 || known) && meta.Index == w.last && !partial && !w.partial {
		w.unchanged, w.idlePause, w.doubt = true, 0, w.early
		w.index = max(w.last, 1)
		if w.doubt {
			w.index = 0
		}
		return u, false
	}
	w.doubt = false
	reset := meta.Index < w.last || w.lower
	w.lower = reset && w.index != 0
	if w.lower {
		w.index, w.unchanged, w.idlePause = 0, true, 0
		return u, false
	}
	w.idlePause = w.nextIdlePause(meta, reset)
	w.content = meta.Content
	w.last = meta.Index
	w.index = max(meta.Index, 1) // Consul's rule: the index of a blocking query is above zero
	return Update[T]{Value: value, Meta: meta, Reset: reset}, true
}

// returning returns the pause before a query that is not a probe: none, unless there was an outage.
func (w *watch[T]) returning(how entry) time.Duration {
	switch {
	case w.turn != nil && (how == returned || w.client.breaker.tripCount() != w.trips):
		return w.turn()
	case how == returned:
		return rand.N(returnWithin)
	}
	return 0
}

// ask sends one query; a blocking one waits for a place in the budget.
func (w *watch[T]) ask(ctx context.Context) (value T, meta Meta, err error) {
	q := w.query
	q.Index, q.Hash = w.index, w.hash
	q.Consistent = q.Consistent || !q.blocking()
	w.blocked = q.blocking()
	if w.patience > 0 {
		ctx = context.WithValue(ctx, patienceKey{}, w.patience)
	}
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
	if w.partial {
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

// wait pauses before the next query after a failure or an answer without a
// change. After a failure to reach Consul the breaker waits, too.
func (w *watch[T]) wait(ctx context.Context) error {
	if w.pause > 0 {
		return concurrency.Sleep(ctx, w.pause)
	}
	if w.unchanged {
		return w.idle.Wait(ctx)
	}
	if w.idlePause > 0 {
		return concurrency.Sleep(ctx, jitter(w.idlePause))
	}
	return ctx.Err()
}

// Pauses after immediate answers: first a multiple of Consul's time for the answer, then
// longer each time.
const (
	idleShare    = 32
	idleGrowth   = 8
	firstLongest = 4 * time.Second  // the longest pause, doubled with each query at once that was in vain
	maxIdlePause = 16 * time.Second // the longest pause after several of them
	mostMisses   = 4
)

// nextIdlePause returns the pause after an answer. The index of a missing key is
// that of all keys, and the index of a node's checks is that of all checks:
// while others change, a query with an index of before returns immediately with known content. One with the present
// index blocks, and only what it asks for wakes it. So the query after a pause, which finds a later index,
// is followed by another at once. If that returns immediately as well, others change in less time than an answer takes: the pauses
// grow, and ever fewer queries follow at once, because if a thousand hosts did that Consul would do nothing else.
// New content that a query
// finds without having blocked for long says nothing about the others: the pause stays.
func (w *watch[T]) nextIdlePause(meta Meta, reset bool) time.Duration {
	known := meta.Content == w.content
	most := w.query.MaxPause
	if most == 0 {
		most = min(firstLongest<<w.misses, maxIdlePause)
	}
	switch {
	case w.index == 0 || reset || w.waited || meta.Content == 0 || w.took >= most || !known && w.took >= w.level:
		w.level, w.misses, w.afters = 0, 0, 0
		return 0
	case w.idlePause > 0 && w.afters == 0: // its index was of before the pause
		return 0
	case !known:
		return w.level
	case w.idlePause > 0:
		w.afters--
	default:
		w.afters = 1<<w.misses - 1
		w.misses = min(w.misses+1, mostMisses)
	}
	w.level = min(max(idleGrowth*w.level, idleShare*w.took, time.Millisecond), most)
	return w.level
}

// newRetry returns the back-off after failures; nextPause limits its pauses.
func newRetry() *concurrency.Backoff {
	return concurrency.NewBackoff(100*time.Millisecond, time.Minute)
}

// nextPause returns the pause after a failure. It grows up to a limit that
// depends on the kind of failure. The first failure to reach Consul has no pause
// here: the breaker waits.
func (w *watch[T]) nextPause(err error) time.Duration {
	repeated := w.failed
	w.failed = true
	limit := 5 * time.Second
	switch {
	case errors.Is(err, ErrUnreachable) && outage(err):
		limit = time.Second
		if !repeated {
			return 0
		}
	case errors.Is(err, ErrUnreachable):
		limit = 2 * time.Second
	case errors.Is(err, ErrRateLimited):
		limit = 10 * time.Second
	case errors.Is(err, ErrTooLong):
		return jitter(time.Minute) // each attempt reads as much as it may
	case IsPermanent(err):
		limit = time.Minute // Consul may be upgraded
	}
	return min(w.retry.Next(), jitter(limit))
}
