package converge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
)

// Maintenance takes this host out of service in Consul and back. Only what jorc
// itself began is lifted; repeating either is not an error and writes nothing.
type Maintenance interface {
	Begin(ctx context.Context, reason string) error
	Lift(ctx context.Context) error
}

// GranteeOptions are what a Grantee needs.
type GranteeOptions struct {
	StateDir    string // the record of the grant is its file grant.json
	Host        *change.Host
	Rollouts    *rollout.Rollouts
	Maintenance Maintenance
	Log         hclog.Logger
}

// Grantee is this host's part of a rollout that is paced by grants, a change.Part: it accepts
// and declines them, keeps the host in maintenance while it is at work, and ends
// its grant once the host is healthy. What it holds is on the disk and in
// Consul, so it outlives the process.
type Grantee struct {
	o    GranteeOptions
	doc  durable.Doc[grantRecord]
	news concurrency.Signal

	mu      sync.Mutex
	enter   *request // begin with a version
	report  *request // report a version
	leave   *request // come back into service
	blocked string   // why the host cannot begin
	noticed rollout.Noticed
	watches [watches]error // why what a watch delivers is not known; nil: it is

	// What the loop alone knows.
	events  AdmissionEvents
	record  grantRecord
	lifted  bool
	looked  bool // at what is granted
	granted uint64
	reset   time.Time
	leaving *request
	left    time.Time // when leaving began
}

// The watches of which a Permit is made, beside those of the host.
const (
	watchesDesired = iota
	watchesSpec
	watches
)

// errNotRead: a watch has not delivered anything yet.
var errNotRead = errors.New("it has not been read yet")

// request is one call of Enter, Report or Leave.
type request struct {
	version  string
	waiting  func(string)
	reported string
	done     chan struct{}

	recheck   *concurrency.Backoff // when to read the report again, while nothing else happens
	recheckAt time.Time
	reads     int // of the report, the last one that counted for it

	change   func(cluster.Report) cluster.Report // of Report
	separate bool                                // nothing was written; valid once done is closed
}

// NewGrantee returns a Grantee. It does no I/O.
func NewGrantee(o GranteeOptions) *Grantee {
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	g := &Grantee{o: o, doc: durable.NewDoc[grantRecord](filepath.Join(o.StateDir, "grant.json"), grantFormat), news: concurrency.NewSignal()}
	for i := range g.watches {
		g.watches[i] = errNotRead
	}
	return g
}

// Enter implements Admission.
func (g *Grantee) Enter(ctx context.Context, version string, waiting func(string)) error {
	recheck := concurrency.NewBackoff(firstRecheck, lastRecheck)
	return g.ask(ctx, &g.enter, &request{version: version, waiting: waiting, done: make(chan struct{}), recheck: recheck, recheckAt: time.Now().Add(recheck.Next())})
}

// Report implements Admission.
func (g *Grantee) Report(ctx context.Context, version string, change func(cluster.Report) cluster.Report) (done bool, err error) {
	q := &request{version: version, waiting: func(string) {}, done: make(chan struct{}), change: change}
	err = g.ask(ctx, &g.report, q)
	return err == nil && !q.separate, err
}

// Leave implements Admission.
func (g *Grantee) Leave(ctx context.Context, version string) error {
	return g.ask(ctx, &g.leave, &request{version: version, waiting: func(string) {}, done: make(chan struct{})})
}

// Blocked implements Admission.
func (g *Grantee) Blocked(reason string) { g.change(func() { g.blocked = reason }) }

// ask has the loop carry out a request until that is done or ctx ends.
func (g *Grantee) ask(ctx context.Context, place **request, q *request) error {
	g.change(func() { *place = q })
	defer g.change(func() {
		if *place == q {
			*place = nil
		}
	})
	select {
	case <-q.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// change changes the inputs of the loop.
func (g *Grantee) change(set func()) {
	g.mu.Lock()
	set()
	g.mu.Unlock()
	g.news.Notify()
}

// A host that waits for an offer reads its own report again after these pauses:
// a restored backup may say that it runs the version already, and then it is
// never offered one.
const firstRecheck, lastRecheck = time.Minute, 5 * time.Minute

// Pauses after a record that could not be read.
const firstGrantRetry, lastGrantRetry = 200 * time.Millisecond, 10 * time.Second

// Run implements Admission.
func (g *Grantee) Run(ctx context.Context, events AdmissionEvents) error {
	retry := concurrency.NewBackoff(firstGrantRetry, lastGrantRetry)
	if err := concurrency.Retry(ctx, retry, g.load, g.warn("the record of the grant cannot be read")); err != nil {
		return err
	}
	g.events = events
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return g.o.Rollouts.Watch(ctx, func(u kv.Update[rollout.Spec]) {
			damaged := u.Err
			if !errors.Is(damaged, kv.ErrDamaged) {
				damaged = nil
			}
			notice(g, watchesSpec, u, func() { g.noticed.Spec, g.noticed.Damaged = u.Entry, damaged })
		})
	})
	group.Go(func() error {
		return g.o.Rollouts.WatchDesired(ctx, func(u kv.Update[string]) { notice(g, watchesDesired, u, func() { g.noticed.Desired = u.Entry }) })
	})
	group.Go(func() error { return g.o.Host.Drive(ctx, g, g.news) })
	return group.Wait()
}

