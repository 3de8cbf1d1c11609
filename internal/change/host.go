package change

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
)

// Part is what a host does for one change. Its Host calls the methods, one at a time.
type Part interface {
	// Change is the ID of the change.
	Change() string
	// Look takes over what the host sees, before each decision and after a step that failed: failed is its error.
	Look(s *Seen, failed error)
	// Held is what the host knows of its grant. asks reports whether it has something to find out about it: without that
	// its report is not read.
	Held() (h Held, asks bool)
	// Keep writes down what the host knows from now on, before anything follows from it.
	Keep(h Held) error
	// Lose settles that the report says of an open grant of which the host knows nothing.
	Lose(ctx context.Context, a cluster.Answer) error
	// Says returns what a report says of this part, in place of what d says. It has no effect.
	Says(d cluster.Report) cluster.Report
	// Next decides what follows, where report and record agree.
	Next(s *Seen, now time.Time) Step
}

// Step is what a part does next.
type Step struct {
	Name string                          // for the log
	Do   func(ctx context.Context) error // nil: nothing, until something is new, or Again
	// Again is when to decide again if nothing is new; zero: it is not.
	Again time.Time
}

// Seen is what a host sees of its cluster and of itself.
type Seen struct {
	Grants  kv.Entry[Grants]
	Control kv.Entry[cluster.Control]
	Unknown error // why Grants or Control are not known; nil: they are

	Report cluster.Report // the host's, as it was last read or written
	Known  bool           // Report is
	Reads  int            // counts how often it was read since the host began
	Reset  time.Time      // when Consul's KV last went backwards; zero: not since the host began

	Roles   []string  // of the host, on which freezes depend
	Held    string    // what an operator holds the host for; empty: nothing
	Failing []string  // its checks that fail
	Checked bool      // Failing is known
	Since   time.Time // that no check fails
}

// Healthy reports whether all checks of the host pass.
func (s *Seen) Healthy() bool { return s.Checked && len(s.Failing) == 0 }

// Granted is what the host is granted for a change.
func (s *Seen) Granted(change string) Grant { return s.Grants.Value.Of(change) }

// Answered is what its report says of a change.
func (s *Seen) Answered(change string) cluster.Answer { return s.Report.Answered(change) }

// QuietUntil is until when a host accepts nothing, as Consul's KV went backwards at reset: the orchestrator hears meanwhile what
// the hosts are at, and plans again. That is long ago where reset is zero: the KV did not.
func QuietUntil(reset time.Time) time.Time { return reset.Add(time.Minute) }

// acceptWithin is for how long after it was made a host accepts an offer, by the host's clock. An orchestrator withdraws
// it long before that; Consul may bring it back with the lock of that time.
const acceptWithin = 4 * pace.AnswerWithin

// open reports whether the host is offered g and has not answered. An offer without a session was edited by
// hand: Consul's check of the lock would hold while no orchestrator has it.
func (s *Seen) open(g Grant) bool {
	return g.State == pace.Offered && g.Session != "" && !g.Answered(s.Answered(g.Change))
}

// old reports whether the time in which a host accepts g is over.
func (g Grant) old(now time.Time) bool { return now.Sub(g.Since) >= acceptWithin }

// Accepts reports whether the host can accept g, and from when on: offers that Consul restored wait.
func (s *Seen) Accepts(g Grant, now time.Time) (ok bool, from time.Time) {
	if !s.open(g) || g.old(now) {
		return false, from
	}
	if from = QuietUntil(s.Reset); now.Before(from) {
		return false, from
	}
	return true, time.Time{}
}

// HostOptions are what a Host needs. The functions that watch call handle with what is now and whenever that changes, until
// ctx ends; nil: there is nothing of the kind.
type HostOptions struct {
	Cluster *fleet.Cluster
	Report  *fleet.ReportWriter // the host's
	Roles   func() []string
	Holds   func(ctx context.Context, handle func(held string)) error
	Checks  func(ctx context.Context, handle func(failing []string)) error
	Log     hclog.Logger
}

// Host is a host's side of all changes: what it sees, and the loop by which each part accepts its grants and carries
// them out.
type Host struct {
	o HostOptions

	mu      sync.Mutex
	seen    Seen
	unread  bool // the report is to be read, or read again
	watches [2]error
	news    map[Part]concurrency.Signal // of the parts that are driven
	old     map[string]string           // the offer of each change that was too old, once the log has it
}

// What a Host watches of its cluster.
const (
	watchesGrants = iota
	watchesControl
)

// errNotRead: a watch has not delivered anything yet.
var errNotRead = errors.New("it has not been read yet")

// NewHost returns a Host. It does no I/O.
func NewHost(o HostOptions) *Host {
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	return &Host{o: o, watches: [2]error{errNotRead, errNotRead}, news: map[Part]concurrency.Signal{}, old: map[string]string{}}
}

// Reported is the host's report as it was last read or written; known is false if neither happened.
func (h *Host) Reported() (r cluster.Report, known bool) { return h.o.Report.Seen().Get() }

// Node is the name of the host.
func (h *Host) Node() string { return h.o.Report.Node() }

