package stage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/kv"
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

// Part is this host's part in its cluster, without which no turn is taken.
type Part struct {
	Stages *Stages
	Report *cluster.ReportWriter // this host's
	Roles  func() []string       // of this host, on which freezes depend; nil: none
	// Failing reads the failing checks of this host's Consul agent, each with its
	// service; services are the ones that must have an instance, none: all checks count.
	Failing func(ctx context.Context, services []string) ([]string, error)
}

// Hosts is the host's side of its stages: it takes turns for the template engine,
// watches the checks after that, and brings the old files back. What it holds is on
// the disk and in Consul, so it outlives the process.
type Hosts struct {
	stateDir string
	log      hclog.Logger
	changes  concurrency.Signal

	mu      sync.Mutex
	files   Files // as of the last Begin
	begun   bool
	part    *Part // nil: no part runs
	drivers map[string]*driver
}

// NewHosts returns a host that keeps its records in stateDir. It does no I/O.
func NewHosts(stateDir string, log hclog.Logger) *Hosts {
	return &Hosts{stateDir: stateDir, log: log, changes: concurrency.NewSignal(), drivers: map[string]*driver{}}
}

// Changes implements watch.Stager.
func (h *Hosts) Changes() <-chan struct{} { return h.changes.C() }

// Overdue reports whether the unit's replacement belongs to a turn that was interrupted and
// is over by its deadline: it goes back. Call it before Begin, for the stages of the
// configuration.
func (h *Hosts) Overdue(unit string, stages []config.Stage) bool {
	for _, s := range stages {
		d := h.driver(s.Name)
		d.mu.Lock()
		d.load()
		turn := d.record.Turn
		d.mu.Unlock()
		if turn.Unit == unit && turn.overdue() {
			return true
		}
	}
	return false
}