func (g *Grantee) load(context.Context) error {
	r, lost, err := loadGrant(g.doc)
	if lost != nil {
		g.o.Log.Error("this host lost what it knew of its grant", "error", lost)
	}
	g.record = r
	return err
}

func (g *Grantee) warn(what string) func(error, time.Duration) {
	return func(err error, pause time.Duration) { g.o.Log.Warn(what, "error", err, "again_in", pause) }
}

// notice takes over what a watch delivered: a document that is damaged is there, and what it
// is read as. What a watch delivered before an outage stays known.
func notice[T any](g *Grantee, watch int, u kv.Update[T], set func()) {
	if u.Err != nil && !errors.Is(u.Err, kv.ErrDamaged) {
		g.change(func() {
			if g.watches[watch] != nil || change.IsLost(u.Err) {
				g.watches[watch] = u.Err
			}
		})
		return
	}
	g.change(func() {
		set()
		g.watches[watch] = nil
	})
	if u.Reset {
		g.o.Host.Restored()
	}
}

// Change implements change.Part.
func (g *Grantee) Change() string { return cluster.VersionChange }

// Held implements change.Part.
func (g *Grantee) Held() (h change.Held, asks bool) { return g.record.Held, true }

// Says implements change.Part.
func (g *Grantee) Says(d cluster.Report) cluster.Report {
	return d.WithAnswer(g.record.Answer(cluster.VersionChange))
}

// Keep implements change.Part. That an acceptance was carried out is not written down: the report says so, and what
// follows from it writes it down.
func (g *Grantee) Keep(h change.Held) error {
	r := g.record
	if r.Intent != nil && h.Intent == nil && h.ID == r.Intent.ID && h.Open() {
		g.record = grantRecord{Held: h}
		return nil
	}
	r.Held = h
	return g.keep(r)
}

// Lose implements change.Part.
func (g *Grantee) Lose(_ context.Context, a cluster.Answer) error {
	lost := change.LostOf(a)
	lost.Intent = g.record.Intent
	return g.keep(grantRecord{Held: lost})
}

// Look implements change.Part.
func (g *Grantee) Look(s *change.Seen, failed error) {
	err := cmp.Or(failed, s.Unknown)
	if err != nil {
		g.hindered(err)
	}
	if s.Unknown != nil {
		return
	}
	g.mu.Lock()
	idle := g.enter == nil && g.leave == nil && g.blocked == ""
	g.mu.Unlock()
	granted := s.Granted(cluster.VersionChange)
	another := !g.looked || s.Grants.Index != g.granted
	if !s.Reset.Equal(g.reset) || g.looked && another && idle && granted.State == pace.Offered {
		g.events.Reassert() // the orchestrator does not know what this host runs
	}
	if another {
		g.events.Retry(Retry{At: granted.Retry, FromStart: granted.FromStart})
	}
	g.looked, g.granted, g.reset = true, s.Grants.Index, s.Reset
}

// hindered says why the rollout cannot be asked. A version that runs is reported nevertheless.
func (g *Grantee) hindered(err error) {
	g.mu.Lock()
	enter, report := g.enter, g.report
	g.mu.Unlock()
	g.reportSeparately(report)
	if !errors.Is(err, change.ErrFollows) {
		notify(enter, "the rollout cannot be asked: "+err.Error())
	}
}

func notify(q *request, why string) {
	if q != nil && why != "" && why != q.reported {
		q.reported = why
		q.waiting(why)
	}
}

// Next implements change.Part.
func (g *Grantee) Next(s *change.Seen, now time.Time) change.Step {
	f, enter, report, leave, err := g.facts(s, now)
	if err != nil {
		g.hindered(err)
		return change.Step{}
	}
	do, why, again := decideGrant(f, now)
	step := func(perform func(ctx context.Context) error) change.Step {
		return change.Step{Name: string(do), Do: perform}
	}
	switch do {
	case grantNothing:
		notify(enter, why)
		return g.rest(enter, now, again)
	case grantDecline:
		return g.o.Host.Decline(g, f.permit.Grant, why)
	case grantAccept:
		return g.o.Host.Accept(g, s, f.permit.Grant, running, f.permit.Fence)
	case grantStrand:
		return step(func(context.Context) error {
			r := g.record
			r.Stranded = true
			return g.keep(r)
		})
	case grantReady:
		return step(func(context.Context) error {
			r := g.record
			r.Declined, r.Ready = f.permit.Grant.ID, true
			return g.keep(r)
		})
	case grantEnter:
		return step(func(ctx context.Context) error { return g.begin(ctx, enter) })
	case grantFree:
		return step(func(ctx context.Context) error { return g.beginFree(ctx, f, enter) })
	case grantLift:
		return step(func(ctx context.Context) error { return g.lift(ctx, cmp.Or(f.leave, f.report)) })
	case grantFinish:
		return step(func(ctx context.Context) error { return g.finish(ctx, report) })
	case grantSeparate:
		g.reportSeparately(report)
	case grantLeft:
		g.finished(&g.leave, leave)
	}
	return step(func(context.Context) error { return nil })
}