// Run follows what the host is granted, and what it sees beside that, until ctx ends; then it returns ctx's error.
func (h *Host) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return GrantsAt(h.o.Cluster.Store(), h.Node()).Watch(ctx, func(u kv.Update[Grants]) {
			err := u.Err
			if errors.Is(err, kv.ErrDamaged) { // it is there, and counts as empty
				err = nil
			}
			h.noticed(watchesGrants, err, u.Reset, func(s *Seen) { s.Grants = u.Entry })
		})
	})
	g.Go(func() error {
		return h.o.Cluster.WatchControl(ctx, func(u kv.Update[cluster.Control]) {
			h.noticed(watchesControl, u.Err, u.Reset, func(s *Seen) { s.Control = u.Entry })
			if errors.Is(u.Err, kv.ErrDamaged) { // nothing that disturbs begins
				h.change(func() { h.watches[watchesControl] = u.Err })
			}
		})
	})
	g.Go(func() error { return h.o.Report.Seen().Watch(ctx, func(cluster.Report) { h.wake() }) })
	if h.o.Checks != nil {
		g.Go(func() error { return h.o.Checks(ctx, h.checked) })
	}
	if h.o.Holds != nil {
		g.Go(func() error {
			return h.o.Holds(ctx, func(held string) { h.change(func() { h.seen.Held = held }) })
		})
	}
	return g.Wait()
}

// noticed takes over what a watch delivered. What it delivered before an outage stays known.
func (h *Host) noticed(watch int, err error, reset bool, set func(*Seen)) {
	h.change(func() {
		if err == nil {
			set(&h.seen)
			h.watches[watch] = nil
		} else if h.watches[watch] != nil || IsLost(err) {
			h.watches[watch] = err
		}
	})
	if reset {
		h.Restored()
	}
}

// IsLost reports whether what a watch delivered no longer counts after err: it is not an outage.
func IsLost(err error) bool {
	return errors.Is(err, consul.ErrDenied) || errors.Is(err, kv.ErrNewer) || consul.IsPermanent(err)
}

// Restored notes that Consul's KV went backwards.
func (h *Host) Restored() {
	h.o.Report.Forget()
	h.change(func() { h.unread, h.seen.Reset = true, time.Now() })
}

func (h *Host) checked(failing []string) {
	h.change(func() {
		s := &h.seen
		if len(failing) == 0 && (len(s.Failing) > 0 || !s.Checked) {
			s.Since = time.Now()
		}
		s.Failing, s.Checked = failing, true
	})
}

// change changes what the host sees.
func (h *Host) change(set func()) {
	h.mu.Lock()
	set()
	h.mu.Unlock()
	h.wake()
}

// wake has each part decide again.
func (h *Host) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, news := range h.news {
		news.Notify()
	}
}

// look returns what the host sees now.
func (h *Host) look() *Seen {
	report, known := h.o.Report.Seen().Get()
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.seen
	s.Report, s.Known, s.Failing = report, known && !h.unread, slices.Clone(s.Failing)
	s.Unknown = cmp.Or(h.watches[:]...)
	if h.o.Roles != nil {
		s.Roles = h.o.Roles()
	}
	return &s
}

// Pauses after a step that failed. The packages below wait while Consul does not answer.
const firstRetry, lastRetry = 200 * time.Millisecond, 10 * time.Second

// Drive carries out p until ctx ends; then it returns ctx's error. Run must be running. A host drives each part once
// at a time; news has p decide again.
func (h *Host) Drive(ctx context.Context, p Part, news concurrency.Signal) error {
	h.mu.Lock()
	h.news[p] = news
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.news, p)
	}()
	retry := concurrency.NewBackoff(firstRetry, lastRetry)
	for ctx.Err() == nil {
		s := h.look()
		p.Look(s, nil)
		next := h.next(p, s, time.Now())
		if next.Do == nil {
			retry.Reset()
			_ = news.WaitUntil(ctx, next.Again) // or it is time, or ctx has ended
			continue
		}
		err := next.Do(ctx)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, consul.ErrOutcomeUnknown): // what became of it is read
			h.Reread()
		case err == nil:
			retry.Reset()
		default:
			pause := retry.Next()
			if !errors.Is(err, ErrFollows) {
				h.o.Log.Warn("a step of a change is tried again", "change", p.Change(), "step", next.Name, "error", err, "again_in", pause)
			}
			p.Look(h.look(), err)
			_ = concurrency.Sleep(ctx, pause) // ends with ctx
		}
	}
	return ctx.Err()
}

