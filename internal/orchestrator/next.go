package orchestrator

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/kv"
)

const (
	keyNext    = cluster.KeyNextCycle
	nextFormat = 1
	keptAsked  = 32 // requests that wait, and answers that are kept
)

// next is what is asked of the orchestrator, and when it is next due after an
// error.
type next struct {
	Requests []request `json:"requests,omitempty"`
	Answers  []Answer  `json:"answers,omitempty"` // the last ones
	Due      time.Time `json:"due,omitzero"`      // after an error
	Error    string    `json:"error,omitempty"`
}

type request struct {
	ID string    `json:"id"`
	At time.Time `json:"at"`
	By string    `json:"by,omitempty"`
}

// Answer is what became of a request for a cycle.
type Answer struct {
	ID        string `json:"id"`
	Discarded bool   `json:"discarded,omitempty"` // one was running already
	Report    uint64 `json:"report,omitempty"`    // the number of its report
}

func newNext(s *kv.Store) kv.Doc[next] { return kv.NewDoc[next](s, keyNext, nextFormat) }

// answer removes requests from n and keeps what became of them.
func (n next) answer(answers []Answer) (next, bool) {
	asked := func(id string) bool {
		return slices.ContainsFunc(n.Requests, func(r request) bool { return r.ID == id })
	}
	answers = slices.DeleteFunc(slices.Clone(answers), func(a Answer) bool { return !asked(a.ID) })
	if len(answers) == 0 {
		return n, false
	}
	n.Requests = slices.DeleteFunc(slices.Clone(n.Requests), func(r request) bool {
		return slices.ContainsFunc(answers, func(a Answer) bool { return a.ID == r.ID })
	})
	all := slices.Concat(n.Answers, answers)
	n.Answers = all[max(0, len(all)-keptAsked):]
	return n, true
}

// requests are those for cycles.
type requests struct {
	doc    kv.Doc[next]
	wanted concurrency.Signal

	mu      sync.Mutex
	running bool
	waiting []string // for the next cycle
	known   map[string]bool
}

func newRequests(s *kv.Store, wanted concurrency.Signal) *requests {
	return &requests{doc: newNext(s), wanted: wanted, known: map[string]bool{}}
}

// watch takes requests, and discards those that come while a cycle runs.
func (q *requests) watch(ctx context.Context, t *tenure) error {
	return q.doc.Watch(ctx, func(u kv.Update[next]) {
		if u.Err != nil {
			if !errors.Is(u.Err, kv.ErrDamaged) {
				return
			}
			t.o.Log.Warn("requests for cycles cannot be read; the document is made anew after the next cycle", "error", u.Err)
			t.changes.Notify()
			return
		}
		discarded := q.take(u.Entry.Value.Requests)
		if len(discarded) == 0 {
			return
		}
		t.setStatus(func(s *Status) { s.Discarded += uint64(len(discarded)) })
		_, err := q.doc.Update(ctx, func(old kv.Entry[next]) (next, bool, error) {
			n, changed := old.Value.answer(discarded)
			return n, changed, nil
		})
		if err != nil && ctx.Err() == nil {
			t.o.Log.Warn("whoever asked for a cycle cannot be told that one was running; the next one tells", "error", err)
			ids := make([]string, len(discarded))
			for i, a := range discarded {
				ids[i] = a.ID
			}
			q.again(ids)
		}
	})
}

// again lets those wait for the next cycle, whenever that is, who could not be
// answered.
func (q *requests) again(ids []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, ids...)
}

// take notes new requests; it returns answers to those that are discarded.
func (q *requests) take(all []request) (discarded []Answer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	present := make(map[string]bool, len(all))
	for _, r := range all {
		present[r.ID] = true
		switch {
		case q.known[r.ID]:
		case q.running:
			discarded = append(discarded, Answer{ID: r.ID, Discarded: true})
		default:
			q.waiting = append(q.waiting, r.ID)
			q.wanted.Notify()
		}
	}
	for id := range q.known {
		if !present[id] && !slices.Contains(q.waiting, id) {
			delete(q.known, id) // answered
		}
	}
	for id := range present {
		q.known[id] = true
	}
	return discarded
}

// begin says that a cycle runs, and returns who waits for it.
func (q *requests) begin() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	ids := q.waiting
	q.running, q.waiting = true, nil
	select {
	case <-q.wanted.C():
	default:
	}
	return ids
}

func (q *requests) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running = false
}

func unreadable(err error) bool { return errors.Is(err, kv.ErrDamaged) || errors.Is(err, kv.ErrNewer) }
