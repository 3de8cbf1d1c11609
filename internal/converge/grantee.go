package converge

import (
	"cmp"
	"context"
	"errors"
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
	file string

	news concurrency.Signal

	mu      sync.Mutex
	enter   *request // begin with a version
	report  *request // report a version
	leave   *request // come back into service
	blocked string   // why the host cannot begin
	stale   bool     // permit is to be read (again)
	noticed rollout.Noticed
	known   bool // noticed.Grants was read
	verify  bool // permit is to be read, whatever was noticed
	failing []string
	checked bool
	since   time.Time // that no check has failed

	// What the loop alone knows.
	record grantRecord
	permit rollout.Permit
	lifted bool
	read   bool // permit was, at least once
}

// request is one call of Enter, Report or Leave.
type request struct {
	version  string
	waiting  func(string)
	reported string
	done     chan struct{}
	recheck  *concurrency.Backoff // when to read again what is stored, while nothing else happens

	change   func(cluster.Report) cluster.Report // of Report
	separate bool                                // nothing was written; valid once done is closed
}

// NewGrantee returns a Grantee. It does no I/O.
func NewGrantee(o GranteeOptions) *Grantee {
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	return &Grantee{o: o, file: filepath.Join(o.StateDir, "grant.json"), news: concurrency.NewSignal(), stale: true}
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
func (g *Grantee) Blocked(reason string) {
	g.change(func() bool {
		again := g.blocked == "" && reason != ""
		g.blocked = reason
		return again
	})
}

// ask has the loop carry out a request until that is done or ctx ends. To come
// back into service nothing has to be read.
func (g *Grantee) ask(ctx context.Context, place **request, q *request) error {
	g.change(func() bool { *place = q; return place == &g.enter })
	defer g.change(func() bool {
		if *place == q {
			*place = nil
		}
		return false
	})
	select {
	case <-q.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// change changes the inputs of the loop. set reports whether what is stored has
// to be read again.
func (g *Grantee) change(set func() (read bool)) {
	g.mu.Lock()
	if set() {
		g.stale = true
	}
	g.mu.Unlock()
	g.news.Notify()
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
	group.Go(func() error { return g.watchRollout(ctx) })
	group.Go(func() error { return g.watchDesired(ctx) })
	group.Go(func() error { return g.watchControl(ctx) })
	group.Go(func() error { return g.o.Checks.Watch(ctx, g.setChecks) })
	group.Go(func() error { return g.loop(ctx, events) })
	return group.Wait()
}

func (g *Grantee) load(context.Context) (err error) {
	g.record, err = readGrant(g.file)
	if errors.Is(err, durable.ErrDamaged) {
		g.o.Log.Error("this host lost what it knew of its grant", "error", err)
		err = nil
	}
	return err
}

func (g *Grantee) warn(what string) func(error, time.Duration) {
	return func(err error, pause time.Duration) { g.o.Log.Warn(what, "error", err, "again_in", pause) }
}

// watchGrants follows what is granted to the host.
func (g *Grantee) watchGrants(ctx context.Context, events AdmissionEvents) error {
	first := true
	return g.o.Rollouts.WatchGrants(ctx, g.o.Node, func(u kv.Update[change.Grants]) {
		if u.Err != nil && !errors.Is(u.Err, kv.ErrDamaged) {
			return
		}
		next := u.Entry.Value.Of(cluster.VersionChange)
		g.mu.Lock()
		idle := g.enter == nil && g.leave == nil && g.blocked == ""
		g.mu.Unlock()
		if u.Reset || !first && idle && next.State == pace.Offered {
			events.Reassert() // the orchestrator does not know what this host runs
		}
		events.Retry(Retry{At: next.Retry, FromStart: next.FromStart})
		first = false
		g.change(func() bool {
			g.noticed.Grants, g.known, g.verify = u.Entry, true, g.verify || u.Reset || u.Err != nil
			return true
		})
	})
}

// watchRollout follows the rollout's document. What is stored beside it has to be
// read only when it is about another version.
func (g *Grantee) watchRollout(ctx context.Context) error {
	return g.o.Rollouts.Watch(ctx, func(u kv.Update[rollout.Spec]) {
		if u.Err != nil && !errors.Is(u.Err, kv.ErrDamaged) {
			return
		}
		g.change(func() bool {
			if u.Err != nil {
				return true
			}
			last := g.noticed.Spec.Value
			g.noticed.Spec, g.verify = u.Entry, g.verify || u.Reset
			return u.Reset || !u.Entry.Exists || !u.Entry.Value.Paced() || u.Entry.Value.Version != last.Version
		})
	})
}

// watchDesired follows the desired version, and watchControl what halts or freezes the
// cluster, for offers: the converger follows what else they say. A host that waits for the
// end of a freeze reads again when control changes.
func (g *Grantee) watchDesired(ctx context.Context) error {
	return g.o.Rollouts.WatchDesired(ctx, func(u kv.Update[string]) {
		g.note(func() { g.noticed.Desired, g.verify = u.Entry, g.verify || u.Err != nil || u.Reset })
	})
}

func (g *Grantee) watchControl(ctx context.Context) error {
	return g.o.Rollouts.WatchControl(ctx, func(u kv.Update[cluster.Control]) {
		g.change(func() bool {
			frozen := len(g.noticed.Control.Value.Freezes) > 0
			g.noticed.Control, g.verify = u.Entry, g.verify || u.Err != nil || u.Reset
			return g.enter != nil && (frozen || len(u.Entry.Value.Freezes) > 0)
		})
	})
}

// note changes what was noticed; nothing follows from it alone.
func (g *Grantee) note(set func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	set()
}

func (g *Grantee) setChecks(h Health) {
	failing := h.Failing
	if h.Drained {
		failing = append(slices.Clone(failing), cluster.DrainedText)
	}
	g.change(func() bool {
		if len(failing) == 0 && (len(g.failing) > 0 || !g.checked) {
			g.since = time.Now()
		}
		g.failing, g.checked = failing, true
		return false
	})
}

// loop decides and acts until ctx ends.
func (g *Grantee) loop(ctx context.Context, events AdmissionEvents) error {
	retry := concurrency.NewBackoff(firstGrantRetry, lastGrantRetry)
	started := time.Time{} // of the present leave
	var leaving *request
	for ctx.Err() == nil {
		f, enter, report, leave, read := g.facts()
		if leave != leaving {
			leaving, started = leave, time.Now()
		}
		if f.since.Before(started) {
			f.since = started
		}
		var do grantAction
		var why string
		var again time.Time
		var err error
		if read && g.interested(f) && !g.offerNoticed(&f) {
			err = g.refresh(ctx, &f)
			if err == nil && f.enter != "" && f.permit.Report.Version == f.enter {
				events.Reassert() // the report does not say what this host runs
			}
		}
		if err == nil {
			if do, why, again = decideGrant(f, time.Now()); do != grantNothing {
				err = g.perform(ctx, f, do, why, enter, report, leave)
			}
		}
		if err != nil && ctx.Err() == nil {
			g.reportSeparately(report)
		}
		switch {
		case ctx.Err() != nil:
		case err != nil:
			pause := retry.Next()
			g.o.Log.Warn("the grant of the rollout is tried again", "step", string(do), "error", err, "again_in", pause)
			notify(enter, "the rollout cannot be asked: "+err.Error())
			g.change(func() bool { return true })
			_ = concurrency.Sleep(ctx, pause) // ends with ctx
		case do != grantNothing:
			retry.Reset()
		default:
			retry.Reset()
			notify(enter, why)
			g.await(ctx, again, enter)
		}
	}
	return ctx.Err()
}

// interested reports whether what is stored matters now. A host that can only
// wait for an offer knows that from its watches.
func (g *Grantee) interested(f grantFacts) bool {
	return !f.waits && (f.enter != "" || f.blocked != "" || f.record.ID != "" || f.record.Intent != nil || !g.read)
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
		g.change(func() bool { g.verify = true; return true })
	}
}

// facts gathers what is known; read says that what is stored has to be read.
func (g *Grantee) facts() (f grantFacts, enter, report, leave *request, read bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f = grantFacts{
		record: g.record, permit: g.permit.WithSpec(g.noticed.Spec), blocked: g.blocked, lifted: g.lifted,
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
	f.waits = g.waitsForOffer(f)
	return f, g.enter, g.report, g.leave, g.stale
}

// waitsForOffer reports whether the watches say that the host can only wait for
// an offer, so that nothing has to be read to know that.
func (g *Grantee) waitsForOffer(f grantFacts) bool {
	d, grant := g.noticed.Spec.Value, g.noticed.Grants.Value.Of(cluster.VersionChange)
	paced := g.noticed.Spec.Exists && d.Version == f.enter && d.Paced() && d.Stopped == nil && !d.Aborted
	offered := grant.State == pace.Offered && grant.Tag == f.enter
	declined := grant.ID != "" && grant.ID == g.permit.Report.Answered(cluster.VersionChange).Declined
	return paced && g.known && !offered && !declined && !g.verify && g.read && f.enter != "" && f.leave == "" && f.report == "" && f.record.ID == "" && f.record.Intent == nil
}

// offerNoticed makes the permit of what the watches delivered, if that is an offer which
// the host can accept. No request is needed then: the acceptance holds only while all of
// it is so.
func (g *Grantee) offerNoticed(f *grantFacts) bool {
	if !g.read || f.enter == "" || f.leave != "" || f.report != "" || f.record.ID != "" || f.record.Intent != nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.verify {
		return false
	}
	p, err := g.o.Rollouts.Noticed(g.o.Node, g.noticed, g.permit.Report)
	if err != nil || p.Report.Answered(cluster.VersionChange).Open() {
		return false
	}
	p.Roles = g.roles()
	if free, _ := p.Free(f.enter, time.Now()); free {
		return false // this is read
	}
	if ok, _ := p.Offer(f.enter, time.Now()); !ok {
		return false
	}
	g.stale = false
	g.permit, f.permit, f.waits = p, p, false
	return true
}

// refresh reads what is stored.
func (g *Grantee) refresh(ctx context.Context, f *grantFacts) error {
	g.mu.Lock()
	g.stale, g.verify = false, false
	g.mu.Unlock()
	p, err := g.o.Rollouts.Permit(ctx, g.o.Node)
	if err != nil {
		g.change(func() bool { return true })
		return err
	}
	p.Roles = g.roles()
	g.permit, f.permit, f.waits, g.read = p, p, false, true
	return nil
}

func (g *Grantee) roles() []string {
	if g.o.Roles == nil {
		return nil
	}
	return g.o.Roles()
}

// keep writes the record down before anything follows from it.
func (g *Grantee) keep(r grantRecord) error {
	if err := writeGrant(g.file, r); err != nil {
		return err
	}
	g.record = r
	return nil
}

// perform carries out one action.
func (g *Grantee) perform(ctx context.Context, f grantFacts, do grantAction, why string, enter, report, leave *request) error {
	r, old := g.record, f.permit.Report.Answered(cluster.VersionChange)
	switch do {
	case grantNothing:
	case grantAdopt:
		return g.keep(r.accepted())
	case grantForget:
		r.Intent = nil
		return g.keep(r)
	case grantClose:
		return g.keep(grantRecord{Intent: r.Intent})
	case grantReassert:
		return g.answer(ctx, old, r.answer(old))
	case grantLost:
		g.o.Log.Warn("this host has a grant that it does not know: its record was lost", "grant", old.ID, "version", old.Tag)
		lost := grantRecord{ID: old.ID, Version: old.Tag, Since: old.Since, Failed: "the host lost its record of the grant", Stranded: old.State == cluster.GrantStranded, Intent: r.Intent}
		if err := g.keep(lost); err != nil {
			return err
		}
		return g.answer(ctx, old, lost.answer(old))
	case grantStrand:
		r.Stranded = true
		if err := g.keep(r); err != nil {
			return err
		}
		return g.answer(ctx, old, r.answer(old))
	case grantDecline:
		next := old
		next.Declined, next.Reason, next.Ready = f.permit.Grant.ID, why, false
		return g.answer(ctx, old, next)
	case grantReady:
		next := old
		next.Ready = true
		return g.answer(ctx, old, next)
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
		g.finished(&g.enter, enter)
	case grantLift:
		return g.lift(ctx, r, cmp.Or(f.leave, f.report))
	case grantFinish:
		return g.finish(ctx, r, old, report)
	case grantSeparate:
		g.reportSeparately(report)
	case grantLeft:
		g.finished(&g.leave, leave)
	}
	return nil
}

// finish ends the grant, in the transaction of the report that is to be written, if one is.
func (g *Grantee) finish(ctx context.Context, r grantRecord, old cluster.Answer, report *request) error {
	next := r.answer(old)
	next.State, next.Reason, next.Ended = cluster.GrantDone, "", time.Now().UTC().Truncate(time.Second)
	change := func(d cluster.Report) cluster.Report { return d }
	if report != nil {
		change = report.change
	}
	if written, err := g.answerWith(ctx, old, next, change); err != nil || !written {
		return err
	}
	g.o.Log.Info("the grant is done", "version", r.Version)
	err := g.keep(grantRecord{Intent: r.Intent})
	g.finished(&g.report, report) // also after an error: it is written
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
func (g *Grantee) lift(ctx context.Context, r grantRecord, version string) error {
	if r.ID != "" && !r.Recorded && version == r.Version {
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
func (g *Grantee) accept(ctx context.Context, f grantFacts) error {
	now := time.Now().UTC().Truncate(time.Second)
	r := g.record
	r.Intent = &grantIntent{ID: f.permit.Grant.ID, Version: f.permit.Grant.Tag, Since: now, Until: f.permit.Grant.Until}
	if err := g.keep(r); err != nil {
		return err
	}
	old, next := f.permit.Report.Answered(cluster.VersionChange), r.accepted().answer(cluster.Answer{})
	_, err := g.o.Report.ChangeFenced(ctx, func(d cluster.Report) (cluster.Report, error) {
		switch d.Answered(cluster.VersionChange) {
		case old:
		case next:
			return d, nil
		default:
			return d, errOtherAnswer
		}
		return d.With(cluster.CategoryConfig, cluster.CategoryState{State: cluster.StateRunning, Version: next.Tag}, now).WithAnswer(next), nil
	}, f.permit.Fence)
	switch {
	case errors.Is(err, kv.ErrConflict), errors.Is(err, errOtherAnswer), errors.Is(err, consul.ErrOutcomeUnknown):
		g.change(func() bool { g.verify = true; return true })
		return nil
	case err != nil:
		return err
	}
	g.o.Log.Info("accepted a grant", "grant", next.ID, "version", next.Tag)
	g.permit.Report = g.permit.Report.WithAnswer(next)
	g.record = r.accepted() // after a crash before it is written the report says that the intent was carried out
	return nil
}

// errOtherAnswer: the stored report does not have the answer that was decided on.
var errOtherAnswer = errors.New("the report has another answer")

// answer replaces what the report says of grants, if that is as it was decided on.
func (g *Grantee) answer(ctx context.Context, old, next cluster.Answer) error {
	_, err := g.answerWith(ctx, old, next, func(d cluster.Report) cluster.Report { return d })
	return err
}

// answerWith is answer with another change of the report in the same transaction. Where
// written is false, what is stored is another answer, or not known, and is read again.
func (g *Grantee) answerWith(
	ctx context.Context, old, next cluster.Answer, also func(cluster.Report) cluster.Report,
) (written bool, err error) {
	_, err = g.o.Report.Change(ctx, func(d cluster.Report) (cluster.Report, error) {
		if now := d.Answered(cluster.VersionChange); now != old && now != next {
			return d, errOtherAnswer
		}
		return also(d).WithAnswer(next), nil
	})
	if errors.Is(err, errOtherAnswer) || errors.Is(err, consul.ErrOutcomeUnknown) {
		g.change(func() bool { return true })
		return false, nil
	}
	if err == nil {
		g.permit.Report = g.permit.Report.WithAnswer(next)
	}
	return err == nil, err
}
