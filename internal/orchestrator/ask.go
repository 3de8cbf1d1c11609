package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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
	a, err := await(ctx, s, doc, r.ID)
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

// await waits for the answer to a request. A holder that is gone is waited for
// as long as another takes over at the latest.
func await(ctx context.Context, s *kv.Store, doc kv.Doc[next], id string) (a Answer, err error) {
	const takeOver, look = 45 * time.Second, 5 * time.Second
	watch, cancel := context.WithCancel(ctx)
	defer cancel()
	answered := make(chan Answer, 1)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		_ = doc.Watch(watch, func(u kv.Update[next]) {
			for _, a := range u.Entry.Value.Answers {
				if a.ID == id {
					select {
					case answered <- a:
					default:
					}
				}
			}
		}) // ends with watch
	}()
	defer func() { cancel(); <-watching }()
	tick := time.NewTicker(look)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case a := <-answered:
			return a, nil
		case <-ctx.Done():
			return a, ctx.Err()
		case <-tick.C:
			err := somebody(ctx, s)
			if err == nil {
				last = time.Now()
			} else if errors.Is(err, ErrNobody) && time.Since(last) > takeOver {
				return a, err
			}
		}
	}
}
