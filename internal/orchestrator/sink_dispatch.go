package orchestrator

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/kv"
)

// Sink takes the events of a cluster, in order, each at least once. It is not
// asked again before it returned. What it returns an error for it is given again.
type Sink interface {
	Name() string
	Send(ctx context.Context, cluster string, events []Event) error
}

const (
	keySinks    = cluster.PrefixEvents + "sinks"
	sinksFormat = 1
	perSend     = 100 // events
	sendTimeout = 15 * time.Second
	firstRetry  = time.Second
	lastRetry   = time.Minute
	// saveInterval is the least time between two writes of the sinks' offsets.
	saveInterval = 5 * time.Second
)

// sinkOffsets say how far each sink is: the next orchestrator continues there.
type sinkOffsets struct {
	Sinks map[string]uint64 `json:"sinks"`
}

// sinkDispatcher brings events to the sinks, without delaying cycles.
type sinkDispatcher struct {
	*Orchestrator
	doc    kv.Doc[sinkOffsets]
	opened chan struct{}
	news   map[string]concurrency.Signal // by sink

	mu      sync.Mutex
	offsets map[string]uint64
	seq     uint64            // of the last event
	saved   map[string]uint64 // at, as it was last read or written
}

func newSinkDispatcher(o *Orchestrator, s *kv.Store) *sinkDispatcher {
	c := &sinkDispatcher{
		Orchestrator: o, doc: kv.NewDoc[sinkOffsets](s, keySinks, sinksFormat), opened: make(chan struct{}),
		news: map[string]concurrency.Signal{}, offsets: map[string]uint64{},
	}
	for _, s := range o.o.Sinks {
		c.news[s.Name()] = concurrency.NewSignal()
	}
	return c
}

// open reads how far the sinks are; new ones begin behind the event seq, and
// that is written down before there are more events.
func (c *sinkDispatcher) open(ctx context.Context, seq uint64) error {
	if len(c.o.Sinks) == 0 {
		return nil
	}
	e, err := c.doc.Update(ctx, func(old kv.Entry[sinkOffsets]) (sinkOffsets, bool, error) {
		p := sinkOffsets{Sinks: maps.Clone(old.Value.Sinks)}
		if p.Sinks == nil {
			p.Sinks = map[string]uint64{}
		}
		changed := false
		for _, s := range c.o.Sinks {
			if at, ok := p.Sinks[s.Name()]; !ok || at > seq { // or the cluster was deleted and begins again
				p.Sinks[s.Name()], changed = seq, true
			}
		}
		return p, changed, nil
	})
	if unreadable(err) {
		err = nil // what was not delivered is again, from the beginning; the document is replaced
		e.Value = sinkOffsets{}
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	for _, s := range c.o.Sinks {
		c.offsets[s.Name()] = e.Value.Sinks[s.Name()]
	}
	c.saved = maps.Clone(c.offsets)
	c.mu.Unlock()
	select {
	case <-c.opened:
	default:
		close(c.opened)
	}
	c.notify(seq)
	return nil
}

// notify says that there are events up to number seq.
func (c *sinkDispatcher) notify(seq uint64) {
	c.mu.Lock()
	c.seq = seq
	c.mu.Unlock()
	for _, news := range c.news {
		news.Notify()
	}
}

func (c *sinkDispatcher) offset(name string) (at, seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offsets[name], c.seq
}

func (c *sinkDispatcher) setOffset(name string, at uint64) {
	c.mu.Lock()
	c.offsets[name] = at
	sinks := maps.Clone(c.offsets)
	c.mu.Unlock()
	c.setStatus(func(s *Status) { s.Sinks = sinks })
}

// run serves the sinks until ctx ends; then it writes down how far they are.
func (c *sinkDispatcher) run(ctx context.Context) error {
	if len(c.o.Sinks) == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.opened:
	}
	g, gctx := errgroup.WithContext(ctx)
	for _, s := range c.o.Sinks {
		g.Go(func() error { return c.serve(gctx, s) })
	}
	g.Go(func() error {
		for concurrency.Sleep(gctx, saveInterval) == nil {
			c.saveOffsets(gctx)
		}
		return gctx.Err()
	})
	err := g.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveInterval)
	defer cancel()
	c.saveOffsets(last)
	return err
}

// saveOffsets writes down how far the sinks are, if that is news.
func (c *sinkDispatcher) saveOffsets(ctx context.Context) {
	c.mu.Lock()
	at, news := maps.Clone(c.offsets), !maps.Equal(c.offsets, c.saved)
	c.mu.Unlock()
	if !news {
		return
	}
	_, err := c.doc.Update(ctx, func(old kv.Entry[sinkOffsets]) (sinkOffsets, bool, error) {
		p := sinkOffsets{Sinks: maps.Clone(old.Value.Sinks)}
		if p.Sinks == nil {
			p.Sinks = map[string]uint64{}
		}
		changed := false
		for name, seq := range at {
			if p.Sinks[name] != seq {
				p.Sinks[name], changed = seq, true
			}
		}
		return p, changed, nil
	})
	if errors.Is(err, kv.ErrDamaged) { // its offsets are lost
		var e kv.Entry[sinkOffsets]
		if e, err = c.doc.Get(ctx); errors.Is(err, kv.ErrDamaged) {
			_, err = c.doc.CompareAndSwap(ctx, e, sinkOffsets{Sinks: at})
		}
	}
	if err != nil && ctx.Err() == nil {
		c.o.Log.Debug("cannot save sink offsets; events may be delivered twice", "error", err)
	}
	if err == nil {
		c.mu.Lock()
		c.saved = at
		c.mu.Unlock()
	}
}

// serve gives one sink what is new, again and again until it takes it.
func (c *sinkDispatcher) serve(ctx context.Context, s Sink) error {
	for {
		at, seq := c.offset(s.Name())
		if at >= seq {
			if err := c.news[s.Name()].Wait(ctx); err != nil {
				return err
			}
			continue
		}
		err := concurrency.Retry(ctx, concurrency.NewBackoff(firstRetry, lastRetry), func(ctx context.Context) error {
			at, _ = c.offset(s.Name())
			return c.deliver(ctx, s, at)
		}, func(err error, pause time.Duration) {
			c.o.Log.Warn("cannot deliver events to a sink; will retry", "sink", s.Name(), "retry_in", pause, "error", err)
		})
		if err != nil {
			return err
		}
	}
}

// deliver gives the sink the events after number at.
func (c *sinkDispatcher) deliver(ctx context.Context, s Sink, at uint64) error {
	events, commit, err := ReadEvents(ctx, c.Orchestrator.store, at, 0)
	switch {
	case err != nil && !errors.Is(err, kv.ErrDamaged):
		return err
	case commit.Seq <= at:
		return errEventsPending
	case err != nil || len(events) == 0 || events[0].Seq > at+1:
		c.o.Log.Warn("events were gone before a sink took them", "sink", s.Name(), "after", at, "error", err)
	}
	for len(events) > 0 {
		n := min(perSend, len(events))
		send, cancel := context.WithTimeout(ctx, sendTimeout)
		err := s.Send(send, c.o.Cluster, events[:n])
		cancel()
		if err != nil {
			return err
		}
		c.setOffset(s.Name(), events[n-1].Seq)
		events = events[n:]
	}
	c.setOffset(s.Name(), commit.Seq) // also when the last ones are gone
	return nil
}

var errEventsPending = errors.New("the events that were journalled cannot be read yet")
