package sim

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/agent"
	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consulmodel"
	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/orchestrator"
	"golang.org/x/sync/errgroup"
)

// process is a program that can be killed and started again: the agent of a host, or an orchestrator.
type process struct {
	world *world
	name  string
	start func(p *process, l *link) (run func(context.Context) error, err error)

	mu    sync.Mutex // held while an instance begins, or is killed
	lives int        // instances so far
	stop  context.CancelFunc
	link  *link // of the instance that runs now. It is also written with the network's mutex held
}

// begin starts an instance, unless one runs.
func (p *process) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.link != nil {
		return
	}
	l := p.world.net.link(p.name)
	if p.lives > 0 {
		l.name = fmt.Sprintf("%s#%d", p.name, p.lives)
	}
	p.lives++
	run, err := p.start(p, l)
	if err != nil {
		p.world.fail("start %s: %v", p.name, err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	p.links(l)
	p.world.running.Go(func() {
		if err := run(ctx); err != nil && ctx.Err() == nil {
			p.world.fail("%s ended: %v", p.name, err)
		}
	})
}

// links notes the link of the instance that runs now. The caller holds mu.
func (p *process) links(l *link) {
	p.world.net.mu.Lock()
	defer p.world.net.mu.Unlock()
	p.link = l
}

// kill ends the instance at once: nothing that it does from now on has an effect.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
}

// end is kill. The caller holds mu.
func (p *process) end() {
	if p.link == nil {
		return
	}
	p.link.dead.Store(true)
	p.stop()
	p.links(nil)
}

// host is one host of the fleet: its disk, what it is out of service for, and its agent.
type host struct {
	process
	dir    string // of this life
	boot   int
	booted time.Time
	file   *file // nil: the hosts have no stage

	// Guarded by the network's mutex.
	simulated   *agent.Simulated
	maintenance bool           // that jorc began
	reason      string         // of the maintenance
	working     map[string]int // tasks that run now, by workflow
	sick        time.Time      // until when a check fails
	failing     bool           // it fails now, by a fault of the plan
	ill         bool           // it fails, as Consul was told last
	stale       bool           // Consul's servers have the checks of a snapshot, until the host's Consul agent tells them
	began       map[string]int // tasks that began, by job and task
	tries       map[string]int
}

// newHost returns a host, which is in the catalog and does not run yet.
func (w *world) newHost(name string) *host {
	h := &host{dir: filepath.Join(w.dir, name, "0"), working: map[string]int{}, began: map[string]int{}, tries: map[string]int{}}
	h.booted = time.Now()
	if w.o.staged() {
		h.file = &file{h: h, path: filepath.Join(w.dir, name, "etc", stageName)}
	}
	h.process = process{world: w, name: name, start: func(_ *process, l *link) (func(context.Context) error, error) { return h.agent(l) }}
	id := catalog.PresenceID("default")
	w.net.change(func(m *consulmodel.Model) {
		m.Register(name, "10.0.0.1", id, "jorc")
		m.SetCheck(name, consul.GossipCheck, consul.HealthPassing, "")
		m.SetCheck(name, "app", consul.HealthPassing, "")
	})
	return h
}

// agent returns what runs the agent of the host, over what is on its disk.
func (h *host) agent(l *link) (func(context.Context) error, error) {
	if err := os.MkdirAll(h.dir, 0o700); err != nil {
		return nil, err
	}
	client, err := consul.New(config.Consul{}, consul.WithTransport(l))
	if err != nil {
		return nil, err
	}
	task := func(name string, args ...string) config.Workflow {
		return config.Workflow{Name: name, Tasks: []config.Task{{Name: name, Command: args, Idempotent: name == "converge"}}}
	}
	patch := task("patch", "patch")
	patch.Disturbs = true
	clock := h.clock()
	a, err := agent.Simulate(agent.SimulatedOptions{
		Client: client, UnwatchedHold: true, Maintenance: outOfService{h, l}, Clock: clock,
		Log:     h.world.logger(l.name),
		Command: func(ctx context.Context, c command.Command) (command.Result, error) { return h.task(ctx, l, c) },
		Config: &config.Config{
			Node: h.name, Prefix: "jorc", Cluster: "default", StateDir: h.dir, VersionFile: filepath.Join(h.dir, "version"),
			DNS: config.DNS{Addr: "127.0.0.1:8600"}, Member: &config.Member{Roles: []string{"web"}, Zone: "z" + h.name[1:]},
			Static:    &config.Static{Workflow: "converge", Validation: "validate"},
			Workflows: []config.Workflow{task("converge", "converge"), task("validate", "validate"), patch},
		},
	})
	if err != nil {
		return nil, err
	}
	h.world.net.mu.Lock()
	defer h.world.net.mu.Unlock()
	h.simulated = a
	dir := h.dir
	return func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return a.Run(ctx) })
		if h.file != nil {
			g.Go(func() error { return h.file.follow(ctx, l, client, a, dir, clock) })
		}
		return g.Wait()
	}, nil
}

// clock is that of the present boot.
func (h *host) clock() durable.Clock {
	boot, booted := fmt.Sprint("boot-", h.boot), h.booted
	return func() durable.Reading {
		now := time.Now()
		return durable.Reading{Wall: now.UTC(), Boot: boot, Uptime: now.Sub(booted)}
	}
}

