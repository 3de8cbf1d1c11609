package lease

import (
	"context"
	"crypto/rand"
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/text"
)

// Maintenance takes this host out of service in Consul and back. Only what jorc itself began is
// lifted; repeating either is not an error and writes nothing.
type Maintenance interface {
	Begin(ctx context.Context, reason string) error
	Lift(ctx context.Context) error
}

// Part is this host's part in its cluster, without which no lease is granted.
type Part struct {
	Cluster *fleet.Cluster
	Host    *change.Host
	// Take returns once no task of a job runs on this host; none begins until release is called.
	Take func(ctx context.Context) (release func(), err error)
	// Covers says whether a job has taken this host out of service for its own time; known is false for a
	// job that does not exist.
	Covers func(job string) (covers, known bool)
}

// Options are what a Host needs.
type Options struct {
	StateDir    string // the record of the lease is its file lease.json
	Maintenance Maintenance
	// Least is the least time in health before a lease is over; 0: DefaultMinHealthy.
	Least time.Duration
	Clock durable.Clock // of the host
	Log   hclog.Logger
}

// Host is this host's side of its lease. What it has is on the disk and in Consul, so it outlives the
// process and the boot.
type Host struct {
	o      Options
	doc    durable.Doc[record]
	news   concurrency.Signal
	status concurrency.Latest[Status]
	joined concurrency.Latest[bool] // whether a part runs

	mu      sync.Mutex
	rec     record
	loaded  bool
	part    *Part // nil: no part runs
	calls   int   // open ones of rec.ID
	called  time.Time
	restart bool // rec is of the process before, and no call of rec.ID has come since
	ending  bool // End was called
	seen    change.Seen
	alone   time.Time // since when no orchestrator runs; zero: one does, or that is not known
	back    time.Time // since when the host is back in service; zero: it is not
	release func()    // lets jobs run again; nil: they may
	taking  time.Time // since when Take is being called; zero: it is not
}

// NewHost returns a Host. It does no I/O.
func NewHost(o Options) *Host {
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	if o.Least == 0 {
		o.Least = DefaultMinHealthy
	}
	return &Host{o: o, doc: durable.NewDoc[record](filepath.Join(o.StateDir, "lease.json"), recordFormat), news: concurrency.NewSignal(), called: time.Now()}
}

// Begin implements Holder.
func (h *Host) Begin(ctx context.Context, r Request, told func(Status)) (Status, error) {
	if err := r.Check(); err != nil {
		return Status{}, err
	}
	h.rejoin(ctx)
	part := h.running()
	switch {
	case part == nil:
		return Status{}, &Refusal{Kind: NotMember, Reason: "this host is no member of its cluster, or its agent has not joined it yet", Final: true}
	case r.Job != "":
		if covers, known := part.Covers(r.Job); known && covers {
			return Status{State: Covered, ID: r.ID, Reason: "job " + r.Job + " has taken this host out of service"}, nil
		}
		return Status{}, &Refusal{Kind: InsideJob, Final: true, Reason: "job " + text.Line(r.Job, MostID) + " asks for a lease of the host that it holds: set 'disturbs = true' in its workflow, and the run itself takes the host out of service"}
	}
	if h.asked(r.ID) {
		// It needs no orchestrator for what it has, and waits for the next one otherwise.
	} else if is, err := fleet.Orchestrated(ctx, part.Cluster.Store()); err != nil {
		return Status{}, &Refusal{Kind: Unreachable, Reason: "it cannot be read whether an orchestrator runs: " + err.Error(), Final: ctx.Err() == nil}
	} else if !is {
		return Status{}, Unorchestrated()
	}
	wish, err := h.call(ctx, r, told)
	if err != nil {
		return Status{}, err
	}
	defer h.hangUp()
	return h.await(ctx, wish, r, told)
}

// asked reports whether this host has a lease of id, or asks for it.
func (h *Host) asked(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rec.Wish != "" && h.rec.ID == id && !h.rec.Ending
}

// Unorchestrated refuses a lease in a cluster without an orchestrator.
func Unorchestrated() *Refusal {
	return &Refusal{Kind: NoOrchestrator, Reason: noOrchestrator, Final: true}
}

