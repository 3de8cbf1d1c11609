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
	"github.com/jorc/jorc/internal/kv"
)

// ErrNobody: no orchestrator holds the cluster's lock.
var ErrNobody = errors.New("nobody orchestrates the cluster")

// Ask asks for a cycle now and waits until it is over, or discarded because one
// is running. s is the cluster's store; by says who asks. The report is nil when
// the request was discarded. It returns ErrNobody when nobody holds the lock,
// also when it is lost for good meanwhile, ctx's error, or what kv.Doc.Update
// returns.
func Ask(ctx context.Context, s *kv.Store, by string) (*Report, error) {
	return ask(ctx, s, by, takeOver)
}

// takeOver is how long nobody may hold the lock: another takes over within 40 s.
const takeOver = 45 * time.Second

func ask(ctx context.Context, s *kv.Store, by string, patience time.Duration) (*Report, error) {
	if err := somebody(ctx, s); err != nil {
		return nil, err
	}
	r := request{ID: fmt.Sprintf("%016x", rand.Uint64()), At: time.Now().UTC().Truncate(time.Second), By: by}
	doc := newNext(s)
	_, err := doc.Update(ctx, func(old kv.Entry[next]) (next, bool, error) {
		n := old.Value
		n.Requests = append(slices.Clone(n.Requests), r)
		n.Requests = n.Requests[max(0, len(n.Requests)-keptAsked):]
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
	return nil, fmt.Errorf("the cycle is over, but its report %d is not kept any more", a.Report)
}

func somebody(ctx context.Context, s *kv.Store) error {
	_, held, err := cluster.Orchestrator(ctx, s)
	if err == nil && !held {
		return fmt.Errorf("lock %q: %w: start an agent whose configuration has an orchestrator block", s.Path(cluster.OrchestratorLock), ErrNobody)
	}
	return err
}

// await waits for the answer to a request, while nobody holds the lock for no
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
			err := somebody(ctx, s)
			if errors.Is(err, ErrNobody) {
				return Answer{}, err
			}
			if gone = nil; err != nil { // Consul is away: nobody knows
				gone = time.After(patience)
			}
		}
	}
}
