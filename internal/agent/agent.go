// Package agent builds the components of a host's jorc, wires them together
// and supervises them: services first, then templates, and a reload that
// changes nothing when the new configuration is bad.
package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/control"
	"github.com/jorc/jorc/internal/converge"
	"github.com/jorc/jorc/internal/diagnostics"
	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/fleetlock"
	"github.com/jorc/jorc/internal/lease"
	"github.com/jorc/jorc/internal/slots"
	"github.com/jorc/jorc/internal/stage"
	"github.com/jorc/jorc/internal/supervise"
	"github.com/jorc/jorc/internal/ui"
	"github.com/jorc/jorc/internal/web"
)

// stopWithin leaves time for the other steps of a clean stop within the 45 s that
// the systemd unit allows.
const stopWithin = 20 * time.Second

// Options are what an Agent needs.
type Options struct {
	Config *config.Config
	// Load reads the configuration again, for a reload. Optional.
	Load func() (*config.Config, error)
	// Hangup delivers requests to reload. Optional.
	Hangup <-chan struct{}
	// Notify notifies the service manager: "READY=1" and so on. Optional.
	Notify func(state string)
	// Watchdog is the service manager's watchdog interval; zero: the watchdog is
	// off.
	Watchdog time.Duration
	// StopWithin is how long running reload commands may continue when the agent
	// stops. The next start repeats the commands that had to be killed. Default 20s.
	StopWithin time.Duration
	// OnceTimeout is how long Once waits for data, not for processes; zero: no limit.
	OnceTimeout time.Duration
	Process     ProcessOptions
	// LoadingRest is for how long templates are not loaded after the kernel has killed the
	// agent twice while it did. Default 10 min.
	LoadingRest time.Duration
	// TemplateReports is when the host reports problems of templates to its cluster.
	TemplateReports TemplateReports
	// LookupEnv is the environment, of which template_options { allow_env } selects what
	// templates may read.
	LookupEnv func(string) (string, bool)
	Pages     ui.Pages // of the ui listener
	// LeastHealthy is the least time in health before a lease is over; 0: lease.DefaultMinHealthy.
	LeastHealthy time.Duration
	GCPercent    int // that the program has set; 0: that of the environment. For metrics
	Version      string
	Commit       string
	Log          hclog.Logger
	Recent       *diagnostics.Log // the last lines of Log, for 'jorc debug'; nil: the agent does not answer it
}

// ProcessOptions are what processes need of the program that they run in.
type ProcessOptions struct {
	Guard          []string        // the program that guards processes; see supervise.Options
	Environ        func() []string // the variables that they inherit; nil: none
	Stdout, Stderr io.Writer       // for their output
}

// Agent is one host's daemon.
type Agent struct {
	o         Options
	client    *consul.Client
	registrar *catalog.Registrar
	slots     *slots.Slots
	stages    *stage.Hosts
	loading   *loading
	processes *supervise.Supervisor
	web       *web.Server
	metrics   *web.Metrics
	ui        *fleetUI // nil: the fleet is not shown
	started   time.Time

	command     func(context.Context, command.Command) (command.Result, error) // of a simulated host; nil: tasks are processes
	maintenance *maintenance                                                   // of this node
	leases      *lease.Host
	control     *control.Server // of commands on this host
	expiring    expiring

	processesChanged concurrency.Signal // the state of a process changed
	templatesChanged concurrency.Signal // the state of a template changed
	filesChanged     concurrency.Signal // the same, for what reports files

	nextConfig concurrency.Latest[*config.Config] // of the last reload, for runParts
	nodeKnown  chan struct{}                      // closed when node is known
	inherited  bool                               // the state directory was another node's; written before stateOwned is closed
	stateOwned chan struct{}                      // closed when the state directory belongs to the node

	mu         sync.Mutex
	conf       *config.Config
	gen        *generation         // the running one
	leadership *leadership         // of the parts, one after the other
	report     *fleet.ReportWriter // likewise: the next part knows what the last one wrote
	part       *part               // nil: the node's name is not known yet
	node       string              // its name in Consul, once known
	reload     reloadResult

	unhealthy string // why the engine counts as stuck; empty: it answers
}

// reloadResult is the result of the last reload.
type reloadResult struct {
	at  time.Time
	err error
}

