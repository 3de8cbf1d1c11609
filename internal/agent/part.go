package agent

import (
	"context"
	"path"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/blocker"
	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/converge"
	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/expiry"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/lease"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/stage"
	"github.com/jorc/jorc/internal/supervise"
	"github.com/jorc/jorc/internal/watch"
	"github.com/jorc/jorc/internal/workflow"
)

// part is what a host does in its cluster under one configuration, apart from
// services and templates: its member record, elections, holds, workflows,
// convergence. It can outlive a generation: a reload replaces it between two tasks.
type part struct {
	conf    *config.Config
	node    string
	running context.Context // ends with this part

	processes        *supervise.Supervisor // nil in a simulated host
	processesChanged concurrency.Signal

	templates        func() []watch.Status // nil in a simulated host
	expiring         func() []expiry.Item  // nil in a simulated host
	expiringChanged  concurrency.Signal
	templatesChanged concurrency.Signal
	filesChanged     concurrency.Signal
	templateReports  TemplateReports
	templateProblems concurrency.Latest[[]cluster.TemplateProblem] // that are reported

	client  *consul.Client
	cluster *fleet.Watched
	blocker *blocker.Blocker
	holds   *holds
	checks  *checks
	report  *fleet.ReportWriter // the host's; all parts write through it
	host    *change.Host

	maintenance jobMaintenance // of the host, for jobs of runs
	jobs        *workflow.Runner
	log         hclog.Logger

	leadership  *leadership
	steppedDown chan struct{} // closed when a leader that was replaced while it was away has stepped down

	keeper    atomic.Pointer[fleet.RecordSync] // nil: not started, or the configuration does not make this host a member
	converge  *converge.Converger              // nil: this host has no static configuration
	admission *admission                       // of converge
	stages    *stage.Hosts                     // nil in a simulated host
	leases    *lease.Host
	// unorchestrated: no orchestrator runs, and this host waits for a grant.
	unorchestrated struct{ grant, files unorchestrated }
	managing       *workflow.Runner // runs on managers
	gates          *workflow.Runner // runs of gates
	orchestrated   []*orchestrator.Orchestrator
	guestClusters  []*guestCluster
}

// participates reports whether c has the host take part in its cluster.
func participates(c *config.Config) bool {
	return c.Member != nil || c.Static != nil || len(c.Triggers) > 0
}

// countWatches returns how many blocking queries the host's part in its cluster
// may have open at the same time: 2 for the keys that all nodes watch and for this
// node's own, 1 for its health, 4 for the election's lock and what the lock holder
// reads, 1 per trigger, 1 for the orchestrator's lock while a stage waits and 1 while a lease does, and
// 14 per orchestrated cluster.
func countWatches(c *config.Config) int {
	n := 2
	if participates(c) {
		n++
	}
	if c.Member != nil {
		n += 5
	}
	n += len(c.Triggers)
	if len(stagesOf(c)) > 0 {
		n++
	}
	return n + 14*len(orchestratedClusters(c))
}

// runParts runs the host's part in its cluster until ctx ends. It starts a new one
// after each reload that changes it.
func (a *Agent) runParts(ctx context.Context) error {
	node, err := a.awaitOwnState(ctx)
	if err != nil {
		return nil // ctx ended
	}
	c := a.generation().conf
	for ctx.Err() == nil {
		p, err := a.newPart(c, node)
		if err != nil {
			return err
		}
		a.setPart(p)
		running, stop := context.WithCancel(context.WithoutCancel(ctx))
		waiting, ended := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() {
			done <- p.run(running, false)
			ended()
		}()
		next, err := a.nextConfig.Wait(waiting, func(next *config.Config) bool { return !reflect.DeepEqual(relevant(c), relevant(next)) })
		if err == nil {
			c = next
			p.drain(ctx, "the configuration was read again")
		}
		if ctx.Err() != nil {
			a.drainOnStop(p)
		}
		stop()
		if err := <-done; err != nil {
			return err
		}
		if ctx.Err() != nil {
			p.leave(ctx)
		}
	}
	return nil
}

// drain starts no further tasks and returns when the running ones have ended, or
// ctx has.
func (p *part) drain(ctx context.Context, why string) {
	p.jobs.HandOver(ctx, why)
	p.managing.HandOver(ctx, why)
	p.gates.HandOver(ctx, why)
	for _, o := range p.guestClusters {
		o.managing.HandOver(ctx, why)
		o.gates.HandOver(ctx, why)
	}
}

// drainOnStop waits for running tasks for at most Options.StopWithin.
func (a *Agent) drainOnStop(p *part) {
	ctx, cancel := context.WithTimeout(context.Background(), a.o.StopWithin)
	defer cancel()
	p.drain(ctx, "jorc is stopping")
}

