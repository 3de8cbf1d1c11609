// Package converge brings this host from the version that it runs to the one
// that is desired, and keeps it there: requirements, admission, the static
// workflow, validation, the record. What to do next is decided by a pure
// function of what is known; every step is on the disk before the next begins,
// so that the next process continues from there after a crash.
package converge

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/workflow"
)

// Options are what a Converger needs. Everything but Static, Report, Desired and Runner
// may be left out.
type Options struct {
	Node        string
	StateDir    string // progress is kept in its file converge.json, what static files were in drift.json
	VersionFile string
	Static      config.Static
	Requires    []config.Requires   // gate the static workflow
	Report      *fleet.ReportWriter // this host's
	// Desired calls handle with the desired version, and whenever it changes, until ctx ends.
	Desired      func(ctx context.Context, handle func(version string, err error)) error
	Runner       Runner
	Requirements Requirements // needed when there are Requires
	Admission    Admission    // nil: this host may update at any time
	Holds        Holds        // nil: nothing holds it
	Checks       Checks       // nil: only the validation workflow decides whether the host works
	// Cycle returns the cycle of static requirements that this host is part of,
	// as names, nil without a cycle. It is called while requirements are
	// missing, seldom.
	Cycle func(ctx context.Context) ([]string, error)
	// Changed is called with every change of the status. It must not block.
	Changed func(Status)
	Log     hclog.Logger
}

// Runner runs workflows. *workflow.Runner is one; its Options.Held has to report
// the same hold as Holds.
type Runner interface {
	Drive(ctx context.Context, j workflow.Job, h workflow.Hooks) (workflow.Result, error)
	Abandon(ctx context.Context, id, why string) (workflow.Result, error)
	Open() ([]workflow.Result, error)
	Forget(id string) error
}

// Requirements reports which services are missing. FromBlocker makes one.
type Requirements interface {
	// Watch calls handle with what is missing, now and whenever that changes,
	// until ctx ends; then it returns ctx's error or nil.
	Watch(ctx context.Context, r []config.Requires, handle func([]Missing)) error
}

// Admission says when this host may be out of service to update. *Grantee is one.
type Admission interface {
	// Run follows the rollout until ctx ends; then it returns ctx's error. The
	// other methods wait for it.
	Run(ctx context.Context, events AdmissionEvents) error
	// Enter returns nil once this host may take itself out of service for
	// version. waiting receives why it has to wait, whenever that changes. A host
	// that was admitted before, also before a restart, is admitted at once.
	Enter(ctx context.Context, version string, waiting func(reason string)) error
	// Blocked passes the reason for which this host could not begin if it were
	// admitted; empty: it could, or has nothing to begin with.
	Blocked(reason string)
	// Report writes the report that version runs, which change makes, and gives back what
	// Enter took in the same transaction, where the host may come back at once. Where it may
	// not, done is false and nothing is written: the report comes first, and Leave after it.
	Report(ctx context.Context, version string, change func(cluster.Report) cluster.Report) (done bool, err error)
	// Leave gives back what Enter took, once the host is as healthy as the
	// policy asks; that may take minutes. Repeating it is not an error. It is
	// called after version runs, was validated and reported; its ctx ends when
	// something else has to be done first, and it is called again later.
	Leave(ctx context.Context, version string) error
}

// AdmissionEvents are what an Admission hears for the converger.
type AdmissionEvents struct {
	Retry    func(Retry) // what an operator asked for last; repeating it changes nothing
	Reassert func()      // others may not know what this host reported
}

// Retry is what an operator asks for: another attempt now.
type Retry struct {
	At time.Time `json:"at"`
	// FromStart: an interrupted attempt begins with its first task, not with the
	// interrupted one.
	FromStart bool `json:"from_start,omitempty"`
}

// Hold is what keeps this host still, in words; both may be empty.
type Hold struct {
	Held   string `json:"held,omitempty"`   // stops between tasks, and before anything new
	Paused string `json:"paused,omitempty"` // only keeps anything new from being started
}

// Holds reports what holds this host.
type Holds interface {
	// Watch calls handle with the hold, now and whenever it changes, until ctx ends.
	Watch(ctx context.Context, handle func(Hold)) error
}

// Health is what Consul says of this host.
type Health struct {
	Failing []string // checks: "web: critical: HTTP 500"; maintenance does not count
	Drained bool     // it is in maintenance that jorc did not begin
}

// Checks reports the health of this host.
type Checks interface {
	// Watch calls handle with it, now and whenever it changes, until ctx ends.
	Watch(ctx context.Context, handle func(Health)) error
}