// New builds an agent. Every error that the configuration can cause occurs here.
func New(o Options) (*Agent, error) {
	if o.Notify == nil {
		o.Notify = func(string) {}
	}
	if o.StopWithin == 0 {
		o.StopWithin = stopWithin
	}
	if o.Process.Environ == nil {
		o.Process.Environ = func() []string { return nil }
	}
	c := o.Config
	client, err := consul.New(c.Consul)
	if err != nil {
		return nil, err
	}
	a := &Agent{o: o, client: client, slots: newSlots(client, c), maintenance: newMaintenance(nodeMaintenance{client}, c.StateDir, o.Log), conf: c, started: time.Now()}
	a.leases = newLease(a.maintenance, c.StateDir, o.LeastHealthy, nil, o.Log)
	a.control = control.New(control.Options{
		Socket: c.Control.Socket, Group: c.Control.Group, Holder: a.leases, Reboot: rebooter(c.RebootCommand), Version: o.Version, Log: o.Log.Named("control"),
	})
	a.stages = stage.NewHosts(c.StateDir, nil, o.Log.Named("stages"))
	a.loading = newLoading(c.StateDir, o.LoadingRest, o.Log.Named("templates"))
	a.processesChanged, a.templatesChanged, a.filesChanged = concurrency.NewSignal(), concurrency.NewSignal(), concurrency.NewSignal()
	a.expiring.changed = concurrency.NewSignal()
	a.nodeKnown, a.stateOwned = make(chan struct{}), make(chan struct{})
	if c.Node != "" {
		a.setNode(c.Node)
	}
	a.registrar = catalog.NewRegistrar(client, c.Services, catalog.RegistrarOptions{
		Cluster: c.Cluster, OnStop: c.OnStop, StateDir: c.StateDir, Logger: o.Log.Named("services"),
	})
	a.metrics = web.NewMetrics()
	var fleetLock http.Handler
	if f := c.FleetLock; f != nil {
		fleetLock = fleetlock.New(fleetlock.Options{Holder: a.leases, Users: f.Users, Drain: f.Drain, Log: o.Log.Named("fleetlock")})
	}
	a.web = web.New(web.Options{
		Addr: c.HTTP.Addr, Source: a, Metrics: a.metrics, Fleet: a.fleetMetrics, FleetLock: fleetLock, GCPercent: o.GCPercent, Log: o.Log.Named("http"),
	})
	if a.ui, err = newFleetUI(c, client, o.Pages, o.Log.Named("ui")); err != nil {
		return nil, err
	}
	a.processes = supervise.New(supervise.Options{
		StateDir: c.StateDir, Guard: o.Process.Guard, Environ: o.Process.Environ, Slot: a.slot, Changed: a.processesChanged.Notify,
		Stdout: o.Process.Stdout, Stderr: o.Process.Stderr, Log: o.Log.Named("processes"),
	})
	a.processes.Configure(c.Processes, c.Templates)
	if a.gen, err = a.build(c, true); err != nil {
		return nil, err
	}
	return a, nil
}

// StatusAddr is the address of the status API with its actual port; empty while
// the API does not listen yet or is disabled.
func (a *Agent) StatusAddr() string { return a.web.Addr() }

// UIAddr is the address of the ui listener with its actual port; empty while it does
// not listen yet or is disabled.
func (a *Agent) UIAddr() string {
	if a.ui == nil {
		return ""
	}
	return a.ui.server.Addr()
}

// Run publishes the services and renders the templates until ctx ends; then it
// stops cleanly and returns nil. It fails if another agent uses the same state
// directory or if the status API's address is in use.
func (a *Agent) Run(ctx context.Context) error {
	lock, err := a.lock()
	if err != nil {
		return err
	}
	defer a.unlock(lock)
	defer a.client.Close()
	if err := a.ownStateEarly(ctx); err != nil {
		return err
	}
	if err := a.web.Listen(ctx); err != nil {
		return err
	}
	if err := a.ui.listen(ctx); err != nil {
		return errors.Join(err, a.web.Close())
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.registrar.Run(ctx) })
	g.Go(func() error { return a.web.Run(ctx) })
	g.Go(func() error { return a.ui.run(ctx) })
	g.Go(func() error { return a.runGenerations(ctx) })
	g.Go(func() error { return a.processes.Run(ctx) })
	g.Go(func() error { return a.ownState(ctx) })
	g.Go(func() error { return a.runParts(ctx) })
	g.Go(func() error { return a.watchdog(ctx) })
	g.Go(func() error { return a.announce(ctx) })
	g.Go(func() error { return a.answerDebug(ctx) })
	g.Go(func() error { return a.answerCommands(ctx) })
	g.Go(func() error { return a.watchToken(ctx) })
	g.Go(func() error { return a.watchVaultToken(ctx) })
	a.o.Log.Info("started", "version", a.o.Version, "consul", a.conf.Consul.Address, "status", a.web.Addr(), "state_dir", a.conf.StateDir)
	a.o.Notify("READY=1")
	g.Go(func() error {
		<-ctx.Done()
		a.o.Notify("STOPPING=1")
		a.o.Log.Info("stopping", "services", a.generation().conf.OnStop)
		return nil
	})
	err = g.Wait()
	a.o.Log.Info("stopped")
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// answerCommands answers commands on this host, without which the agent works as well: a directory that it
// may not write, or a foreign socket there, does not stop it.
func (a *Agent) answerCommands(ctx context.Context) error {
	if a.conf.Control.Socket == "" {
		return nil
	}
	_ = concurrency.Retry(ctx, concurrency.NewBackoff(time.Second, time.Minute), a.control.Run, func(err error, pause time.Duration) {
		a.o.Log.Error("'jorc maintenance' does not work on this host", "error", err, "again_in", pause)
	})
	return nil
}