// Begin notes with what files are replaced from now on, after interrupted
// replacements were repaired and before the engine runs: a turn that was interrupted
// is compared with the files.
func (h *Hosts) Begin(f Files, stages []config.Stage) {
	h.mu.Lock()
	h.files, h.begun = f, true
	h.mu.Unlock()
	for _, s := range stages {
		d := h.driver(s.Name)
		d.mu.Lock()
		d.load()
		d.conf = s
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

// Run takes part in the cluster with these stages until ctx ends; then it returns nil.
func (h *Hosts) Run(ctx context.Context, p Part, stages []config.Stage) error {
	h.setPart(&p)
	defer h.setPart(nil)
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range stages {
		d := h.driver(s.Name)
		d.configure(s)
		g.Go(func() error { return d.drive(ctx) })
		g.Go(func() error { return d.report(ctx, p) })
		g.Go(func() error { return d.watchTurn(ctx, p) })
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
		_, err := p.Report.Change(ctx, func(r cluster.Report) (cluster.Report, error) {
			for name := range r.Stages {
				if !slices.ContainsFunc(stages, func(s config.Stage) bool { return s.Name == name }) {
					r = r.WithoutStage(name)
				}
			}
			return r, nil
		})
		return err
	}, nil)
}

// driver drives one stage of this host.
//
// reporting is held while the report is written or a turn is taken, so that no
// older report replaces a newer one. It is locked before mu.
type driver struct {
	hosts *Hosts
	stage string
	dir   string
	log   hclog.Logger

	news       concurrency.Signal // for drive
	unreported concurrency.Signal // for report

	reporting sync.Mutex

	mu       sync.Mutex
	conf     config.Stage
	loaded   bool
	record   record
	compared bool // the stored report was compared with the record
	asked    bool // the engine asked since this process began: wants says what the host wants now
	wants    string
	wanted   time.Time // since when the host wants that
	changed  cluster.StageInputs
	turn     Turn
	healthy  time.Time // since when they pass; zero: they do not
	sampled  time.Time // when they were last read
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
	r, err := readRecord(d.dir)
	if err != nil {
		d.log.Error("this host lost what it knew of the stage", "error", err)
	}
	d.record, d.loaded = r, true
	before := r.Turn
	if r.Turn = before.resumed(); r.Turn.Begun != before.Begun || r.Turn.Settling != before.Settling {
		d.mustKeep(r)
	}
}

// keep writes the record. The caller holds mu.
func (d *driver) keep(r record) error {
	if err := writeRecord(d.dir, r); err != nil {
		return fmt.Errorf("record of stage %q: %w", d.stage, err)
	}
	d.record = r
	return nil
}

func (d *driver) refused(why string) error {
	return &watch.TurnError{Stage: d.stage, Why: why}
}

// Take implements watch.Stager.
func (h *Hosts) Take(ctx context.Context, s watch.Staged) error {
	d := h.driver(s.Stage.Name)
	part, files, begun := h.current()
	ready, err := d.ask(s, files)
	if err != nil || ready {
		return err
	}
	if part == nil || !begun {
		return d.refused("this host's part in its cluster has not begun")
	}
	d.reporting.Lock()
	defer d.reporting.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.accept(ctx, *part, files, s)
}

// ask notes that the host wants s. ready: it may replace its files without another
// turn.
func (d *driver) ask(s watch.Staged, files Files) (ready bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.load()
	d.conf, d.asked = s.Stage, true
	turn := d.record.Turn
	if turn.State == cluster.StageChanging && turn.Content != s.Content {
		// The turn was taken, and then other data came, before a file was replaced.
		if has, err := turn.onDisk(files.Compare); err == nil && has == turn.OldHas {
			r := d.record
			r.Turn.State = ""
			if err := d.keep(r); err != nil {
				return false, err
			}
			turn = r.Turn
		}
	}
	switch {
	case turn.State == cluster.StageChanging && turn.Content == s.Content:
		return true, nil
	case !turn.open() && d.record.Has != "" && d.record.Has == s.Content:
		return true, nil // another program changed the file
	}
	d.want(s.Content, changedInputs(d.record.Inputs, recordedInputs(s.Inputs)))
	switch {
	case turn.open():
		return false, d.refused("the host is at work on its last turn: " + turn.State)
	case turn.State == intended:
		d.news.Notify()
		return false, d.refused("it is not known what became of its last turn")
	case !d.offered():
		return false, d.refused("waits for its turn")
	}
	return false, nil
}

// want notes what the host wants. The caller holds mu.
func (d *driver) want(content string, changed cluster.StageInputs) {
	if content != d.wants || d.wanted.IsZero() {
		d.wanted = time.Now().UTC().Truncate(time.Second)
	}
	d.wants, d.changed = content, changed
	d.unreported.Notify()
}

// offered reports whether there is a turn for what the host wants. The caller holds mu.
func (d *driver) offered() bool {
	return d.turn.ID != "" && !d.turn.Withdrawn && d.turn.Content == d.wants && d.turn.ID != d.record.Turn.ID
}

// accept takes the turn: the old files are kept and the intent is written down, then
// one transaction takes it, which holds only while the offer does. The caller holds
// both locks.
func (d *driver) accept(ctx context.Context, p Part, files Files, s watch.Staged) error {
	before := d.record
	permit, err := p.Stages.permit(ctx, p.Report, d.stage)
	if err != nil {
		return fmt.Errorf("stage %q: %w", d.stage, err)
	}
	if p.Roles != nil {
		permit.roles = p.Roles()
	}
	if why := permit.refuses(s.Content, d.changed); why != "" {
		return d.refused(why)
	}
	if err := d.intend(permit, files, s); err != nil {
		return err
	}
	next := d.record
	next.Turn.State = cluster.StageChanging
	_, err = p.Report.ChangeFenced(ctx, func(r cluster.Report) (cluster.Report, error) {
		return r.WithStage(d.stage, d.reportOf(next)), nil
	}, permit.fence)
	switch {
	case errors.Is(err, kv.ErrConflict):
		if err := d.keep(before); err != nil {
			return err
		}
		return d.refused("its turn was withdrawn")
	case err != nil:
		d.news.Notify() // what became of it is not known
		return fmt.Errorf("stage %q: take the turn: %w", d.stage, err)
	}
	if err := d.keep(next); err != nil {
		d.news.Notify()
		return err
	}
	d.log.Info("took a turn", "turn", next.Turn.ID, "changed", next.Turn.Taken.Names())
	d.unreported.Notify()
	return nil
}

// intend keeps the old files and writes the intent down.
func (d *driver) intend(permit permit, files Files, s watch.Staged) error {
	old, err := keepOld(d.dir, s.Files, files.Compare)
	if err != nil {
		return fmt.Errorf("stage %q: keep the old files: %w", d.stage, err)
	}
	r := d.record
	r.Turn = turnRecord{
		ID: permit.turn.Value.ID, State: intended, Since: time.Now().UTC().Truncate(time.Second), Content: s.Content, Taken: d.changed,
		Inputs: recordedInputs(s.Inputs), Unit: s.Unit, Files: old, OldInputs: r.Inputs,
		Restore: s.Stage.OnUnhealthy != config.OnUnhealthyStop, MinHealthy: s.Stage.MinHealthy, Deadline: s.Stage.NodeDeadline, Begun: durable.StartStopwatch(), Services: s.Stage.Services,
	}
	if r.Turn.OldHas, err = r.Turn.onDisk(files.Compare); err != nil {
		return fmt.Errorf("stage %q: %w", d.stage, err)
	}
	return d.keep(r)
}

// Replaced implements watch.Stager.
func (h *Hosts) Replaced(s watch.Staged, taken bool, err error) {
	d := h.driver(s.Stage.Name)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.load()
	defer d.news.Notify()
	turn := d.record.Turn
	own := turn.State == cluster.StageChanging && turn.Content == s.Content
	switch {
	case own && err == nil:
		d.settle(recordedInputs(s.Inputs))
	case own && taken && !errors.Is(err, context.Canceled) && !errors.Is(err, replace.ErrAbandoned):
		d.notReplaced(err)
	case errors.Is(err, watch.ErrTurn), errors.Is(err, context.Canceled), own: // the host wants what it wanted
	case err != nil: // such as a check that failed: the host wants nothing that it could take
		d.asked = true
		d.want("", cluster.StageInputs{})
	default:
		d.has(s)
	}
}

// has notes that the files are as s says. The caller holds mu.
func (d *driver) has(s watch.Staged) {
	d.asked = true
	d.want("", cluster.StageInputs{})
	inputs := recordedInputs(s.Inputs)
	gone := d.record.Turn.State == cluster.StageFailed && d.record.Turn.Content != s.Content // what failed is no longer on the disk
	if !gone && d.record.Has == s.Content && text.SameJSON(d.record.Inputs, inputs) {
		return
	}
	r := d.record
	r.Has, r.Inputs = s.Content, inputs
	if gone {
		r.Turn.State = cluster.StageRestored
	}
	if err := d.keep(r); err != nil {
		d.log.Warn("what the files are made of is not recorded; more may count as changed later", "error", err)
	}
}

// settle begins to watch the checks: the new files are in place. The caller holds mu.
func (d *driver) settle(inputs map[string]input) {
	r := d.record
	r.Has, r.Inputs = r.Turn.Content, inputs
	r.Turn.State, r.Turn.Settling = cluster.StageSettling, durable.StartStopwatch()
	d.want("", cluster.StageInputs{})
	d.healthy = time.Time{}
	d.mustKeep(r)
}

// mustKeep writes the record; what it says holds also if it cannot be written: the
// next start finds an earlier state of the same turn, and compares the files. The
// caller holds mu.
func (d *driver) mustKeep(r record) {
	if err := d.keep(r); err != nil {
		d.log.Error("the record of the stage cannot be written", "error", err)
		d.record = r
	}
	d.unreported.Notify()
}

// notReplaced ends a turn whose files could not be replaced or reloaded. The
// caller holds mu.
func (d *driver) notReplaced(err error) {
	r := d.record
	// The report and the events reach readers who may not see what a command printed.
	r.Turn.State, r.Turn.Reason = cluster.StageRestored, command.WithoutOutput(err)
	var failed *replace.ReloadError
	if errors.As(err, &failed) && !failed.RolledBack {
		r.Turn.State = cluster.StageFailed
	}
	d.want(r.Turn.Content, r.Turn.Taken) // until the engine asks again
	d.mustKeep(r)
	d.log.Error("a change failed on this host", "turn", r.Turn.ID, "error", err)
	d.hosts.changes.Notify()
}

// watchTurn follows the host's turn.
func (d *driver) watchTurn(ctx context.Context, p Part) error {
	return p.Stages.turn(p.Report.Node(), d.stage).Watch(ctx, func(u kv.Update[Turn]) {
		if u.Err != nil {
			return
		}
		d.mu.Lock()
		d.turn = u.Entry.Value
		if u.Reset {
			d.compared = false
		}
		offered := d.offered()
		d.mu.Unlock()
		d.unreported.Notify()
		if offered {
			d.hosts.changes.Notify()
		}
	})
}

// report keeps the host's report in line with the record, until ctx ends.
func (d *driver) report(ctx context.Context, p Part) error {
	retry := concurrency.NewBackoff(firstRetry, lastRetry)
	for ctx.Err() == nil {
		if err := d.sync(ctx, p); err != nil {
			d.log.Debug("cannot report the stage, will retry", "error", err)
			_ = concurrency.Sleep(ctx, retry.Next()) // ends with ctx
			continue
		}
		retry.Reset()
		_ = d.unreported.Wait(ctx) // ends with ctx
	}
	return ctx.Err()
}

// sync writes the report, if it differs. The report is compared with the record first:
// a turn that the record does not know was taken by a host that lost it.
func (d *driver) sync(ctx context.Context, p Part) error {
	d.reporting.Lock()
	defer d.reporting.Unlock()
	d.mu.Lock()
	d.load()
	compared, state := d.compared, d.record.Turn.State
	d.mu.Unlock()
	if state == intended {
		return nil // drive decides
	}
	if !compared {
		permit, err := p.Stages.permit(ctx, p.Report, d.stage)
		if err != nil {
			return err
		}
		d.compare(permit.report.Stages[d.stage])
	}
	d.mu.Lock()
	report := d.reportOf(d.record)
	d.mu.Unlock()
	_, err := p.Report.Change(ctx, func(r cluster.Report) (cluster.Report, error) {
		return r.WithStage(d.stage, report), nil
	})
	return err
}

// compare takes in what the host reported before it started. The caller holds reporting.
func (d *driver) compare(stored cluster.StageReport) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.compared = true
	switch {
	case !d.asked && d.wants == "": // what the host wanted holds until the engine asks
		d.wants, d.changed, d.wanted = stored.Wants, stored.Changed, stored.WantsSince
	case d.wants == stored.Wants && !stored.WantsSince.IsZero():
		d.wanted = stored.WantsSince
	}
	if !stored.Open() || stored.Turn == d.record.Turn.ID {
		return
	}
	d.log.Error("this host took a turn that it does not know: its record was lost", "turn", stored.Turn)
	r := d.record
	r.Turn = turnRecord{
		ID: stored.Turn, State: cluster.StageFailed, Since: stored.Since, Content: stored.Content, Taken: stored.Taken,
		Reason: "the host lost its record of the turn: it is not known whether its files are old or new",
	}
	d.mustKeep(r)
}

// reportOf is what the host reports of a record. The caller holds mu.
func (d *driver) reportOf(r record) cluster.StageReport {
	report := cluster.StageReport{
		Policy: reportedPolicy(d.conf),
		Wants:  d.wants, Changed: d.changed, Rendered: r.Has != "",
		Turn: r.Turn.ID, Content: r.Turn.Content, Taken: r.Turn.Taken, State: r.Turn.State, Since: r.Turn.Since, Reason: r.Turn.Reason,
	}
	if report.Open() && report.Wants == report.Content {
		report.Wants, report.Changed = "", cluster.StageInputs{}
	}
	if report.Wants != "" {
		report.WantsSince = d.wanted
	}
	return report
}
