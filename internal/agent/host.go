package agent

import (
	"context"
	"path"
	"reflect"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/blocker"
	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/converge"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/workflow"
)

// part is what a host does in its cluster by one configuration, beside services
// and templates: its member record, elections, holds, workflows, convergence. It
// outlives generations: a reload replaces it between two tasks.
type part struct {
	conf    *config.Config
	node    string
	running context.Context // ends with this part
	client  *consul.Client
	cluster *cluster.Watched
	blocker *blocker.Blocker
	holds   *holds
	checks  *checks
	jobs    *workflow.Runner
	log     hclog.Logger

	keeper        atomic.Pointer[cluster.RecordSync] // nil: it has not begun, or this host is no member by itself
	converge      *converge.Converger                // nil: this host has no static configuration
	admission     *admission                         // of converge
	managing      *workflow.Runner                   // runs on managers
	orchestrated  []*orchestrator.Orchestrator
	guestClusters []*guestCluster
}

// belongs tells whether c gives the host any part in its cluster.
func belongs(c *config.Config) bool {
	return c.Member != nil || c.Static != nil || len(c.Triggers) > 0
}

// watches is how many queries of a host's part in its cluster may block at one
// time: what all nodes watch, and what this node does; its health; the lock of
// the election, and what its holder looks at (3); triggers; and what an
// orchestrator looks at in each cluster.
func watches(c *config.Config) int {
	n := 2
	if belongs(c) {
		n++
	}
	if c.Member != nil {
		n += 4
	}
	n += len(c.Triggers)
	return n + 14*len(orchestrates(c))
}

// takePart runs the host's part in its cluster until ctx ends, anew after each
// reload.
func (a *Agent) takePart(ctx context.Context) error {
	node, err := a.awaitClaim(ctx)
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
		done := make(chan error, 1)
		go func() { done <- p.run(running, false) }()
		if next := a.nextPart(ctx, c, done); next != nil {
			c = next
			p.rest(ctx, "the configuration was read again")
		}
		if ctx.Err() != nil {
			a.finish(p)
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

// rest returns when no task runs any more, or ctx has ended. No other begins.
func (p *part) rest(ctx context.Context, why string) {
	p.jobs.HandOver(ctx, why)
	p.managing.HandOver(ctx, why)
	for _, o := range p.guestClusters {
		o.managing.HandOver(ctx, why)
	}
}

// finish gives tasks under way the time that a stop leaves.
func (a *Agent) finish(p *part) {
	ctx, cancel := context.WithTimeout(context.Background(), a.o.StopWithin)
	defer cancel()
	p.rest(ctx, "jorc is stopping")
}

// nextPart waits for a configuration that changes what the host does in its
// cluster; it returns nil when ctx has ended, or the present part is done, with
// an error that stays in done.
func (a *Agent) nextPart(ctx context.Context, c *config.Config, done chan error) *config.Config {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-done:
			done <- err
			return nil
		case next := <-a.parts:
			if !reflect.DeepEqual(relevant(c), relevant(next)) {
				return next
			}
		}
	}
}

// relevant is c without what has nothing to do with the host's part in its
// cluster: a reload for that does not come between two tasks of a job.
func relevant(c *config.Config) config.Config {
	r := *c
	r.Templates, r.TemplateOpts, r.Vault, r.Warnings, r.LogLevel, r.OnStop = nil, config.TemplateOptions{}, config.Vault{}, nil, "", ""
	r.Services = make([]config.Service, len(c.Services))
	for i := range c.Services {
		r.Services[i].Name = c.Services[i].Name
	}
	return r
}

// newPart builds what p.run runs; it does no I/O.
func (a *Agent) newPart(c *config.Config, node string) (*part, error) {
	p := &part{
		conf: c, node: node, client: a.client, cluster: cluster.New(a.client, c.Prefix, c.Cluster).WatchedBy(node),
		log: a.o.Log,
	}
	p.holds = newHolds(p.cluster.Cluster, node, c.StateDir, p.log)
	p.checks = &checks{client: a.client, node: node, log: p.log}
	if a.registrar != nil {
		p.checks.shared = a.registrar.NodeChecks()
	}
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
		Store:        store, Held: p.holds.Held, Free: p.holds.free, Log: p.log.Named("workflows"),
	}
	p.jobs = workflow.New(o)
	o.StateDir = workflow.ManagerDir(c.StateDir)
	p.managing = workflow.New(o)
	if c.Static != nil {
		p.converge = p.converger(a.maintenance)
	}
	p.orchestrated = p.orchestrators()
	p.guestClusters = p.newGuestClusters(o)
	return p, nil
}

// run does the host's part, once the cluster's keys have the layout that this
// jorc reads, and returns nil when ctx has ended. With once it leaves converging
// to its caller.
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
		return p.takePart(watching, once)
	})
	if err := g.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

func (p *part) takePart(ctx context.Context, once bool) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { <-ctx.Done(); return nil })
	if belongs(p.conf) {
		g.Go(func() error { return p.holds.run(ctx) })
		g.Go(func() error { return p.checks.run(ctx) })
	}
	switch {
	case once:
	case p.conf.Member != nil:
		g.Go(func() error { return p.work(ctx) })
	case p.adoptable():
		g.Go(func() error { return p.adopted(ctx) })
	}
	if !once {
		g.Go(func() error { return p.orchestrate(ctx) })
	}
	if len(p.conf.Triggers) > 0 && !once {
		g.Go(func() error { return p.triggers(ctx) })
	}
	if p.converge != nil && !once {
		g.Go(func() error { return p.converge.Run(ctx) })
	}
	if p.conf.Member != nil {
		g.Go(func() error { return p.belong(ctx) })
	}
	return g.Wait()
}

// storePrefix is where the keys of c's cluster begin.
func storePrefix(c *config.Config) string { return path.Join(c.Prefix, c.Cluster) }

func (a *Agent) setPart(p *part) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.part = p
}

// handOver gives the next configuration to the host's part in its cluster; of
// several the last counts.
func (a *Agent) handOver(c *config.Config) {
	for {
		select {
		case a.parts <- c:
			return
		default:
		}
		select {
		case <-a.parts:
		default:
		}
	}
}