// answerDebug answers 'jorc debug', without which the agent works as well.
func (a *Agent) answerDebug(ctx context.Context) error {
	if a.o.Recent == nil {
		return nil
	}
	if err := diagnostics.Serve(ctx, a.conf.StateDir, a.o.Recent); err != nil {
		a.o.Log.Warn("cannot answer 'jorc debug'", "error", err)
	}
	return nil
}

// Once publishes the services, renders every template once, makes one pass of
// convergence, runs the processes to their ends and returns. The error names what
// failed, or what was still missing when ctx ended or Options.OnceTimeout was over. It
// wraps converge.ErrFailed, ErrHeld or ErrPending if convergence returned that, and
// *supervise.ExitError if a process failed.
func (a *Agent) Once(ctx context.Context) error {
	life := ctx
	if a.o.OnceTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.o.OnceTimeout)
		defer cancel()
	}
	lock, err := a.lock()
	if err != nil {
		return err
	}
	defer a.unlock(lock)
	defer a.client.Close()
	if err := a.ownStateEarly(ctx); err != nil {
		return err
	}
	a.registrar.SetOnStop(catalog.OnStopKeep)
	alive, stop := context.WithCancel(life)
	g, alive := errgroup.WithContext(alive)
	running, cancel := context.WithCancel(ctx) // for what waits for data
	defer cancel()
	defer context.AfterFunc(alive, cancel)()
	g.Go(func() error { return a.registrar.Run(alive) })
	g.Go(func() error { return a.ownState(alive) })
	g.Go(func() error {
		defer stop()
		select {
		case <-a.registrar.Registered():
		case <-running.Done():
			if err := broken(a.conf); err != nil {
				return err // it would fail with Consul, too
			}
			return a.unreached(fmt.Errorf("services could not be registered: %w", running.Err()))
		}
		var converging error
		done := make(chan struct{})
		render, enough := context.WithCancel(running)
		defer enough()
		go func() {
			defer close(done)
			if converging = a.convergeOnce(running); errors.Is(converging, converge.ErrHeld) && HoldReason(a.conf.StateDir) != "" {
				enough() // the same file holds the templates
			}
		}()
		rendering := a.gen.once(render)
		<-done
		if render.Err() != nil && running.Err() == nil {
			rendering = nil // the error of convergence gives the reason for both
		}
		err := errors.Join(a.unregistered(), a.unreached(rendering), a.unreached(converging))
		if err != nil {
			return err
		}
		return a.processes.Once(alive)
	})
	return g.Wait()
}

// unreached wraps err in consul.ErrUnreachable if requests were sent to Consul and
// it has never answered.
func (a *Agent) unreached(err error) error {
	stats := a.client.Stats()
	asked := stats.Failures > 0 || errors.Is(err, context.DeadlineExceeded)
	if err == nil || !asked || !stats.LastAnswer.IsZero() {
		return err
	}
	return fmt.Errorf("%w: %w", consul.ErrUnreachable, err)
}

// unregistered returns an error for each service that could not be registered.
func (a *Agent) unregistered() error {
	var errs []error
	for _, s := range a.registrar.Status() {
		if s.Error != "" {
			errs = append(errs, fmt.Errorf("service %q: %s", s.ID, s.Error))
		}
	}
	return errors.Join(errs...)
}

// lock ensures that only one agent uses the state directory.
func (a *Agent) lock() (*durable.Lock, error) { return lockState(a.conf.StateDir) }

func lockState(dir string) (*durable.Lock, error) {
	if err := durable.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("state directory: %w (set state_dir, or run as root)", err)
	}
	if err := durable.CheckOwner(dir); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	lock, err := durable.TryLock(filepath.Join(dir, catalog.LockFile))
	if errors.Is(err, durable.ErrLocked) {
		return nil, fmt.Errorf("another jorc agent works with %s: %w", dir, err)
	}
	return lock, err
}

func (a *Agent) unlock(l *durable.Lock) {
	if err := l.Unlock(); err != nil {
		a.o.Log.Warn("state directory", "error", err)
	}
}