const noOrchestrator = "no orchestrator runs in the cluster, so no lease is granted: 'jorc doctor' says which hosts may orchestrate"

// joinWithin is how long a call waits until a restarted agent takes part in its cluster again.
const joinWithin = time.Minute

// rejoin waits until this host takes part in its cluster, if it has a lease.
func (h *Host) rejoin(ctx context.Context) {
	if h.recorded().Wish == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, joinWithin)
	defer cancel()
	_, _ = h.joined.Wait(ctx, func(is bool) bool { return is }) // the caller sees whether it did
}

// recorded is the record, also before this agent takes part.
func (h *Host) recorded() record {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.loaded {
		return h.rec
	}
	r, _, err := h.doc.Load()
	if err != nil {
		return record{} // load says so
	}
	return r
}

// running returns the part that runs; nil: none does.
func (h *Host) running() *Part {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.part
}

// call notes an open call for the lease of r, which it begins if the host has no lease, and returns which lease that is. It waits
// while another caller has this host's lease.
func (h *Host) call(ctx context.Context, r Request, told func(Status)) (wish string, err error) {
	for {
		h.mu.Lock()
		switch {
		case h.rec.Wish == "":
			err := h.keep(record{
				Wish: rand.Text(), ID: r.ID, Reason: text.Line(r.Reason, MostReason), For: orDefault(r.For, DefaultFor), Drain: r.Drain,
				MinHealthy: orDefault(r.MinHealthy, h.o.Least), Keep: r.Keep, Connected: r.Connected, Ordered: r.ordered, Since: time.Now().UTC().Truncate(time.Second),
				Obeyed: h.rec.Obeyed,
			})
			if err != nil {
				h.mu.Unlock()
				return "", err
			}
			h.ending, h.calls = false, 0
		case h.rec.ID != r.ID:
			refusal := &Refusal{Kind: HeldByOther, Reason: "this host has a lease of " + h.rec.ID + cause(h.rec.Reason)}
			old := h.rec.Wish
			h.mu.Unlock()
			told(Status{State: Asked, ID: r.ID, Reason: r.Reason, Waits: refusal})
			if _, err := h.status.Wait(ctx, func(Status) bool { return h.wish() != old }); err != nil {
				return "", refusal
			}
			continue
		}
		if !h.rec.Ending && !h.ending {
			h.calls++
			h.restart = false
			wish = h.rec.Wish
			h.publish()
			h.mu.Unlock()
			h.news.Notify()
			return wish, nil
		}
		old := h.rec.Wish
		h.mu.Unlock()
		// The same caller again, while its last lease ends.
		if _, err := h.status.Wait(ctx, func(Status) bool { return h.wish() != old }); err != nil {
			return "", &Refusal{Kind: Waiting, Reason: "the lease before has not ended yet"}
		}
	}
}

func cause(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

func orDefault(d, other time.Duration) time.Duration {
	if d == 0 {
		return other
	}
	return d
}

func (h *Host) wish() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rec.Wish
}

// hangUp notes that a call has ended.
func (h *Host) hangUp() {
	h.mu.Lock()
	h.calls, h.called = max(0, h.calls-1), time.Now()
	h.mu.Unlock()
	h.news.Notify()
}

// await waits until the caller may go ahead.
func (h *Host) await(ctx context.Context, wish string, r Request, told func(Status)) (Status, error) {
	deadline, bounded := ctx.Deadline()
	var last Status
	var refusal *Refusal
	good := func(s Status) bool {
		if h.wish() != wish {
			refusal = &Refusal{Kind: Waiting, Reason: "the lease has ended", Final: true}
			return true
		}
		if !reflect.DeepEqual(s, last) {
			told(s)
			last = s
		}
		w := s.Waits
		switch {
		case s.State == Ready:
			return !r.Connected
		case s.State == Ending:
			refusal = &Refusal{Kind: Waiting, Reason: "the lease ends", Final: true}
			return true
		case s.State != Asked || w == nil:
			return false
		case w.stops() && (w.At.IsZero() || bounded && w.At.After(deadline)):
			other := *w
			other.Final = true
			refusal = &other
			return true
		}
		return false
	}
	s, err := h.status.Wait(ctx, good)
	switch {
	case refusal != nil:
		return s, refusal
	case err == nil, last.State == Ready:
		return last, err
	case last.Waits != nil:
		return last, last.Waits
	}
	return last, &Refusal{Kind: Waiting, Reason: "the lease waits for a place"}
}