// relevant returns c without the settings that do not affect the host's part in
// its cluster, so that a reload of those does not interrupt a job between two tasks.
func relevant(c *config.Config) config.Config {
	r := *c
	r.Templates = stageTemplates(c)
	r.Processes, r.TemplateOpts, r.Vault, r.Warnings, r.Owners, r.LogLevel, r.OnStop = nil, config.TemplateOptions{}, config.Vault{}, nil, nil, "", ""
	r.Control, r.FleetLock = config.Control{}, nil
	r.Services = make([]config.Service, len(c.Services))
	for i := range c.Services {
		r.Services[i].Name = c.Services[i].Name
	}
	return r
}

// newPart builds a part. It does no I/O.
func (a *Agent) newPart(c *config.Config, node string) (*part, error) {
	p := &part{
		conf: c, node: node, client: a.client, cluster: fleet.New(a.client, c.Prefix, c.Cluster).WatchedBy(node),
		log: a.o.Log, processes: a.processes, processesChanged: a.processesChanged, stages: a.stages, leases: a.leases,
		templatesChanged: a.templatesChanged, filesChanged: a.filesChanged, expiringChanged: a.expiring.changed, templateReports: a.o.TemplateReports.orDefault(),
	}
	if a.leadership == nil {
		a.leadership = newLeadership(c.StateDir)
	}
	if a.report == nil {
		a.report = p.cluster.ReportWriter(node)
	}
	p.report, p.maintenance = a.report, jobMaintenance{a.maintenance}
	p.leadership, p.steppedDown = a.leadership, make(chan struct{})
	if a.generation() != nil {
		p.templates = func() []watch.Status { return a.generation().engine.Status() }
		p.expiring = func() []expiry.Item {
			g := a.generation()
			return a.expiring.items(g.conf, g.engine)
		}
	}
	p.unorchestrated.grant.store, p.unorchestrated.files.store = p.cluster.Store(), p.cluster.Store()
	p.holds = newHolds(p.cluster.Cluster, node, c.StateDir, p.log)
	p.checks = &checks{client: a.client, node: node, log: p.log}
	if a.registrar != nil {
		p.checks.shared = a.registrar.NodeChecks()
	}
	p.host = p.changes()
	store, err := workflow.NewStore(c.LogStore)
	if err != nil {
		p.log.Error("full logs stay on this host", "error", err)
	}
	dns, err := catalog.NewResolver(c.DNS.Addr)
	if err != nil {
		return nil, err
	}
	p.blocker = blocker.New(dns, blocker.FromClient(a.client))
	o := workflow.Options{
		StateDir: c.StateDir, Workflows: c.Workflows, Node: node, Environ: workflow.Environ(c),
		Params: workflow.ParamsOf(p.cluster.Cluster, node), Tokens: workflow.TokensOf(a.client, c.Prefix, c.Cluster),
		Requirements: workflow.FromBlocker(p.blocker),
		Store:        store, Held: p.holds.Held, Free: p.holds.free, Reboot: rebooter(c.RebootCommand), Command: a.command, Log: p.log.Named("workflows"),
	}
	p.jobs = workflow.New(o)
	o.StateDir = workflow.ManagerDir(c.StateDir)
	p.managing = workflow.New(o)
	o.StateDir = workflow.GateDir(c.StateDir)
	p.gates = workflow.New(o)
	o.StateDir = workflow.ManagerDir(c.StateDir)
	if c.Static != nil {
		p.converge = p.converger(ownedMaintenance{a.maintenance, ownerVersion})
	}
	p.orchestrated = p.orchestrators(a.ui)
	p.guestClusters = p.newGuestClusters(o)
	return p, nil
}

