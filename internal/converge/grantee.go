package converge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
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
	Node        string
	StateDir    string // the record of the grant is its file grant.json
	Rollouts    *rollout.Rollouts
	Report      *cluster.ReportWriter // this host's
	Maintenance Maintenance
	Checks      Checks
	Roles       func() []string // of this host, on which freezes depend; nil: none
	Log         hclog.Logger
}

// Grantee is this host's side of a rollout that is paced by grants: it accepts
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
	unread  bool     // the report is to be read (again)
	noticed rollout.Noticed
	watches [watches]error // why what a watch delivers is not known; nil: it is
	failing []string
	checked bool
	since   time.Time // that no check has failed

	// What the loop alone knows.
	record grantRecord
	lifted bool
}

// The watches of which a Permit is made.
const (
	watchesDesired = iota
	watchesSpec
	watchesControl
	watchesGrants
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
	recheck  *concurrency.Backoff // when to read the report again, while nothing else happens

	change   func(cluster.Report) cluster.Report // of Report
	separate bool                                // nothing was written; valid once done is closed
}

// NewGrantee returns a Grantee. It does no I/O.
func NewGrantee(o GranteeOptions) *Grantee {
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	g := &Grantee{o: o, doc: durable.NewDoc[grantRecord](filepath.Join(o.StateDir, "grant.json"), grantFormat), news: concurrency.NewSignal(), unread: true}
	for i := range g.watches {
		g.watches[i] = errNotRead
	}
	return g
}