// running is what the report of a host says that accepted a grant.
func running(d cluster.Report, a cluster.Answer) cluster.Report {
	return d.With(cluster.CategoryConfig, cluster.CategoryState{State: cluster.StateRunning, Version: a.Tag}, a.Since)
}

// rest is until when nothing is to be done, or that the report is read again for enter: a restored backup
// may say that the host runs the version already, and then it is never offered one.
func (g *Grantee) rest(enter *request, now, again time.Time) change.Step {
	if enter == nil {
		return change.Step{Again: again}
	}
	if !now.Before(enter.recheckAt) {
		enter.recheckAt = now.Add(enter.recheck.Next())
		return change.Step{Name: "read the report again", Do: func(ctx context.Context) error {
			g.o.Host.Reread()
			return g.o.Host.Read(ctx)
		}}
	}
	return change.Step{Again: pace.Earliest(again, enter.recheckAt)}
}

// facts gathers what is known. A host that waits to begin may hear that it runs the version already.
func (g *Grantee) facts(s *change.Seen, now time.Time) (f *grantFacts, enter, report, leave *request, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	enter, report, leave = g.enter, g.report, g.leave
	if leave != g.leaving {
		g.leaving, g.left = leave, now
	}
	f = &grantFacts{record: g.record, blocked: g.blocked, lifted: g.lifted, healthy: s.Healthy(), since: s.Since}
	if f.since.Before(g.left) {
		f.since = g.left
	}
	if enter != nil {
		f.enter = enter.version
		if enter.reads != s.Reads && s.Report.Version == enter.version {
			g.events.Reassert()
		}
		enter.reads = s.Reads
	}
	if report != nil {
		f.report = report.version
	}
	if leave != nil {
		f.leave = leave.version
	}
	if err = cmp.Or(g.watches[:]...); err == nil {
		f.permit, err = g.o.Rollouts.Noticed(g.noticed, s)
	}
	return f, enter, report, leave, err
}

// keep writes the record down before anything follows from it.
func (g *Grantee) keep(r grantRecord) error {
	if err := g.doc.Save(r); err != nil {
		return fmt.Errorf("record of the grant cannot be written: %w", err)
	}
	g.record = r
	return nil
}

// begin takes the host out of service for the version of enter.
func (g *Grantee) begin(ctx context.Context, enter *request) error {
	if r := g.record; !r.Begun {
		r.Begun = true
		if err := g.keep(r); err != nil {
			return err
		}
	}
	g.lifted = false
	if err := g.o.Maintenance.Begin(ctx, consul.JorcNote+" update to "+enter.version); err != nil {
		return err
	}
	g.finished(&g.enter, enter)
	return nil
}

// beginFree has the host begin without a grant, if what is stored says so, too.
func (g *Grantee) beginFree(ctx context.Context, f *grantFacts, enter *request) error {
	p, err := g.o.Rollouts.Permit(ctx, g.o.Host.Node())
	if err != nil {
		return err
	}
	p.Roles = f.permit.Roles
	if free, _ := p.Free(f.enter, time.Now()); !free {
		return change.ErrFollows
	}
	g.finished(&g.enter, enter)
	return nil
}

// finish ends the grant. It ends the request to report the version that the grant was for in the same transaction.
func (g *Grantee) finish(ctx context.Context, report *request) error {
	if err := g.keep(g.record.done(time.Now())); err != nil {
		return err
	}
	g.o.Log.Info("the grant is done", "version", g.record.Tag)
	with := report != nil && g.record.Tag == report.version
	err := g.o.Host.Write(ctx, func(d cluster.Report) cluster.Report {
		if with {
			d = report.change(d)
		}
		return g.Says(d)
	})
	if err == nil && with {
		g.finished(&g.report, report)
	}
	return err
}

// reportSeparately has the report written before the grant ends.
func (g *Grantee) reportSeparately(report *request) {
	if report != nil {
		report.separate = true
		g.finished(&g.report, report)
	}
}

// finished ends a request, if it is still the present one.
func (g *Grantee) finished(place **request, q *request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if q != nil && *place == q {
		*place = nil
		close(q.done)
	}
}

// lift brings the host back into service; version is what it runs, if it does.
func (g *Grantee) lift(ctx context.Context, version string) error {
	if r := g.record; r.Open() && !r.Recorded && version == r.Tag {
		r.Recorded = true
		if err := g.keep(r); err != nil {
			return err
		}
	}
	if err := g.o.Maintenance.Lift(ctx); err != nil {
		return err
	}
	g.lifted = true
	return nil
}
