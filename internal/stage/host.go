package stage

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

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/replace"
	"github.com/jorc/jorc/internal/text"
	"github.com/jorc/jorc/internal/watch"
)

// Replacer brings files to disk and reads them.
type Replacer interface {
	Replace(ctx context.Context, u replace.Unit) (replace.Outcome, error)
}

// Files are how a host reaches the files of its stages.
type Files struct {
	Replacer
	Compare func(replace.File) (current []byte, same bool, err error)
}

// Part is this host's part in its cluster, without which no grant is accepted.
type Part struct {
	Host *change.Host
	// Failing reads the failing checks of this host's Consul agent, each with its
	// service; services are the ones that must have an instance, none: all checks count.
	Failing func(ctx context.Context, services []string) ([]string, error)
}

// Hosts is the host's side of its stages: it accepts grants for the template engine,
// watches the checks after that, and brings the old files back. What it holds is on
// the disk and in Consul, so it outlives the process.
type Hosts struct {
	stateDir string
	clock    durable.Clock // of the host
	log      hclog.Logger
	changes  concurrency.Signal

	mu      sync.Mutex
	files   Files // as of the last Begin
	begun   bool
	part    *Part // nil: no part runs
	drivers map[string]*driver
}

// NewHosts returns a host that keeps its records in stateDir. It does no I/O.
func NewHosts(stateDir string, clock durable.Clock, log hclog.Logger) *Hosts {
	return &Hosts{stateDir: stateDir, clock: clock, log: log, changes: concurrency.NewSignal(), drivers: map[string]*driver{}}
}

// Changes implements watch.Stager.
func (h *Hosts) Changes() <-chan struct{} { return h.changes.C() }

// Overdue reports whether the unit's replacement belongs to an attempt that was interrupted and
// is over by its deadline: it goes back. Call it before Begin, for the stages of the
// configuration.
func (h *Hosts) Overdue(unit string, stages []config.Stage) bool {
	for _, s := range stages {
		d := h.driver(s.Name)
		d.mu.Lock()
		d.load()
		attempt := d.record.Attempt
		d.mu.Unlock()
		if attempt.Unit == unit && attempt.overdue(h.clock) {
			return true
		}
	}
	return false
}

// Begin notes with what files are replaced from now on, after interrupted
// replacements were repaired and before the engine runs: an attempt that was interrupted
// is compared with the files.
func (h *Hosts) Begin(f Files, stages []config.Stage) {
	h.mu.Lock()
	h.files, h.begun = f, true
	h.mu.Unlock()
	for _, s := range stages {
		d := h.driver(s.Name)
		d.mu.Lock()
		d.load()
		d.conf, d.taking = s, false
		d.verify(f)
		d.mu.Unlock()
		d.news.Notify()
	}
}

// driver returns the driver of a stage.
func (h *Hosts) driver(stage string) *driver {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.drivers[stage]
	if d == nil {
		d = &driver{
			hosts: h, stage: stage, dir: dir(h.stateDir, stage), log: h.log.With("stage", stage),
			news: concurrency.NewSignal(), unreported: concurrency.NewSignal(),
		}
		h.drivers[stage] = d
	}
	return d
}

func (h *Hosts) current() (p *Part, f Files, begun bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.part, h.files, h.begun
}

func (h *Hosts) setPart(p *Part) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.part = p
}