// Enter implements Admission.
func (g *Grantee) Enter(ctx context.Context, version string, waiting func(string)) error {
	return g.ask(ctx, &g.enter, &request{
		version: version, waiting: waiting, done: make(chan struct{}), recheck: concurrency.NewBackoff(firstRecheck, lastRecheck),
	})
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

// reread has the report read again: it may not be as it was last read or written.
func (g *Grantee) reread() {
	g.o.Report.Forget()
	g.change(func() { g.unread = true })
}

// Pauses after a step of a grant that failed. The packages below wait while
// Consul does not answer.
const firstGrantRetry, lastGrantRetry = 200 * time.Millisecond, 10 * time.Second

// A host that waits for an offer reads its own report again after these pauses:
// a restored backup may say that it runs the version already, and then it is
// never offered one.
const firstRecheck, lastRecheck = 5 * time.Second, 5 * time.Minute

// Run implements Admission.
func (g *Grantee) Run(ctx context.Context, events AdmissionEvents) error {
	retry := concurrency.NewBackoff(firstGrantRetry, lastGrantRetry)
	if err := concurrency.Retry(ctx, retry, g.load, g.warn("the record of the grant cannot be read")); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return g.watchGrants(ctx, events) })
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
	group.Go(func() error {
		return g.o.Rollouts.WatchControl(ctx, func(u kv.Update[cluster.Control]) {
			notice(g, watchesControl, u, func() { g.noticed.Control = u.Entry })
			if errors.Is(u.Err, kv.ErrDamaged) { // nothing that disturbs begins
				g.change(func() { g.watches[watchesControl] = u.Err })
			}
		})
	})
	group.Go(func() error { return g.o.Checks.Watch(ctx, g.setChecks) })
	group.Go(func() error { return g.loop(ctx, events) })
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
		lost := errors.Is(u.Err, consul.ErrDenied) || errors.Is(u.Err, kv.ErrNewer) || consul.IsPermanent(u.Err)
		g.change(func() {
			if lost || g.watches[watch] != nil {
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
		g.reread()
	}
}

// watchGrants follows what is granted to the host.
func (g *Grantee) watchGrants(ctx context.Context, events AdmissionEvents) error {
	first := true
	return g.o.Rollouts.WatchGrants(ctx, g.o.Node, func(u kv.Update[change.Grants]) {
		if u.Err == nil || errors.Is(u.Err, kv.ErrDamaged) {
			next := u.Entry.Value.Of(cluster.VersionChange)
			g.mu.Lock()
			idle := g.enter == nil && g.leave == nil && g.blocked == ""
			g.mu.Unlock()
			if u.Reset || !first && idle && next.State == pace.Offered {
				events.Reassert() // the orchestrator does not know what this host runs
			}
			events.Retry(Retry{At: next.Retry, FromStart: next.FromStart})
			first = false
		}
		notice(g, watchesGrants, u, func() { g.noticed.Grants = u.Entry })
	})
}

func (g *Grantee) setChecks(h Health) {
	failing := h.Failing
	if h.Drained {
		failing = append(slices.Clone(failing), cluster.DrainedText)
	}
	g.change(func() {
		if len(failing) == 0 && (len(g.failing) > 0 || !g.checked) {
			g.since = time.Now()
		}
		g.failing, g.checked = failing, true
	})
}

// loop decides and acts until ctx ends.
func (g *Grantee) loop(ctx context.Context, events AdmissionEvents) error {
	retry := concurrency.NewBackoff(firstGrantRetry, lastGrantRetry)
	started := time.Time{} // of the present leave
	var leaving *request
	for ctx.Err() == nil {
		f, enter, report, leave := g.facts()
		if leave != leaving {
			leaving, started = leave, time.Now()
		}
		if f.since.Before(started) {
			f.since = started
		}
		do, why, again := decideGrant(f, time.Now())
		var err error
		if do != grantNothing {
			err = g.perform(ctx, f, do, why, enter, report, leave, events)
		}
		switch {
		case ctx.Err() != nil:
		case err != nil:
			g.reportSeparately(report)
			pause := retry.Next()
			if !errors.Is(err, errAskedAgain) {
				g.o.Log.Warn("the grant of the rollout is tried again", "step", string(do), "error", err, "again_in", pause)
				notify(enter, "the rollout cannot be asked: "+err.Error())
			}
			_ = concurrency.Sleep(ctx, pause) // ends with ctx
		case do != grantNothing:
			retry.Reset()
		default:
			retry.Reset()
			if f.waits != "" {
				g.reportSeparately(report)
			}
			notify(enter, why)
			g.await(ctx, again, enter)
		}
	}
	return ctx.Err()
}

func notify(q *request, why string) {
	if q != nil && why != "" && why != q.reported {
		q.reported = why
		q.waiting(why)
	}
}

// await returns when there is something new, at a time that is not zero, or when
// the report has to be read again for enter.
func (g *Grantee) await(ctx context.Context, at time.Time, enter *request) {
	waiting := ctx
	if !at.IsZero() {
		var cancel context.CancelFunc
		waiting, cancel = context.WithDeadline(waiting, at.Add(time.Millisecond))
		defer cancel()
	}
	var recheck <-chan time.Time
	if enter != nil {
		t := time.NewTimer(enter.recheck.Next())
		defer t.Stop()
		recheck = t.C
	}
	select {
	case <-waiting.Done():
	case <-g.news.C():
	case <-recheck:
		g.reread()
	}
}

// facts gathers what is known.
func (g *Grantee) facts() (f *grantFacts, enter, report, leave *request) {
	seen, known := g.o.Report.Seen().Get()
	g.mu.Lock()
	defer g.mu.Unlock()
	f = &grantFacts{
		record: g.record, known: known && !g.unread, blocked: g.blocked, lifted: g.lifted,
		healthy: g.checked && len(g.failing) == 0, since: g.since,
	}
	if g.enter != nil {
		f.enter = g.enter.version
	}
	if g.report != nil {
		f.report = g.report.version
	}
	if g.leave != nil {
		f.leave = g.leave.version
	}
	err := cmp.Or(g.watches[:]...)
	if err == nil {
		f.permit, err = g.o.Rollouts.Noticed(g.o.Node, g.noticed, seen)
	}
	if err != nil {
		f.waits = "the rollout cannot be asked: " + err.Error()
	}
	f.permit.Report, f.permit.Roles = seen, g.roles()
	return f, g.enter, g.report, g.leave
}

func (g *Grantee) roles() []string {
	if g.o.Roles == nil {
		return nil
	}
	return g.o.Roles()
}

// keep writes the record down before anything follows from it.
func (g *Grantee) keep(r grantRecord) error {
	if err := g.doc.Save(r); err != nil {
		return fmt.Errorf("record of the grant cannot be written: %w", err)
	}
	g.record = r
	return nil
}

// errAskedAgain: what is stored does not say what the watches delivered, which follows.
var errAskedAgain = errors.New("the watches have not delivered yet what is stored")

// perform carries out one action.
func (g *Grantee) perform(
	ctx context.Context, f *grantFacts, do grantAction, why string, enter, report, leave *request, events AdmissionEvents,
) error {
	r := g.record
	a := f.permit.Report.Answered(cluster.VersionChange)
	switch do {
	case grantNothing:
	case grantRead:
		return g.read(ctx, f.enter, events)
	case grantAdopt:
		return g.keep(grantRecord{Held: r.Accepted()})
	case grantForget:
		r.Intent = nil
		return g.keep(r)
	case grantReport:
		return g.write(ctx, r, report)
	case grantLost:
		g.o.Log.Warn("this host has a grant that it does not know: its record was lost", "grant", a.ID, "version", a.Tag)
		lost := change.LostOf(a)
		lost.Intent = r.Intent
		return g.keep(grantRecord{Held: lost})
	case grantStrand:
		r.Stranded = true
		return g.keep(r)
	case grantDecline:
		r.Held = r.Declining(f.permit.Grant, why)
		return g.keep(r)
	case grantReady:
		r.Ready = true
		return g.keep(r)
	case grantAccept:
		return g.accept(ctx, f)
	case grantEnter:
		if !r.Begun {
			r.Begun = true
			if err := g.keep(r); err != nil {
				return err
			}
		}
		g.lifted = false
		if err := g.o.Maintenance.Begin(ctx, consul.JorcNote+" update to "+f.enter); err != nil {
			return err
		}
		g.finished(&g.enter, enter)
	case grantFree:
		p, err := g.o.Rollouts.Permit(ctx, g.o.Node)
		if err != nil {
			return err
		}
		p.Roles = f.permit.Roles
		if free, _ := p.Free(f.enter, time.Now()); !free {
			return errAskedAgain
		}
		g.finished(&g.enter, enter)
	case grantLift:
		return g.lift(ctx, r, cmp.Or(f.leave, f.report))
	case grantFinish:
		if err := g.keep(r.done(time.Now())); err != nil {
			return err
		}
		g.o.Log.Info("the grant is done", "version", r.Tag)
		return g.write(ctx, g.record, report)
	case grantSeparate:
		g.reportSeparately(report)
	case grantLeft:
		g.finished(&g.leave, leave)
	}
	return nil
}

// read reads the report. A host that waits to begin may hear that it runs the version already: a
// backup that was restored says so, and then it is never offered a grant.
func (g *Grantee) read(ctx context.Context, enter string, events AdmissionEvents) error {
	_, err := g.o.Report.Change(ctx, func(d cluster.Report) (cluster.Report, error) { return d, nil })
	if err != nil {
		return err
	}
	g.change(func() { g.unread = false })
	if seen, _ := g.o.Report.Seen().Get(); enter != "" && seen.Version == enter {
		events.Reassert()
	}
	return nil
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
func (g *Grantee) lift(ctx context.Context, r grantRecord, version string) error {
	if r.Open() && !r.Recorded && version == r.Tag {
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

// accept writes the intent down and accepts the grant, in a transaction that
// holds only while the offer does. Where its answer is lost what became of it is
// read; a late acceptance is the same one.
func (g *Grantee) accept(ctx context.Context, f *grantFacts) error {
	r := g.record
	r.Held = r.Accepting(f.permit.Grant, time.Now())
	if err := g.keep(r); err != nil {
		return err
	}
	next := grantRecord{Held: r.Accepted()}
	old, answer := f.permit.Report.Answered(cluster.VersionChange), next.Answer(cluster.VersionChange)
	_, err := g.o.Report.ChangeFenced(ctx, func(d cluster.Report) (cluster.Report, error) {
		switch d.Answered(cluster.VersionChange) {
		case old:
		case answer:
			return d, nil
		default:
			return d, errOtherAnswer
		}
		return d.With(cluster.CategoryConfig, cluster.CategoryState{State: cluster.StateRunning, Version: answer.Tag}, answer.Since).WithAnswer(answer), nil
	}, f.permit.Fence)
	switch {
	case errors.Is(err, kv.ErrConflict): // nothing was written, nor will be; the watches deliver what it met
		r.Intent = nil
		if err := g.keep(r); err != nil {
			return err
		}
		return errAskedAgain
	case errors.Is(err, errOtherAnswer), errors.Is(err, consul.ErrOutcomeUnknown):
		g.reread()
		return nil
	case err != nil:
		return err
	}
	g.o.Log.Info("accepted a grant", "grant", answer.ID, "version", answer.Tag)
	g.record = next // after a crash before it is written the report says that the intent was carried out
	return nil
}

// errOtherAnswer: the stored report does not have the answer that was decided on.
var errOtherAnswer = errors.New("the report has another answer")

// write has the report say what the record does. It ends the request to report a version that the grant which
// ended was for, in the same transaction.
func (g *Grantee) write(ctx context.Context, r grantRecord, report *request) error {
	with := report != nil && !r.Open() && r.Tag == report.version
	_, err := g.o.Report.Change(ctx, func(d cluster.Report) (cluster.Report, error) {
		if with {
			d = report.change(d)
		}
		return d.WithAnswer(r.Answer(cluster.VersionChange)), nil
	})
	if errors.Is(err, consul.ErrOutcomeUnknown) {
		g.reread()
		return nil
	}
	if err == nil && with {
		g.finished(&g.report, report)
	}
	return err
}