// stops reports whether waiting helps only until At, if at all. What the orchestrator answered may be over
// already: this host sees by itself what stops it.
func (r *Refusal) stops() bool {
	if r.Answered {
		return false
	}
	switch r.Kind {
	case Paused, Held, NoOrchestrator, Freeze:
		return true
	}
	return false
}

// End implements Holder.
func (h *Host) End(ctx context.Context, id string) error {
	h.rejoin(ctx)
	h.mu.Lock()
	wish := h.rec.Wish
	switch {
	case wish == "":
		h.mu.Unlock()
		return nil
	case id != "" && h.rec.ID != id:
		refusal := &Refusal{Kind: HeldByOther, Reason: "this host has a lease of " + h.rec.ID + cause(h.rec.Reason), Final: true}
		h.mu.Unlock()
		return refusal
	}
	h.ending = true
	h.mu.Unlock()
	h.news.Notify()
	var last Status
	_, err := h.status.Wait(ctx, func(s Status) bool {
		last = s
		return h.wish() != wish
	})
	switch {
	case err == nil:
		return nil
	case last.Waits != nil:
		return last.Waits
	}
	return &Refusal{Kind: NotHealthy, Reason: "the lease has not ended yet"}
}

// Status implements Holder.
func (h *Host) Status() Status {
	if s, known := h.status.Get(); known {
		return s
	}
	r := h.recorded()
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.gather()
	f.rec = r
	return f.status(time.Now())
}

// keep writes the record down before anything follows from it. The caller has the mutex.
func (h *Host) keep(r record) error {
	if r == h.rec && h.loaded {
		return nil
	}
	if err := h.doc.Save(r); err != nil {
		return err
	}
	h.rec = r
	return nil
}

// publish makes the status of what is known. The caller has the mutex.
func (h *Host) publish() {
	f := h.gather()
	h.status.Set(f.status(time.Now()))
}

// gather returns the facts. The caller has the mutex.
func (h *Host) gather() *facts {
	f := &facts{
		Seen: h.seen, rec: h.rec, alone: h.alone, calls: h.calls, called: h.called, restarted: h.restart, end: h.ending, taken: h.release != nil,
		busy: !h.taking.IsZero() && time.Since(h.taking) > aMoment, boot: h.o.Clock.Boot(), back: h.back,
	}
	if f.Since.Before(h.back) {
		f.Since = h.back
	}
	if h.part != nil {
		f.node = h.part.Host.Node()
	}
	if f.rec.Grant.Open() {
		f.age = h.o.Clock.Elapsed(f.rec.Age)
	}
	if !f.rec.Drained.Begun.IsZero() {
		f.drained = h.o.Clock.Elapsed(f.rec.Drained)
	}
	return f
}