// Run takes part in the cluster with these stages until ctx ends; then it returns nil. p.Host must be running.
func (h *Hosts) Run(ctx context.Context, p Part, stages []config.Stage) error {
	h.setPart(&p)
	defer h.setPart(nil)
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range stages {
		d := h.driver(s.Name)
		d.configure(s)
		g.Go(func() error { return d.drive(ctx) })
		g.Go(func() error { return p.Host.Drive(ctx, &driven{d, p.Host}, d.unreported) })
	}
	g.Go(func() error { return h.forget(ctx, p, stages) })
	h.changes.Notify()
	if err := g.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

// Pauses after a report that failed.
const firstRetry, lastRetry = 200 * time.Millisecond, 10 * time.Second

// forget removes stages from the report that the host no longer has.
func (h *Hosts) forget(ctx context.Context, p Part, stages []config.Stage) error {
	return concurrency.Retry(ctx, concurrency.NewBackoff(firstRetry, lastRetry), func(ctx context.Context) error {
		return p.Host.Write(ctx, func(r cluster.Report) cluster.Report {
			for name := range r.Stages {
				if !slices.ContainsFunc(stages, func(s config.Stage) bool { return s.Name == name }) {
					r = r.WithoutStage(name)
				}
			}
			return r
		})
	}, nil)
}

// driver drives one stage of this host.
type driver struct {
	hosts *Hosts
	stage string
	dir   string
	log   hclog.Logger

	news       concurrency.Signal // for drive
	unreported concurrency.Signal // for driven

	mu       sync.Mutex
	conf     config.Stage
	loaded   bool
	record   record
	compared bool // what the host wanted before it started is known
	asked    bool // the engine asked since this process began: wants says what the host wants now
	wants    string
	wanted   time.Time // since when the host wants that
	changed  cluster.StageInputs
	offer    string        // ID of the offer that it was last asked about
	asking   *watch.Staged // what the engine asked for since then, without the data; nil: nothing
	why      string        // why the offer is not accepted; empty: that is not known
	taking   bool          // the engine replaces the files
	healthy  time.Time     // since when they pass; zero: they do not
	sampled  time.Time     // when they were last read
}

func (d *driver) configure(s config.Stage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conf, d.compared = s, false
	d.unreported.Notify()
}

// load reads the record once. A damaged record counts as absent. The caller holds mu.
func (d *driver) load() {
	if d.loaded {
		return
	}
	r, _, err := recordIn(d.dir).Load()
	if err != nil {
		d.log.Error("this host lost what it knew of the stage", "error", err)
	}
	d.record, d.loaded = r, true
	before := r.Attempt
	if r.Attempt = before.resumed(d.hosts.clock); r.Attempt.Begun != before.Begun || r.Attempt.Settling != before.Settling {
		d.mustKeep(r)
	}
}

// keep writes the record. An attempt that is over ends its grant. The caller holds mu.
func (d *driver) keep(r record) error {
	r = r.settled(time.Now())
	if err := recordIn(d.dir).Save(r); err != nil {
		return fmt.Errorf("record of stage %q: %w", d.stage, err)
	}
	d.record = r
	return nil
}

func (d *driver) refused(why string) error {
	return &watch.NotTakenError{Stage: d.stage, Why: why}
}

// Take implements watch.Stager.
func (h *Hosts) Take(_ context.Context, s watch.Staged) error {
	d := h.driver(s.Stage.Name)
	part, files, begun := h.current()
	ready, err := d.ask(s, files)
	switch {
	case err != nil || ready:
		return err
	case part == nil || !begun:
		return d.refused("this host's part in its cluster has not begun")
	}
	return d.refused(d.waits())
}

// ask notes that the engine asks for s. ready: it may replace its files without another
// attempt.
func (d *driver) ask(s watch.Staged, files Files) (ready bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.load()
	d.conf, d.asked = s.Stage, true
	taken := d.record.Attempt.State == cluster.StageChanging
	if taken && d.record.Grant.Tag != s.Content {
		// It was accepted, and then other data came, before a file was replaced.
		if has, err := d.record.Attempt.onDisk(files.Compare); err == nil && has == d.record.Attempt.OldHas {
			if err := d.keep(d.record.unused()); err != nil {
				return false, err
			}
		}
	}
	attempt := d.record.Attempt
	switch {
	case taken && d.record.Grant.Tag == s.Content:
		d.taking = true
		return true, nil
	case !attempt.open() && d.record.Has != "" && d.record.Has == s.Content:
		return true, nil // another program changed the file
	}
	asking := s
	asking.Files = slices.Clone(s.Files)
	for i := range asking.Files {
		asking.Files[i].Data = nil
	}
	d.asking = &asking
	d.want(s.Content, changedInputs(d.record.Inputs, recordedInputs(s.Inputs)))
	if attempt.open() {
		return false, d.refused("the host is at work on its last attempt: " + attempt.State)
	}
	return false, nil
}

// waits is what the host waits for.
func (d *driver) waits() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return cmp.Or(d.why, "waits for its grant")
}