// unhealthy reports whether the host's check fails. The network's mutex is held.
func (h *host) unhealthy() bool { return h.failing || h.file != nil && h.file.spoiled }

// checked has Consul know whether the host's check fails. The network's mutex is held.
func (h *host) checked(m *consulmodel.Model) {
	status := consul.HealthPassing
	if h.unhealthy() {
		status = consul.HealthCritical
	}
	if h.ill != h.unhealthy() {
		h.ill, h.sick = h.unhealthy(), time.Now() // it was, until now
		h.world.check.sickened(h)
	}
	m.SetCheck(h.name, "app", status, "")
}

// crash kills the agent as kill -9 does: what it wrote is on the disk, nothing else is.
func (h *host) crash(wipe, reboot bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.link == nil {
		return nil
	}
	if h.file != nil {
		h.file.disk.Lock()
		defer h.file.disk.Unlock()
	}
	next := filepath.Join(filepath.Dir(h.dir), fmt.Sprint(h.lives))
	if !wipe {
		if err := os.CopyFS(next, os.DirFS(h.dir)); err != nil {
			return err
		}
	}
	h.end()
	h.dir = next
	if reboot {
		h.boot++
		h.booted = time.Now()
	}
	if wipe && h.file != nil {
		if err := h.file.lost(); err != nil {
			return err
		}
	}
	h.world.net.mu.Lock()
	defer h.world.net.mu.Unlock()
	h.world.check.killed(h, wipe)
	clear(h.working)
	if wipe {
		clear(h.began)
	}
	return nil
}

// outOfService is the maintenance mode of a host, as one instance of its agent uses it.
type outOfService struct {
	h *host
	l *link
}

// Begin implements converge.Maintenance.
func (o outOfService) Begin(ctx context.Context, reason string) error {
	return o.set(ctx, true, reason)
}

// Lift implements converge.Maintenance.
func (o outOfService) Lift(ctx context.Context) error { return o.set(ctx, false, "") }

func (o outOfService) set(_ context.Context, on bool, reason string) error {
	o.l.thaw()
	if o.l.dead.Load() {
		return errDead
	}
	o.l.change(func(m *consulmodel.Model) {
		if o.h.maintenance == on {
			return
		}
		o.h.maintenance, o.h.reason = on, reason
		status := consul.HealthCritical
		if !on {
			status = ""
		}
		m.SetCheck(o.h.name, consul.NodeMaintenance, status, reason)
		o.l.trace("%s maintenance %v %s", o.l.name, on, reason)
	})
	return nil
}

// task runs a task of a workflow: it takes a time, and fails for some versions on some hosts.
func (h *host) task(ctx context.Context, l *link, c command.Command) (command.Result, error) {
	env := map[string]string{}
	for _, v := range c.Env {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	workflow, version, job := env["JORC_WORKFLOW"], env["JORC_VERSION"], env["JORC_JOB"]
	l.thaw()
	if l.dead.Load() {
		return command.Result{ExitCode: command.ExitCannotRun}, errDead
	}
	n := h.world.net
	n.mu.Lock()
	what := workflow + " " + version
	h.tries[what]++
	r := chance(n.seed, fmt.Sprint(h.name, " ", what, " ", h.tries[what]))
	h.began[workflow+" "+job]++
	h.world.check.began(h, workflow, job)
	h.working[workflow]++
	fails := n.failing && (r.IntN(12) == 0 || chance(n.seed, "bad "+version).IntN(8) == 0)
	n.trace("%s task %s begins, job %s", l.name, what, job)
	n.mu.Unlock()
	took := time.Duration(r.ExpFloat64() * float64(5*time.Second))
	if workflow == "converge" && r.IntN(10) == 0 {
		took *= 20
	}
	err := sleep(ctx, took)
	l.thaw()
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.dead.Load() {
		return command.Result{ExitCode: command.ExitCannotRun}, errDead
	}
	if h.working[workflow]--; h.working[workflow] <= 0 {
		delete(h.working, workflow)
	}
	n.trace("%s task %s ends, failed %v, %v", l.name, what, fails, err)
	switch {
	case err != nil:
		return command.Result{ExitCode: 143}, fmt.Errorf("stopped: %w", err)
	case fails:
		if workflow == "validate" {
			h.world.check.validated(h, version, false)
		}
		return command.Result{ExitCode: 1, Took: took}, nil
	}
	switch workflow {
	case "converge":
		h.world.check.brought(h, version)
	case "validate":
		h.world.check.validated(h, version, true)
	}
	return command.Result{Took: took}, nil
}

// reachable answers probes of hosts that gossip does not reach.
type reachable struct{}

// Probe implements orchestrator.Probe.
func (reachable) Probe(context.Context, string) error { return nil }

// newOrchestrator returns an orchestrator, which does not run yet.
func (w *world) newOrchestrator(name string) *process {
	return &process{world: w, name: name, start: func(_ *process, l *link) (func(context.Context) error, error) {
		client, err := consul.New(config.Consul{}, consul.WithTransport(l))
		if err != nil {
			return nil, err
		}
		log := w.logger(l.name)
		return orchestrator.New(orchestrator.Options{
			Client: client, Prefix: "jorc", Cluster: "default", Node: name, Grants: true, Probe: reachable{}, Log: log,
		}).Run, nil
	}}
}
