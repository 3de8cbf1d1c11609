package blocker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/catalog"

	"github.com/jorc/jorc/internal/concurrency"
)

// healthTimeout is how long the follower waits for the first answer of the health
// API; after it DNS alone decides.
const healthTimeout = time.Second

// follower keeps the State of one need current.
type follower struct {
	b       *Blocker
	need    Need
	name    string // in DNS; empty if DNS is not queried
	query   ServiceQuery
	watched bool

	start  time.Time
	facts  facts
	pace   pace
	ready  bool // the health API has enough instances
	redial redialing
	state  State
	emit   func(State)
}

// redialing schedules the next dials.
type redialing struct {
	next    time.Time
	backoff *concurrency.Backoff
}

func (b *Blocker) follower(n Need, dnsOnly bool, emit func(State)) (*follower, error) {
	f := &follower{b: b, need: n, emit: emit, start: time.Now(), state: State{Need: n}}
	f.redial.backoff = concurrency.NewBackoff(firstRedial, slowRedial)
	if n.For != catalog.Addressable {
		name, err := n.Target.DNSName()
		if err != nil {
			return nil, err
		}
		f.name = name
	}
	if b.health != nil && !dnsOnly {
		f.query, f.watched = n.Target.service()
	}
	f.facts.watched = f.watched
	return f, nil
}

// run follows until ctx ends.
func (f *follower) run(ctx context.Context) {
	news := newMailbox()
	if f.watched {
		watching := make(chan struct{})
		go func() {
			defer close(watching)
			f.b.watchHealth(ctx, f.query, news)
		}()
		defer func() { <-watching }()
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for handled := func() {}; ; {
		f.step(ctx)
		handled()
		handled = func() {}
		timer.Reset(time.Until(f.due()))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-news.changed.C():
			var h healthFacts
			h, handled = news.take()
			f.updateHealth(h)
		}
	}
}

// step sends the DNS query and the dials that are due, and updates the state.
func (f *follower) step(ctx context.Context) {
	now := time.Now()
	if f.name != "" && !now.Before(f.pace.due()) {
		f.ask(ctx)
	}
	f.dial(ctx, now)
	if ctx.Err() != nil {
		return // failures after the end of ctx have no meaning
	}
	f.conclude()
}

// ask queries DNS.
func (f *follower) ask(ctx context.Context) {
	d, cost := f.b.askDNS(ctx, f.need, f.name)
	f.facts.dns = d
	f.pace.asked(time.Now(), cost)
	f.redial.next = time.Time{}
}

// updateHealth stores an answer of the health API.
func (f *follower) updateHealth(h healthFacts) {
	f.facts.health = h
	ready := h.known && h.err == nil && h.count(f.need) >= f.need.Target.Count
	if ready == f.ready {
		return
	}
	f.ready = ready
	if ready != f.enough() {
		f.pace.expectChange()
	}
}

// dial checks which of the functional endpoints are reachable.
func (f *follower) dial(ctx context.Context, now time.Time) {
	if f.need.For != catalog.Reachable || now.Before(f.redial.next) {
		return
	}
	found, _ := f.facts.candidates(f.need)
	if len(found) < f.need.Target.Count {
		f.facts.reached = reached{}
		f.redial.backoff.Reset()
		f.redial.next = now.Add(slowRedial)
		return
	}
	f.facts.reached = reach(ctx, &f.b.dialer, found, f.need.Target.Count)
	if f.facts.reached.count >= f.need.Target.Count {
		f.redial.backoff.Reset()
		f.redial.next = now.Add(slowRedial)
		return
	}
	f.redial.next = time.Now().Add(f.redial.backoff.Next())
}

// conclude computes the state, and emits it if it has changed.
func (f *follower) conclude() {
	f.facts.waiting = f.waiting()
	s := classify(f.need, f.facts)
	s.Answered = s.Answered || f.state.Answered
	s.Since = f.state.Since
	if s.Since.IsZero() || s.Satisfied != f.state.Satisfied {
		s.Since = time.Now()
	}
	if f.enough() == f.ready {
		f.pace.settle(s.Satisfied) // the health API reports every change
	} else {
		f.pace.sure = false
	}
	if f.state.Since.IsZero() || !s.same(f.state) {
		f.state = s
		f.emit(s)
	}
}