// Run takes part in the cluster with p until ctx ends; then it returns nil.
func (h *Host) Run(ctx context.Context, p Part) error {
	if err := concurrency.Retry(ctx, concurrency.NewBackoff(firstRetry, lastRetry), h.load, h.warn("the record of the lease cannot be read")); err != nil {
		return nil // ctx ended
	}
	h.mu.Lock()
	h.part, h.seen = &p, change.Seen{}
	h.mu.Unlock()
	h.joined.Set(true)
	defer func() {
		h.joined.Set(false)
		h.mu.Lock()
		h.part = nil
		h.mu.Unlock()
		h.letGo()
	}()
	g, ctx := errgroup.WithContext(ctx)
	store := p.Cluster.Store()
	g.Go(func() error { return h.watchOrchestrator(ctx, store) })
	g.Go(func() error { return h.obeyOrders(ctx, store, p.Host.Node()) })
	g.Go(func() error { return p.Host.Drive(ctx, &driven{h, p, g}, h.news) })
	if err := g.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

// Pauses after a record that could not be read, and a job that could not be held.
const firstRetry, lastRetry = 200 * time.Millisecond, 10 * time.Second

func (h *Host) warn(what string) func(error, time.Duration) {
	return func(err error, pause time.Duration) { h.o.Log.Warn(what, "error", err, "again_in", pause) }
}

// load reads the record, once.
func (h *Host) load(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.loaded {
		return nil
	}
	r, _, err := h.doc.Load()
	if errors.Is(err, durable.ErrDamaged) {
		h.o.Log.Error("this host lost what it knew of its lease", "error", err)
		err = nil
	}
	if err != nil {
		return err
	}
	r.Age, r.Drained = h.o.Clock.Resumed(r.Age), h.o.Clock.Resumed(r.Drained)
	h.rec, h.loaded, h.restart = r, true, true
	h.publish() // from now on its status is not that of before
	return nil
}

// watchOrchestrator follows since when no orchestrator runs, while the host waits for a place.
func (h *Host) watchOrchestrator(ctx context.Context, s *kv.Store) error {
	for ctx.Err() == nil {
		if _, err := h.status.Wait(ctx, func(s Status) bool { return s.State == Asked }); err != nil {
			return err
		}
		watch, stop := context.WithCancel(ctx)
		g, watch := errgroup.WithContext(watch)
		g.Go(func() error {
			return fleet.WatchOrchestrated(watch, s, func(is bool) {
				h.setAlone(!is)
			})
		})
		_, _ = h.status.Wait(watch, func(s Status) bool { return s.State != Asked }) // or ctx has ended
		stop()
		_ = g.Wait() // it ends with watch
		h.setAlone(false)
	}
	return ctx.Err()
}

func (h *Host) setAlone(is bool) {
	h.mu.Lock()
	switch {
	case !is:
		h.alone = time.Time{}
	case h.alone.IsZero():
		h.alone = time.Now()
	}
	h.mu.Unlock()
	h.news.Notify()
}

// driven is the lease as the host drives it, a change.Part.
type driven struct {
	h *Host
	p Part
	g *errgroup.Group // of the part
}

// Change implements change.Part.
func (d *driven) Change() string { return cluster.LeaseChange(d.p.Host.Node()) }

// Look implements change.Part.
func (d *driven) Look(s *change.Seen, _ error) {
	h := d.h
	h.mu.Lock()
	h.seen = *s
	h.publish()
	over := !h.rec.Grant.Open() || h.rec.Ending
	h.mu.Unlock()
	if over {
		h.letGo()
	}
}

// Held implements change.Part.
func (d *driven) Held() (held change.Held, asks bool) {
	d.h.mu.Lock()
	defer d.h.mu.Unlock()
	return d.h.rec.held(), d.h.rec.Wish != ""
}

// Keep implements change.Part.
func (d *driven) Keep(held change.Held) error {
	d.h.mu.Lock()
	defer d.h.mu.Unlock()
	r := d.h.rec
	if held.Open() && held.ID != r.Grant.ID {
		r.Boot, r.Age = d.h.o.Clock.Boot(), d.h.o.Clock.Start()
	}
	r.Grant = held
	return d.h.keep(r)
}

// Lose implements change.Part: a lease of which this host knows nothing ends. Beside another one the report drops it.
func (d *driven) Lose(ctx context.Context, a cluster.Answer) error {
	h := d.h
	if h.wish() != "" {
		return d.p.Host.Write(ctx, d.Says)
	}
	w, _ := h.seen.Report.Wish()
	return h.record(record{}, record{
		Wish: a.Tag, ID: "unknown", Reason: w.Reason, For: DefaultFor, MinHealthy: h.o.Least, Since: w.Since,
		Grant: change.Held{ID: a.ID, Tag: a.Tag, Since: a.Since}, Boot: h.o.Clock.Boot(), Age: h.o.Clock.Start(), Ending: true, Lost: true,
	})
}

// Says implements change.Part.
func (d *driven) Says(r cluster.Report) cluster.Report {
	d.h.mu.Lock()
	defer d.h.mu.Unlock()
	return d.h.rec.in(r, d.p.Host.Node())
}

// Next implements change.Part.
func (d *driven) Next(s *change.Seen, now time.Time) change.Step {
	h := d.h
	h.mu.Lock()
	f := h.gather()
	taking := h.taking
	h.mu.Unlock()
	do, again := decide(f, now)
	if do == take && !taking.IsZero() {
		do = nothing
		if said := taking.Add(aMoment); now.Before(said) {
			again = said
		}
	}
	switch do {
	case nothing:
		return change.Step{Again: again}
	case accept:
		r, g := f.rec, f.grant()
		return d.p.Host.Accept(d, s, g, func(to cluster.Report, a cluster.Answer) cluster.Report {
			r.Grant = change.Held{ID: a.ID, Tag: a.Tag, Since: a.Since}
			return r.in(to, f.node)
		}, nil)
	case decline:
		return d.p.Host.Decline(d, f.grant(), "a freeze has begun by this host's clock")
	}
	return change.Step{Name: string(do), Do: func(ctx context.Context) error { return d.perform(ctx, f, do) }}
}

// perform carries out one step.
func (d *driven) perform(ctx context.Context, f *facts, do step) error {
	h := d.h
	r := f.rec
	switch do {
	case nothing, accept, decline:
	case report:
		return d.p.Host.Write(ctx, d.Says)
	case withdraw:
		return h.record(f.rec, r.ended())
	case take:
		h.take(ctx, &d.p, d.g)
	case enter:
		r.Out = true
		if err := h.record(f.rec, r); err != nil {
			return err
		}
		if err := h.o.Maintenance.Begin(ctx, consul.JorcNote+" lease"+cause(r.Reason)); err != nil {
			return err
		}
		r.Drained = h.o.Clock.Start()
		return h.record(f.rec, r)
	case ready:
		r.Ready = true
		h.o.Log.Info("this host is out of service for its lease", "id", r.ID, "reason", r.Reason)
		return h.record(f.rec, r)
	case end:
		r.Ending = true
		return h.record(f.rec, r)
	case trouble:
		r.Trouble = text.Line("its time is over since "+r.over().Format(time.RFC3339)+", and this host is not healthy: "+strings.Join(f.Failing, "; "), MostReason)
		h.o.Log.Error("the lease of this host does not end", "id", r.ID, "reason", r.Trouble)
		return h.record(f.rec, r)
	case lift:
		return h.lift(ctx)
	case admit:
		r.Returns = true
		h.o.Log.Warn("this host is back from its lease and not healthy: other changes may reach it", "id", r.ID, "failing", f.Failing)
		return h.record(f.rec, r)
	case finish:
		r.Over = true
		return h.record(f.rec, r)
	case forget:
		h.o.Log.Info("the lease of this host is over", "id", r.ID)
		return h.record(f.rec, r.ended())
	}
	return nil
}

// record writes down next, unless another lease has taken the place of old.
func (h *Host) record(old, next record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rec.Wish != old.Wish {
		return nil
	}
	if err := h.keep(next); err != nil {
		return err
	}
	if next.Wish == "" {
		h.ending, h.back = false, time.Time{}
	}
	h.publish()
	return nil
}

// take has no job run from now on.
func (h *Host) take(ctx context.Context, p *Part, g *errgroup.Group) {
	h.mu.Lock()
	h.taking = time.Now()
	h.mu.Unlock()
	g.Go(func() error {
		release, err := p.Take(ctx)
		if err != nil && ctx.Err() == nil {
			h.o.Log.Warn("the lease waits until no job runs", "error", err)
			_ = concurrency.Sleep(ctx, firstRetry) // ends with ctx
		}
		h.mu.Lock()
		h.taking, h.release = time.Time{}, release
		h.mu.Unlock()
		h.news.Notify()
		return nil
	})
}

// aMoment is how long a task may take to end before a caller hears that the lease waits for it.
const aMoment = time.Second

// letGo lets jobs run again.
func (h *Host) letGo() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.release != nil {
		h.release()
		h.release = nil
	}
}

// lift brings the host back into service.
func (h *Host) lift(ctx context.Context) error {
	h.letGo()
	if err := h.o.Maintenance.Lift(ctx); err != nil {
		return err
	}
	h.mu.Lock()
	h.back = time.Now()
	h.mu.Unlock()
	return nil
}
