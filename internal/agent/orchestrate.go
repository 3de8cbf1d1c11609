package agent

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
)

// orchestrates names the clusters for whose orchestrator lock an agent
// of c campaigns.
func orchestratedClusters(c *config.Config) []string {
	switch o := c.Orchestrator; {
	case o == nil || !o.Enabled:
		return nil
	case len(o.Clusters) == 0:
		return []string{c.Cluster}
	default:
		return o.Clusters
	}
}

// orchestrators returns an orchestrator for each cluster that the configuration
// names. Each has its own lock and cycle, so that a slow cluster delays no other.
func (p *part) orchestrators() []*orchestrator.Orchestrator {
	conf, names := p.conf.Orchestrator, orchestratedClusters(p.conf)
	all := make([]*orchestrator.Orchestrator, len(names))
	for i, name := range names {
		log := p.log.Named("orchestrator").With("cluster", name)
		all[i] = orchestrator.New(orchestrator.Options{
			Client: p.client, Prefix: p.conf.Prefix, Cluster: name, Node: p.node, Interval: conf.Interval, Grants: true, Log: log,
			Sinks: orchestrator.Sinks(conf.Sinks, p.log.Named("orchestrator")), // events name their cluster
			Deciders: []orchestrator.Decider{
				orchestrator.ForRollout(rollout.New(p.client, p.conf.Prefix, name)),
				orchestrator.ForRuns(runs.NewDecider(0, log), p.node),
			},
		})
	}
	return all
}

// orchestrate runs the orchestrators and the guest clusters until ctx ends.
func (p *part) orchestrate(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, o := range p.orchestrated {
		g.Go(func() error { return o.Run(ctx) })
	}
	for _, o := range p.guestClusters {
		g.Go(func() error { return o.run(ctx) })
	}
	return g.Wait()
}

// work executes this host's tasks of runs until ctx ends.
func (p *part) work(ctx context.Context) error {
	return runs.NewWorker(runs.WorkerOptions{
		Store: p.cluster.Store(), Node: p.node, Runner: p.jobs, Manager: p.managing,
		Begin: p.holds.begin, Held: p.holds.Held, Version: p.version, Log: p.log.Named("runs"),
	}).Run(ctx)
}
