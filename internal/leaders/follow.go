// Package leaders decides who leads a cluster, and lets a host lead while it does. The rules are cluster.Decide; this package
// watches, asks and writes by them. Begin at Election, which decides while it holds a lock, and at Lead, which a host runs.
package leaders

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
)

// Leadership is where a node stands.
type Leadership struct {
	Leading bool
	Leaders []string // as last read
	// Err is why a node that is to lead does not: it has not heard from Consul
	// for this long that another may lead by now.
	Err error
}

// Follow calls handle with node's standing, and whenever that changes, until
// ctx ends; then it returns ctx's error. While Consul can be reached it is
// called within a second of the change. A leader that cannot reach Consul no longer
// leads after Timing.StepDown at the latest, counted from when it last asked a
// question that Consul answered. handle is called by one goroutine at a time and
// should return soon; Lead runs what takes longer.
func Follow(ctx context.Context, c *fleet.Cluster, node string, t cluster.Timing, handle func(Leadership)) error {
	f := &follower{
		node: node, timing: t.WithDefaults(), handle: handle,
		doc: c.Consistent().LeadersDoc(), wake: concurrency.NewSignal(),
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return f.watch(ctx) })
	g.Go(func() error { return f.confirm(ctx) })
	return g.Wait()
}

// Lead runs lead whenever node leads, each time with a context that ends when
// it no longer does, until ctx ends; then it returns ctx's error. The
// node's place among the leaders is not given to another before lead has
// returned, as long as it returns within Timing.StepDown; and when it returned
// that is written to Consul, so that no election waits longer.
func Lead(ctx context.Context, c *fleet.Cluster, node string, t cluster.Timing, lead func(ctx context.Context)) error {
	l := &leadRun{changed: concurrency.NewSignal()}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return Follow(ctx, c, node, t, l.update) })
	g.Go(func() error {
		for {
			if err := l.changed.Wait(ctx); err != nil {
				return err
			}
			if run, stop := l.begin(ctx); run != nil {
				lead(run)
				<-run.Done()
				stop()
				ConfirmStepDown(ctx, c, node, t)
			}
		}
	})
	return g.Wait()
}

// leadRun is what Lead knows of the standing between two runs.
type leadRun struct {
	changed concurrency.Signal

	mu      sync.Mutex
	leading bool
	stop    context.CancelFunc // of the run running
}

func (l *leadRun) update(s Leadership) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leading = s.Leading
	if !s.Leading && l.stop != nil {
		l.stop()
	}
	l.changed.Notify()
}

// begin returns the context of a run; nil when the node does not lead.
func (l *leadRun) begin(ctx context.Context) (context.Context, context.CancelFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leading {
		return nil, nil
	}
	run, stop := context.WithCancel(ctx)
	l.stop = stop
	return run, stop
}

// ConfirmStepDown says that node knows that it was retired. The election waits for a
// node that cannot write this.
func ConfirmStepDown(ctx context.Context, c *fleet.Cluster, node string, t cluster.Timing) {
	ctx, cancel := context.WithTimeout(ctx, t.WithDefaults().StepDown)
	defer cancel()
	_ = c.ConfirmStepDown(ctx, node)
}

// follower is one Follow.
type follower struct {
	node   string
	timing cluster.Timing
	handle func(Leadership)
	doc    kv.Doc[cluster.Leaders]
	wake   concurrency.Signal // something to confirm

	mu       sync.Mutex
	known    bool
	now      kv.Entry[cluster.Leaders]
	until    time.Time // how long to believe now.Value
	err      error     // of the last attempt to confirm
	notified bool
	last     Leadership
	expiry   *time.Timer
}

// watch learns news. A node that is to lead does so once that is confirmed.
func (f *follower) watch(ctx context.Context) error {
	return f.doc.Watch(ctx, func(u kv.Update[cluster.Leaders]) {
		if u.Err != nil {
			return // the confirmations tell
		}
		f.mu.Lock()
		f.known, f.now = true, u.Entry
		f.notify()
		f.mu.Unlock()
		f.wake.Notify()
	})
}

// confirm asks again and again whether the node still leads, while it does.
func (f *follower) confirm(ctx context.Context) error {
	f.mu.Lock()
	f.expiry = time.AfterFunc(time.Hour, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if ctx.Err() == nil {
			f.notify()
		}
	})
	f.expiry.Stop()
	f.mu.Unlock()
	defer f.expiry.Stop()
	for {
		if err := f.wake.Wait(ctx); err != nil {
			return err
		}
		for f.leads() {
			if err := f.ask(ctx); err != nil {
				return err
			}
			if err := concurrency.SleepUnless(ctx, f.wake.C(), f.timing.StepDown/4); err != nil {
				return err
			}
		}
	}
}

func (f *follower) leads() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.known && f.now.Value.Leads(f.node)
}

// ask reads who leads and extends the belief by what Consul answered.
func (f *follower) ask(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, f.timing.StepDown/2)
	defer cancel()
	sent := time.Now()
	e, err := f.doc.Get(short)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	if err != nil {
		return nil
	}
	if e.Index >= f.now.Index { // else the watch knows better by now
		f.now = e
		f.until = sent.Add(f.timing.StepDown - f.timing.StepDown/10)
	}
	f.notify()
	return nil
}

// notify reports the leadership when it changed; with f.mu held.
func (f *follower) notify() {
	now := time.Now()
	s := Leadership{Leaders: f.now.Value.Leader}
	if f.now.Value.Leads(f.node) {
		s.Leading = now.Before(f.until)
		if !s.Leading {
			s.Err = f.err
		}
	}
	switch {
	case !s.Leading:
		if f.expiry != nil {
			f.expiry.Stop()
		}
	case f.expiry != nil:
		f.expiry.Reset(f.until.Sub(now))
	}
	if f.notified && s.Leading == f.last.Leading && slices.Equal(s.Leaders, f.last.Leaders) && (s.Err == nil) == (f.last.Err == nil) {
		return
	}
	f.notified, f.last = true, s
	f.handle(s)
}
