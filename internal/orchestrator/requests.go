package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
)

const (
	keyNext      = cluster.KeyNextCycle
	nextFormat   = 1
	keptRequests = 32 // requests that wait, and answers that are kept
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
	n.Answers = all[max(0, len(all)-keptRequests):]
	return n, true
}

// requests are those for cycles.
type requests struct {
	doc       kv.Doc[next]
	requested concurrency.Signal

	mu      sync.Mutex
	running bool
	waiting []string // for the next cycle
	known   map[string]bool
}

func newRequests(s *kv.Store, wanted concurrency.Signal) *requests {
	return &requests{doc: newNext(s), requested: wanted, known: map[string]bool{}}
}

// watch takes requests, and discards the ones that come while a cycle runs.
func (q *requests) watch(ctx context.Context, t *term) error {
	return q.doc.Watch(ctx, func(u kv.Update[next]) {
		if u.Err != nil {
			if !errors.Is(u.Err, kv.ErrDamaged) {
				return
			}
			t.o.Log.Warn("requests for cycles cannot be read; the document is made anew after the next cycle", "error", u.Err)
			t.changes.Notify()
			return
		}
		discarded := q.accept(u.Entry.Value.Requests)
		if len(discarded) == 0 {
			return
		}
		t.setStatus(func(s *Status) { s.Discarded += uint64(len(discarded)) })
		_, err := q.doc.Update(ctx, func(old kv.Entry[next]) (next, bool, error) {
			n, changed := old.Value.answer(discarded)
			return n, changed, nil
		})
		if err != nil && ctx.Err() == nil {
			t.o.Log.Warn("requests for a cycle are not answered yet: a cycle was running; the next cycle answers them", "error", err)
			ids := make([]string, len(discarded))
			for i, a := range discarded {
				ids[i] = a.ID
			}
			q.requeue(ids)
		}
	})
}

// requeue lets those wait for the next cycle, whenever that is, who could not be
// answered.
func (q *requests) requeue(ids []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, ids...)
}

// accept notes new requests; it returns answers to the ones that are discarded.
func (q *requests) accept(all []request) (discarded []Answer) {
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
			q.requested.Notify()
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
	case <-q.requested.C():
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

// ErrNoOrchestrator: no orchestrator holds the cluster's lock.
var ErrNoOrchestrator = errors.New("the cluster has no orchestrator")

// Ask asks for a cycle now and waits until it is over, or discarded because one
// is running. s is the cluster's store; by says who asks. The report is nil when
// the request was discarded. It returns ErrNoOrchestrator when the lock is free,
// also when it is lost for good meanwhile, ctx's error, or what kv.Doc.Update
// returns.
func Ask(ctx context.Context, s *kv.Store, by string) (*Report, error) {
	return ask(ctx, s, by, takeOverTimeout)
}

// takeOverTimeout is for how long the lock may be free: another orchestrator takes it within 40 s.
const takeOverTimeout = 45 * time.Second

func ask(ctx context.Context, s *kv.Store, by string, patience time.Duration) (*Report, error) {
	if err := checkOrchestrated(ctx, s); err != nil {
		return nil, err
	}
	r := request{ID: fmt.Sprintf("%016x", rand.Uint64()), At: time.Now().UTC().Truncate(time.Second), By: by}
	doc := newNext(s)
	_, err := doc.Update(ctx, func(old kv.Entry[next]) (next, bool, error) {
		n := old.Value
		n.Requests = append(slices.Clone(n.Requests), r)
		n.Requests = n.Requests[max(0, len(n.Requests)-keptRequests):]
		return n, true, nil
	})
	if err != nil {
		return nil, err
	}
	a, err := await(ctx, s, doc, r.ID, patience)
	if err != nil || a.Discarded {
		return nil, err
	}
	reports, err := ReadReports(ctx, s)
	if err != nil {
		return nil, err
	}
	for i := range reports {
		if reports[i].Number == a.Report {
			return &reports[i], nil
		}
	}
	return nil, fmt.Errorf("the cycle is over, but its report %d is no longer kept", a.Report)
}

func checkOrchestrated(ctx context.Context, s *kv.Store) error {
	_, held, err := fleet.Orchestrator(ctx, s)
	if err == nil && !held {
		return fmt.Errorf("lock %q: %w: start an agent with an orchestrator block", s.Path(cluster.OrchestratorLock), ErrNoOrchestrator)
	}
	return err
}

// await waits for the answer to a request, while the lock is free for no
// longer than patience.
func await(ctx context.Context, s *kv.Store, doc kv.Doc[next], id string, patience time.Duration) (Answer, error) {
	watch, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	answered, held := make(chan Answer, 1), make(chan bool)
	watching.Go(func() {
		_ = doc.Watch(watch, func(u kv.Update[next]) {
			i := slices.IndexFunc(u.Entry.Value.Answers, func(a Answer) bool { return a.ID == id })
			if i < 0 {
				return
			}
			select {
			case answered <- u.Entry.Value.Answers[i]:
			default: // it was told already
			}
		}) // ends with watch
	})
	watching.Go(func() {
		_ = kv.NewText(s, cluster.OrchestratorLock).Watch(watch, func(u kv.Update[string]) {
			if u.Err != nil {
				return // nothing is known of the holder then
			}
			select {
			case held <- u.Entry.Session != "":
			case <-watch.Done():
			}
		}) // ends with watch
	})
	var gone <-chan time.Time
	for {
		select {
		case a := <-answered:
			return a, nil
		case <-ctx.Done():
			return Answer{}, ctx.Err()
		case h := <-held:
			if h {
				gone = nil
			} else if gone == nil {
				gone = time.After(patience)
			}
		case <-gone:
			err := checkOrchestrated(ctx, s)
			if errors.Is(err, ErrNoOrchestrator) {
				return Answer{}, err
			}
			if gone = nil; err != nil { // Consul is away: the holder is unknown
				gone = time.After(patience)
			}
		}
	}
}