// next is what p does next: what its report and its record do not agree on comes first.
func (h *Host) next(p Part, s *Seen, now time.Time) Step {
	held, asks := p.Held()
	switch {
	case s.Unknown != nil, !s.Known && !asks:
		return Step{}
	case !s.Known:
		return Step{Name: "read the report", Do: h.Read}
	}
	answer := s.Answered(p.Change())
	switch held.Settle(answer, s.Granted(p.Change())) {
	case AsKnown:
	case Adopted:
		return Step{Name: "take over the acceptance", Do: func(context.Context) error { return p.Keep(held.Accepted()) }}
	case Replaced:
		held.Intent = nil
		return Step{Name: "forget the acceptance", Do: func(context.Context) error { return p.Keep(held) }}
	case Lost:
		return Step{Name: "take over a lost grant", Do: func(ctx context.Context) error {
			h.o.Log.Warn("this host has a grant that it does not know: its record was lost", "change", p.Change(), "grant", answer.ID, "tag", answer.Tag)
			return p.Lose(ctx, answer)
		}}
	case Differs:
		return Step{Name: "report", Do: func(ctx context.Context) error { return h.Write(ctx, p.Says) }}
	}
	if g := s.Granted(p.Change()); s.open(g) && g.old(now) {
		h.ignores(g, now)
	}
	return p.Next(s, now)
}

// ignores says once that an offer is too old to be accepted.
func (h *Host) ignores(g Grant, now time.Time) {
	h.mu.Lock()
	known := h.old[g.Change] == g.ID
	h.old[g.Change] = g.ID
	h.mu.Unlock()
	if !known {
		h.o.Log.Warn("an offer is too old by this host's clock, and is not accepted: compare the clocks of the hosts with 'jorc doctor'",
			"change", g.Change, "grant", g.ID, "age", now.Sub(g.Since).Round(time.Second), "accepted_within", acceptWithin)
	}
}

// ErrFollows: the watches have not delivered yet what is stored, and will. The step is tried again.
var ErrFollows = errors.New("the watches have not delivered yet what is stored")

// errOld: an offer had become too old before its acceptance was sent. It may still be accepted by one that was sent before.
var errOld = fmt.Errorf("%w: the offer is too old by now", ErrFollows)

// errOtherAnswer: the stored report does not have the answer that was decided on.
var errOtherAnswer = errors.New("the report has another answer")

// Accept has the host accept g: the intent is written down, and then accepted in a transaction that holds only while the offer
// does. Where its answer is lost what became of it is read; a late acceptance is the same one. begin is what the report
// says beside the answer from then on, and fence adds what the acceptance depends on beside what all do; nil: nothing.
// Where g cannot be accepted the step waits.
func (h *Host) Accept(p Part, s *Seen, g Grant, begin func(cluster.Report, cluster.Answer) cluster.Report, fence func(*kv.Txn)) Step {
	if ok, from := s.Accepts(g, time.Now()); !ok {
		return Step{Again: from}
	}
	return Step{Name: "accept", Do: func(ctx context.Context) error { return h.accept(ctx, p, s, g, begin, fence) }}
}

func (h *Host) accept(
	ctx context.Context, p Part, s *Seen, g Grant, begin func(cluster.Report, cluster.Answer) cluster.Report, fence func(*kv.Txn),
) error {
	held, _ := p.Held()
	if held.Intent == nil || held.Intent.ID != g.ID {
		held = held.Accepting(g, time.Now())
		if err := p.Keep(held); err != nil {
			return err
		}
	}
	accepted := held.Accepted()
	old, answer := s.Answered(g.Change), accepted.Answer(g.Change)
	_, err := h.o.Report.ChangeFenced(ctx, func(d cluster.Report) (cluster.Report, error) {
		switch d.Answered(g.Change) {
		case old:
		case answer:
			return d, nil
		default:
			return d, errOtherAnswer
		}
		if g.old(time.Now()) {
			return d, errOld
		}
		if begin != nil {
			d = begin(d, answer)
		}
		return d.WithAnswer(answer), nil
	}, func(t *kv.Txn) {
		Accept(t, h.Node(), g, s.Grants.Index, s.Control.Index)
		if fence != nil {
			fence(t)
		}
	})
	switch {
	case errors.Is(err, kv.ErrConflict): // nothing was written, nor will be
		held.Intent = nil
		if err := p.Keep(held); err != nil {
			return err
		}
		return ErrFollows
	case errors.Is(err, errOtherAnswer):
		h.Reread()
		return nil
	case err != nil:
		return err
	}
	h.o.Log.Info("accepted a grant", "change", g.Change, "grant", g.ID, "tag", g.Tag)
	return p.Keep(accepted)
}

// Decline has the host decline g.
func (h *Host) Decline(p Part, g Grant, why string) Step {
	return Step{Name: "decline", Do: func(context.Context) error {
		held, _ := p.Held()
		return p.Keep(held.Declining(g, why))
	}}
}

// Reread has the report read again: it may not be as it was last read or written.
func (h *Host) Reread() {
	h.o.Report.Forget()
	h.change(func() { h.unread = true })
}

// Read reads the report.
func (h *Host) Read(ctx context.Context) error {
	if _, err := h.o.Report.Change(ctx, func(d cluster.Report) (cluster.Report, error) { return d, nil }); err != nil {
		return err
	}
	h.change(func() {
		h.unread = false
		h.seen.Reads++
	})
	return nil
}

// Write changes the report, once what change says of it is on the disk. It returns what fleet.ReportWriter.Change
// does.
func (h *Host) Write(ctx context.Context, change func(cluster.Report) cluster.Report) error {
	_, err := h.o.Report.Change(ctx, func(d cluster.Report) (cluster.Report, error) { return change(d), nil })
	return err
}
