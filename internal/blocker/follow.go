package blocker

import (
	"context"
	"errors"
	"time"

	"github.com/jorc/jorc/internal/catalog"
)

// patience is how long a first answer of the health API is waited for before
// DNS alone decides.
const patience = time.Second

// follower keeps the State of one need true.
type follower struct {
	b       *Blocker
	need    Need
	name    string // in DNS; empty when DNS is not asked
	query   ServiceQuery
	watched bool

	start  time.Time
	facts  facts
	pace   pace
	ready  bool // the health API counts enough
	redial redialing
	state  State
	emit   func(State)
}

// redialing is when to dial again.
type redialing struct {
	next  time.Time
	pause time.Duration
}

func (b *Blocker) follower(n Need, dnsOnly bool, emit func(State)) (*follower, error) {
	f := &follower{b: b, need: n, emit: emit, start: time.Now(), state: State{Need: n}}
	if n.For != Addressable {
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
	for {
		f.turn(ctx)
		timer.Reset(time.Until(f.due()))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-news.changed:
			f.hear(news.take())
		}
	}
}

// turn asks and dials what is due, and tells what came of it.
func (f *follower) turn(ctx context.Context) {
	now := time.Now()
	if f.name != "" && !now.Before(f.pace.due()) {
		f.ask(ctx)
	}
	f.dial(ctx, now)
	if ctx.Err() != nil {
		return // what failed then says nothing
	}
	f.conclude()
}

// ask puts the question to DNS.
func (f *follower) ask(ctx context.Context) {
	d, cost := f.b.askDNS(ctx, f.need, f.name)
	f.facts.dns = d
	f.pace.asked(time.Now(), cost)
	f.redial.next = time.Time{}
}

// hear takes in what the health API said.
func (f *follower) hear(h healthFacts) {
	f.facts.health = h
	ready := h.known && h.err == nil && h.count(f.need) >= f.need.Target.Count
	if ready == f.ready {
		return
	}
	f.ready = ready
	if ready != f.enough() {
		f.pace.hurry()
	}
}

// dial finds out which of the functional endpoints are reachable.
func (f *follower) dial(ctx context.Context, now time.Time) {
	if f.need.For != Reachable || now.Before(f.redial.next) {
		return
	}
	found, _ := f.facts.candidates(f.need)
	if len(found) < f.need.Target.Count {
		f.facts.reached = reached{}
		f.redial = redialing{next: now.Add(slowRedial)}
		return
	}
	f.facts.reached = reach(ctx, &f.b.dialer, found, f.need.Target.Count)
	if f.facts.reached.count >= f.need.Target.Count {
		f.redial = redialing{next: now.Add(slowRedial)}
		return
	}
	f.redial.pause = min(max(2*f.redial.pause, firstRedial), slowRedial)
	f.redial.next = time.Now().Add(f.redial.pause)
}

// conclude judges, and tells when something is new.
func (f *follower) conclude() {
	f.facts.patient = f.patient()
	s := judge(f.need, f.facts)
	s.Answered = s.Answered || f.state.Answered
	s.Since = f.state.Since
	if s.Since.IsZero() || s.Satisfied != f.state.Satisfied {
		s.Since = time.Now()
	}
	if f.enough() == f.ready {
		f.pace.settle(s.Satisfied) // the health API tells of any change
	} else {
		f.pace.sure = false
	}
	if f.state.Since.IsZero() || !s.same(f.state) {
		f.state = s
		f.emit(s)
	}
}

// enough tells whether there are as many functional instances as needed.
func (f *follower) enough() bool {
	found, _ := f.facts.candidates(f.need)
	return len(found) >= f.need.Target.Count
}

func (f *follower) patient() bool {
	h := f.facts.health
	return f.watched && !h.known && !h.denied && h.err == nil && time.Since(f.start) < patience
}

// due is when there is something to do without news.
func (f *follower) due() time.Time {
	at := time.Now().Add(time.Hour)
	if f.name != "" {
		at = earlier(at, f.pace.due())
	}
	if f.need.For == Reachable {
		at = earlier(at, f.redial.next)
	}
	if f.facts.patient {
		at = earlier(at, f.start.Add(patience))
	}
	return at
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// askDNS asks once; cost is how many questions that took.
func (b *Blocker) askDNS(ctx context.Context, n Need, name string) (d dnsFacts, cost int) {
	d.asked = true
	if n.Target.Name == "" || n.For == Reachable {
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