// want notes what the host wants. The caller holds mu.
func (d *driver) want(content string, changed cluster.StageInputs) {
	if content != d.wants || d.wanted.IsZero() {
		d.wanted = time.Now().UTC().Truncate(time.Second)
	}
	d.wants, d.changed = content, changed
	d.unreported.Notify()
}

// Replaced implements watch.Stager.
func (h *Hosts) Replaced(s watch.Staged, taken bool, err error) {
	d := h.driver(s.Stage.Name)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.load()
	defer d.news.Notify()
	d.taking = false
	own := d.record.Attempt.State == cluster.StageChanging && d.record.Grant.Tag == s.Content
	switch {
	case own && err == nil:
		d.settle(recordedInputs(s.Inputs))
	case own && taken && !errors.Is(err, context.Canceled) && !errors.Is(err, replace.ErrAbandoned):
		d.notReplaced(err)
	case errors.Is(err, watch.ErrNotTaken), errors.Is(err, context.Canceled), own: // the host wants what it wanted
	case err != nil: // such as a check that failed: the host wants nothing that it could take
		d.asked, d.asking = true, nil
		d.want("", cluster.StageInputs{})
	default:
		d.has(s)
	}
}

// has notes that the files are as s says. The caller holds mu.
func (d *driver) has(s watch.Staged) {
	d.asked, d.asking = true, nil
	d.want("", cluster.StageInputs{})
	inputs := recordedInputs(s.Inputs)
	other := d.record.Grant.Tag != s.Content
	gone := other && d.record.Attempt.State == cluster.StageFailed     // what failed is no longer on the disk
	unused := other && d.record.Attempt.State == cluster.StageChanging // the data was set back before a file was replaced
	if !gone && !unused && d.record.Has == s.Content && text.SameJSON(d.record.Inputs, inputs) {
		return
	}
	r := d.record
	r.Has, r.Inputs = s.Content, inputs
	switch {
	case gone:
		r.Attempt.State = cluster.StageRestored
	case unused:
		r = r.unused()
	}
	if err := d.keep(r); err != nil {
		d.log.Warn("what the files are made of is not recorded; more may count as changed later", "error", err)
	}
}

// settle begins to watch the checks: the new files are in place. The caller holds mu.
func (d *driver) settle(inputs map[string]input) {
	r := d.record
	r.Has, r.Inputs = r.Grant.Tag, inputs
	r.Attempt.State, r.Attempt.Settling = cluster.StageSettling, d.hosts.clock.Start()
	d.want("", cluster.StageInputs{})
	d.healthy = time.Time{}
	d.mustKeep(r)
}

// mustKeep writes the record; what it says holds also if it cannot be written: the
// next start finds an earlier state of the same attempt, and compares the files. The
// caller holds mu.
func (d *driver) mustKeep(r record) {
	if err := d.keep(r); err != nil {
		d.log.Error("the record of the stage cannot be written", "error", err)
		d.record = r.settled(time.Now())
	}
	d.unreported.Notify()
}

// notReplaced ends an attempt whose files could not be replaced or reloaded. The
// caller holds mu.
func (d *driver) notReplaced(err error) {
	r := d.record
	// The report and the events reach readers who may not see what a command printed.
	r.Attempt.State, r.Attempt.Reason = cluster.StageRestored, command.WithoutOutput(err)
	var failed *replace.ReloadError
	if errors.As(err, &failed) && !failed.RolledBack {
		r.Attempt.State = cluster.StageFailed
	}
	d.want(r.Grant.Tag, r.Attempt.Taken) // until the engine asks again
	d.mustKeep(r)
	d.log.Error("a change failed on this host", "grant", r.Grant.ID, "error", err)
	d.hosts.changes.Notify()
}