// Converger is this host's path from the version it runs to the desired one.
type Converger struct {
	o     Options
	log   hclog.Logger
	drift *drift
	once  bool

	timing timing
	now    func() time.Time
	jitter func() float64 // 0 to 1
	hook   func(step string)

	// What the loop alone knows.
	p       progress
	unsaved bool
	mem     memory
	version versionFile
	tasks   map[string]*task
	stopJob chan error // ends the job that is driven, for a reason

	wake     concurrency.Signal // a decision may be due
	changed  concurrency.Signal // of the report
	reported concurrency.Signal // the stored report is another

	mu     sync.Mutex
	in     inputs
	report report // what the stored report is to say
	gen    uint64 // counts reports
	status Status
	note   string // of the version file
}

// timing are the clocks.
type timing struct {
	firstRetry, maxRetry time.Duration // after a failed attempt
	settle               time.Duration // that checks may fail after a static run
	patience             time.Duration // with Consul, before an open job continues without it
	recount              time.Duration // between reports of which only numbers changed
	reportWait           time.Duration // that a static run waits for "running" to be reported
	cycle                time.Duration // until a cycle is looked for; doubles
	trouble, maxTrouble  time.Duration // after what could not be done at all
	recheck              time.Duration // between checks whether another program damaged the report
}

func defaultTiming() timing {
	return timing{
		firstRetry: time.Minute, maxRetry: 30 * time.Minute, settle: 30 * time.Second, patience: 10 * time.Second,
		recount: 30 * time.Second, reportWait: 5 * time.Second, cycle: 5 * time.Second,
		trouble: time.Second, maxTrouble: time.Minute, recheck: time.Hour,
	}
}

// defaultInterval is how often validation runs again.
const defaultInterval = 5 * time.Minute

// New returns a Converger. It does no I/O.
func New(o Options) *Converger {
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	if o.Static.ValidationInterval <= 0 {
		o.Static.ValidationInterval = defaultInterval
	}
	c := &Converger{
		o: o, log: o.Log, timing: defaultTiming(), now: time.Now, jitter: rand.Float64, hook: func(string) {},
		tasks: map[string]*task{}, wake: concurrency.NewSignal(), changed: concurrency.NewSignal(), reported: concurrency.NewSignal(),
	}
	c.drift = newDrift(o.Static.Paths, filepath.Join(o.StateDir, "drift.json"), o.Static.ValidationInterval, c.wakeUp, o.Log)
	return c
}

// Run converges until ctx ends, and returns nil then. It never gives up; a
// Converger runs once.
func (c *Converger) Run(ctx context.Context) error {
	err := c.run(ctx)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// run starts all that listens, and the loop; when the loop ends so does the rest.
func (c *Converger) run(ctx context.Context) error {
	if err := c.load(ctx); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	g, ctx := errgroup.WithContext(ctx)
	c.listen(ctx, g)
	g.Go(func() error { return c.reportAll(ctx) })
	if c.o.Admission != nil {
		g.Go(func() error {
			return c.follow(ctx, "the rollout", func(ctx context.Context) error {
				return c.o.Admission.Run(ctx, AdmissionEvents{Retry: c.setRetry, Reassert: c.reassert})
			})
		})
	}
	g.Go(func() error { return c.drift.run(ctx) })
	g.Go(func() error {
		defer stop()
		return c.loop(ctx)
	})
	return g.Wait()
}

// wakeUp makes the loop decide again.
func (c *Converger) wakeUp() { c.wake.Notify() }

// Outcome is how a single pass ends.
type Outcome string

// Outcomes.
const (
	Converged Outcome = "converged" // or nothing is desired
	Failed    Outcome = "failed"
	Held      Outcome = "held"    // or paused
	Pending   Outcome = "pending" // something was missing until ctx ended, or a reboot is needed
)

// Errors of Once; compare with errors.Is.
var (
	ErrFailed  = errors.New("did not converge")
	ErrHeld    = errors.New("convergence is stopped")
	ErrPending = errors.New("not converged yet")
)

// Once makes one pass: this host converges, fails, or is held; what is missing
// is waited for until ctx ends. The error is nil when it converged, and else
// ErrFailed, ErrHeld or ErrPending with what is the matter.
func (c *Converger) Once(ctx context.Context) (Status, error) {
	c.once = true
	err := c.run(ctx)
	s := c.Status()
	if s.Outcome == "" {
		s.Outcome = Pending
	}
	if s.Detail == "" {
		s.Detail = "nothing could be found out in time"
	}
	switch s.Outcome {
	case Converged:
		return s, nil
	case Failed:
		return s, fmt.Errorf("%w: %s", ErrFailed, s.Detail)
	case Held:
		return s, fmt.Errorf("%w: %s", ErrHeld, s.Detail)
	case Pending:
	}
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return s, fmt.Errorf("%w: %s: %w", ErrPending, s.Detail, err)
	}
	return s, fmt.Errorf("%w: %s", ErrPending, s.Detail)
}