// run waits until the cluster's keys have the layout that this jorc reads, then
// runs the part's components. It returns nil after ctx ends. With once the caller
// converges.
func (p *part) run(ctx context.Context, once bool) error {
	p.running = ctx
	g, watching := errgroup.WithContext(ctx)
	g.Go(func() error { return p.cluster.Run(watching) })
	g.Go(func() error {
		err := p.cluster.AwaitLayout(watching, func(err error) {
			p.log.Error("this host takes no part in its cluster", "cluster", p.cluster.Name(), "error", err)
		})
		if err != nil {
			return err
		}
		return p.runComponents(watching, once)
	})
	if err := g.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

// runComponents runs the components that the configuration asks for until ctx ends.
func (p *part) runComponents(ctx context.Context, once bool) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { <-ctx.Done(); return nil })
	if participates(p.conf) {
		g.Go(func() error { return p.holds.run(ctx) })
		g.Go(func() error { return p.reportHoldFile(ctx) })
		g.Go(func() error { return p.checks.run(ctx) })
		g.Go(func() error { return p.host.Run(ctx) })
	}
	if participates(p.conf) && p.templates != nil && !once {
		g.Go(func() error { return p.reportTemplates(ctx) })
		g.Go(func() error { return p.reportFiles(ctx) })
		g.Go(func() error { return p.reportExpiring(ctx) })
	}
	switch {
	case once:
		close(p.steppedDown)
	case p.conf.Member != nil:
		g.Go(func() error { return p.onceSteppedDown(ctx, p.work) })
	case p.mayBeJoinedManually():
		g.Go(func() error { return p.onceSteppedDown(ctx, p.workOnceJoined) })
	}
	if !once {
		g.Go(func() error {
			defer close(p.steppedDown)
			p.stepDownIfReplaced(ctx)
			return nil
		})
	}
	if !once {
		g.Go(func() error { return p.orchestrate(ctx) })
	}
	if p.stages != nil && !once {
		g.Go(func() error { return p.runStages(ctx) })
		g.Go(func() error { return p.noticeNoGrants(ctx) })
	}
	if len(p.conf.Triggers) > 0 && !once {
		g.Go(func() error { return p.onceSteppedDown(ctx, p.triggers) })
	}
	if p.converge != nil && !once {
		g.Go(func() error { return p.onceSteppedDown(ctx, p.converge.Run) })
	}
	if p.conf.Member != nil {
		g.Go(func() error { return p.runMember(ctx) })
	}
	if p.conf.Member != nil && !once {
		g.Go(func() error { return p.leases.Run(ctx, p.leasePart()) })
	}
	if p.conf.Member != nil && p.processes != nil && !once {
		g.Go(func() error { return p.runProcessReport(ctx) })
	}
	return g.Wait()
}

// onceSteppedDown calls run, which begins jobs on this host, when a leader that was replaced
// while it was away has stepped down.
func (p *part) onceSteppedDown(ctx context.Context, run func(context.Context) error) error {
	select {
	case <-p.steppedDown:
		return run(ctx)
	case <-ctx.Done():
		return nil
	}
}

// storePrefix returns the prefix of the keys of c's cluster.
func storePrefix(c *config.Config) string { return path.Join(c.Prefix, c.Cluster) }

func (a *Agent) setPart(p *part) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.part = p
}

// SimulatedOptions are what a Simulated host needs.
type SimulatedOptions struct {
	// Config is the host's. Node must be set and the state directory must exist.
	Config *config.Config
	// Client replaces the host's own Consul agent.
	Client *consul.Client
	// Maintenance replaces the maintenance mode of the host's Consul agent.
	Maintenance converge.Maintenance
	// UnwatchedHold: the hold file is read at the start and before each task only. The
	// kernel allows a user 128 watchers.
	UnwatchedHold bool
	// LeastHealthy is that of Options.
	LeastHealthy time.Duration
	Clock        durable.Clock // of the host
	// Command replaces the processes of tasks; nil: they run.
	Command func(context.Context, command.Command) (command.Result, error)
	Log     hclog.Logger
}

// Simulated is a host's part in its cluster without the rest of an agent: no
// services, templates or status API, and nothing that needs a Consul agent of its
// own. Many of them in one process simulate a fleet.
type Simulated struct {
	part *part
}

// Simulate returns a host. It does no I/O and has the errors of New.
func Simulate(o SimulatedOptions) (*Simulated, error) {
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	a := &Agent{o: Options{Log: o.Log}, client: o.Client, command: o.Command, slots: newSlots(o.Client, o.Config), maintenance: newMaintenance(o.Maintenance, o.Config.StateDir, o.Log)}
	a.leases = newLease(a.maintenance, o.Config.StateDir, o.LeastHealthy, o.Clock, o.Log)
	p, err := a.newPart(o.Config, o.Config.Node)
	if err != nil {
		return nil, err
	}
	p.holds.unwatched = o.UnwatchedHold
	return &Simulated{part: p}, nil
}

// Run runs the host's part in its cluster until ctx ends; then it returns nil.
func (s *Simulated) Run(ctx context.Context) error { return s.part.run(ctx, false) }

// Convergence returns the state of the host's convergence; the zero Status if the
// host has no static configuration.
func (s *Simulated) Convergence() converge.Status {
	if s.part.converge == nil {
		return converge.Status{}
	}
	return s.part.converge.Status()
}

// Lease returns the host's lease.
func (s *Simulated) Lease() lease.Holder { return s.part.leases }

// RunStages has the host take new content of stages, whose files h knows, until ctx ends;
// then it returns nil. Run must be running.
func (s *Simulated) RunStages(ctx context.Context, h *stage.Hosts, stages []config.Stage) error {
	return h.Run(ctx, s.part.stagePart(), stages)
}