// driven is the stage as the host drives it, a change.Part.
type driven struct {
	*driver
	host *change.Host
}

// Change implements change.Part.
func (d *driven) Change() string { return cluster.FilesChange(d.stage) }

// Look implements change.Part.
func (d *driven) Look(s *change.Seen, _ error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.load()
	if s.Known && !d.compared {
		d.compare(s.Report.Stages[d.stage])
		d.remember(s.Answered(d.Change()))
	}
	g := s.Granted(d.Change())
	if g.State != pace.Offered || g.ID == d.offer {
		return
	}
	// The engine is asked what it wants now: what is accepted is replaced at once.
	d.offer, d.asking = g.ID, nil
	d.hosts.changes.Notify()
}

// Held implements change.Part.
func (d *driven) Held() (held change.Held, asks bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.record.Grant, true
}

// Keep implements change.Part: the old files are kept before a grant may be accepted.
func (d *driven) Keep(held change.Held) error {
	_, files, _ := d.hosts.current()
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.record
	switch {
	case held.Intent != nil:
		next, err := d.prepare(files, held.Intent.Tag)
		if err != nil {
			return err
		}
		r.Intended = &next
	case held.Open() && held.ID != r.Grant.ID && r.Intended != nil:
		r.Attempt, r.Intended = *r.Intended, nil
		d.log.Info("took a grant", "grant", held.ID, "changed", r.Attempt.Taken.Names())
		d.hosts.changes.Notify()
		d.news.Notify()
	default:
		r.Intended = nil
	}
	r.Grant = held
	return d.keep(r)
}

// prepare keeps the old files, and returns the attempt as it begins. The caller holds mu.
func (d *driven) prepare(files Files, content string) (attempt attemptRecord, err error) {
	s := d.asking
	if s == nil || s.Content != content {
		return attempt, change.ErrFollows // the engine has asked for other content meanwhile
	}
	old, err := keepOld(d.dir, s.Files, files.Compare)
	if err != nil {
		return attempt, fmt.Errorf("stage %q: keep the old files: %w", d.stage, err)
	}
	attempt = attemptRecord{
		State: cluster.StageChanging, Taken: d.changed, Inputs: recordedInputs(s.Inputs), Unit: s.Unit, Files: old, OldInputs: d.record.Inputs,
		Restore: s.Stage.OnUnhealthy != config.OnUnhealthyStop, MinHealthy: s.Stage.MinHealthy, Deadline: s.Stage.NodeDeadline, Begun: d.hosts.clock.Start(), Services: s.Stage.Services,
	}
	if attempt.OldHas, err = attempt.onDisk(files.Compare); err != nil {
		return attempt, fmt.Errorf("stage %q: %w", d.stage, err)
	}
	return attempt, nil
}

// Lose implements change.Part.
func (d *driven) Lose(_ context.Context, a cluster.Answer) error {
	report, _ := d.host.Reported()
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.record
	r.Grant, r.Intended = change.Held{ID: a.ID, Tag: a.Tag, Since: a.Since}, nil
	r.Attempt = attemptRecord{
		State: cluster.StageFailed, Taken: report.Stages[d.stage].Taken,
		Reason: "the host lost its record of the grant: it is not known whether its files are old or new",
	}
	d.mustKeep(r)
	return nil
}

// Says implements change.Part.
func (d *driven) Says(r cluster.Report) cluster.Report {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.says(r, d.record)
}

// says is what the host reports of a record. The caller holds mu.
func (d *driven) says(r cluster.Report, of record) cluster.Report {
	return r.WithStage(d.stage, d.reportOf(of)).WithAnswer(of.Grant.Answer(d.Change()))
}