// enough reports whether the target has as many functional instances as needed.
func (f *follower) enough() bool {
	found, _ := f.facts.candidates(f.need)
	return len(found) >= f.need.Target.Count
}

func (f *follower) waiting() bool {
	h := f.facts.health
	return f.watched && !h.known && !h.denied && h.err == nil && time.Since(f.start) < healthTimeout
}

// due returns the time of the next step if the health API reports no change.
func (f *follower) due() time.Time {
	at := time.Now().Add(time.Hour)
	if f.name != "" {
		at = earlier(at, f.pace.due())
	}
	if f.need.For == catalog.Reachable {
		at = earlier(at, f.redial.next)
	}
	if f.facts.waiting {
		at = earlier(at, f.start.Add(healthTimeout))
	}
	return at
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// askDNS queries DNS once; cost is the number of queries.
func (b *Blocker) askDNS(ctx context.Context, n Need, name string) (d dnsFacts, cost int) {
	d.asked = true
	if n.Target.Name == "" || n.For == catalog.Reachable {
		answer, err := b.dns.SRV(ctx, name)
		d.err = err
		if err == nil {
			d.addSRV(answer)
		}
		return d, 1
	}
	for _, v6 := range []bool{false, true} {
		cost++
		answer, err := b.dns.Addresses(ctx, name, v6)
		if err == nil {
			d.addAddresses(answer)
		} else if d.err == nil {
			d.err = err
		}
		// A name that does not exist has no addresses of the other kind either.
		if len(d.found) >= n.Target.Count || errors.Is(err, catalog.ErrNXDomain) || ctx.Err() != nil {
			break
		}
	}
	if len(d.found) > 0 {
		d.err = nil
	}
	return d, cost
}

// DNS is queried at most once a second while the health API reports no change.
// After a change DNS may lag a little: it is queried more often for a short time.
const (
	idlePause  = time.Second
	sureFactor = 10 // a satisfied need that is watched is queried this much less often
	eagerTries = 9
	firstPause = time.Millisecond
)

// pace decides when to query DNS next. The zero pace is due at once.
type pace struct {
	last  time.Time
	cost  int // queries of the last step
	eager int // quick queries left
	pause time.Duration
	sure  bool
}

// asked records a step of cost queries.
func (p *pace) asked(now time.Time, cost int) {
	p.last, p.cost = now, cost
	if p.eager > 0 {
		p.eager--
		p.pause = max(2*p.pause, firstPause)
	}
}

// expectChange starts quick queries, because DNS is about to change its answer.
func (p *pace) expectChange() { p.eager, p.pause = eagerTries, 0 }

// settle ends quick queries, because DNS has the expected answer; sure means that
// the health API will report the next change.
func (p *pace) settle(sure bool) { p.eager, p.sure = 0, sure }

// due returns the time of the next query.
func (p *pace) due() time.Time {
	switch {
	case p.last.IsZero():
		return time.Time{}
	case p.eager > 0:
		return p.last.Add(p.pause)
	case p.sure:
		return p.last.Add(sureFactor * idlePause)
	default:
		return p.last.Add(time.Duration(max(p.cost, 1)) * idlePause)
	}
}

const (
	dialTimeout = time.Second
	maxDials    = 64
	firstRedial = 20 * time.Millisecond
	slowRedial  = time.Second
)

// reached is the outcome of dialing endpoints.
type reached struct {
	count  int     // accepted a connection
	failed []error // of the other endpoints, in the order of failure
}

// reach dials endpoints until want of them have accepted a connection.
func reach(ctx context.Context, d *net.Dialer, endpoints []endpoint, want int) reached {
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	var mu sync.Mutex
	var r reached
	var g errgroup.Group
	g.SetLimit(maxDials)
	for _, e := range endpoints {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			err := dial(ctx, d, e)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				r.count++
				if r.count >= want {
					enough()
				}
			case ctx.Err() == nil:
				r.failed = append(r.failed, err)
			}
			return nil
		})
	}
	_ = g.Wait() // r has all results
	return r
}

func dial(ctx context.Context, d *net.Dialer, e endpoint) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := d.DialContext(ctx, "tcp", e.String())
	if err != nil {
		return fmt.Errorf("%v: %w", e, cause(err))
	}
	return conn.Close()
}

// cause removes the address that net puts in front of the cause.
func cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		if op.Timeout() {
			return errors.New("no answer")
		}
		return op.Err
	}
	return err
}