// Next implements change.Part.
func (d *driven) Next(s *change.Seen, now time.Time) change.Step {
	_, _, begun := d.hosts.current()
	d.mu.Lock()
	says, g := d.says(s.Report, d.record), s.Granted(d.Change())
	wants := begun && d.asking != nil && d.asking.Content == g.Tag && !d.record.Attempt.open() && g.ID != d.record.Grant.ID
	d.why = refuses(s, g, now)
	refused := d.why != ""
	d.mu.Unlock()
	switch id := d.Change(); {
	case !text.SameJSON(says.Stages[d.stage], s.Report.Stages[d.stage]) || says.Answered(id) != s.Answered(id):
		return change.Step{Name: "report", Do: func(ctx context.Context) error { return d.host.Write(ctx, d.Says) }}
	case !wants:
		return change.Step{}
	case refused:
		return change.Step{Again: s.Control.Value.Change(now)}
	}
	return d.host.Accept(d, s, g, d.begins, func(t *kv.Txn) { t.CheckIndex(cluster.StageStopsKey(d.stage), g.Spec) })
}

// begins is what a report says beside the acceptance.
func (d *driven) begins(r cluster.Report, _ cluster.Answer) cluster.Report {
	d.mu.Lock()
	defer d.mu.Unlock()
	of := d.record
	if of.Intended != nil {
		of.Attempt, of.Grant = *of.Intended, of.Grant.Accepted()
	}
	return d.says(r, of)
}

// refuses returns why the host does not accept g now; empty: it does.
func refuses(s *change.Seen, g change.Grant, now time.Time) string {
	c := s.Control.Value.At(now)
	frozen, isFrozen := c.Frozen(s.Roles, now)
	switch {
	case c.Paused != nil:
		return "the cluster is paused " + c.Paused.String()
	case c.ObserveOnly != nil:
		return "the cluster is only observed " + c.ObserveOnly.String()
	case isFrozen && !g.DuringFreeze:
		return frozen.String()
	case g.State == pace.Offered && !g.Until.IsZero() && !now.Before(g.Until):
		return "a freeze began, or the window closed, at " + g.Until.UTC().Format(time.RFC3339)
	}
	return ""
}

// compare takes in what the host reported before it started. The caller holds mu.
func (d *driver) compare(stored cluster.StageReport) {
	d.compared = true
	switch {
	case !d.asked && d.wants == "": // what the host wanted holds until the engine asks
		d.wants, d.changed, d.wanted = stored.Wants, stored.Changed, stored.WantsSince
	case d.wants == stored.Wants && !stored.WantsSince.IsZero():
		d.wanted = stored.WantsSince
	}
}

// remember takes in that the host said of a grant that it is over, where its record of that was lost: what was offered may still be
// stored, and must not be accepted again. The caller holds mu.
func (d *driver) remember(said cluster.Answer) {
	if said.ID == "" || said.Open() || d.record.Grant.Open() || d.record.Grant.ID != "" && !change.Earlier(d.record.Grant.ID, said.ID) {
		return
	}
	r, held := d.record, change.Held{ID: said.ID, Tag: said.Tag, Since: said.Since, Ended: said.Ended}
	if intent := r.Grant.Intent; intent != nil && intent.ID != said.ID { // its acceptance may still arrive
		held.Intent = intent
	} else {
		r.Intended = nil
	}
	r.Grant = held
	d.mustKeep(r)
}

// reportOf is what the host reports of a record. The caller holds mu.
func (d *driver) reportOf(r record) cluster.StageReport {
	report := cluster.StageReport{
		Policy: reportedPolicy(d.conf),
		Wants:  d.wants, Changed: d.changed, Rendered: r.Has != "",
		Taken: r.Attempt.Taken, State: r.Attempt.State, Reason: r.Attempt.Reason,
	}
	if report.Open() && report.Wants == r.Grant.Tag {
		report.Wants, report.Changed = "", cluster.StageInputs{}
	}
	if report.Wants != "" {
		report.WantsSince = d.wanted
	}
	return report
}
