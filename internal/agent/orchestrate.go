package agent

import (
	"context"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/workflow"
)

// orchestratedClusters names the clusters for whose orchestrator lock an agent
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
// names. Each has its own lock and cycle, so that a slow cluster delays no other. They
// share their watchers with shown.
func (p *part) orchestrators(shown *fleetUI) []*orchestrator.Orchestrator {
	conf, names := p.conf.Orchestrator, orchestratedClusters(p.conf)
	all := make([]*orchestrator.Orchestrator, len(names))
	for i, name := range names {
		log := p.log.Named("orchestrator").With("cluster", name)
		all[i] = orchestrator.New(orchestrator.Options{
			Client: p.client, Prefix: p.conf.Prefix, Cluster: name, Node: p.node, Interval: conf.Interval, Grants: true, StageGates: conf.StageGates, Log: log,
			Watcher: shown.watcher(name),
			Sinks:   orchestrator.Sinks(conf.Sinks, p.log.Named("orchestrator")), // events name their cluster
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

// guestCluster is this host's part in a cluster that it may orchestrate without
// being a member: if the cluster has no manager, workflows for managers run on the
// host of the orchestrator.
type guestCluster struct {
	cluster  *fleet.Watched
	node     string
	holds    *holds
	managing *workflow.Runner
	gates    *workflow.Runner
	version  func() string
	log      hclog.Logger
}

// newGuestClusters returns a guestCluster for each orchestrated cluster of which the
// configuration does not make the host a member. o is copied and adapted.
func (p *part) newGuestClusters(o workflow.Options) []*guestCluster {
	var all []*guestCluster
	for _, name := range orchestratedClusters(p.conf) {
		o, own := o, name == p.conf.Cluster // a copy for each cluster
		if own && p.conf.Member != nil {
			continue
		}
		guest := &guestCluster{
			cluster: fleet.New(p.client, p.conf.Prefix, name).WatchedBy(p.node), node: p.node, version: p.version,
			log: p.log.With("cluster", name),
		}
		guest.holds = newHolds(guest.cluster.Cluster, p.node, p.conf.StateDir, guest.log)
		if !own {
			o.StateDir = workflow.ClusterDir(p.conf.StateDir, name)
			there := *p.conf
			there.Cluster = name
			o.Environ = workflow.Environ(&there)
			o.Params, o.Tokens = workflow.ParamsOf(guest.cluster.Cluster, p.node), workflow.TokensOf(p.client, p.conf.Prefix, name)
		}
		o.Held, o.Free = guest.holds.Held, guest.holds.free
		guest.managing = workflow.New(o)
		o.StateDir = workflow.GateDir(p.conf.StateDir)
		if !own {
			o.StateDir = workflow.GateDir(workflow.ClusterDir(p.conf.StateDir, name))
		}
		guest.gates = workflow.New(o)
		all = append(all, guest)
	}
	return all
}

// run executes the host's tasks of the cluster's runs until ctx ends.
func (o *guestCluster) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return o.cluster.Run(ctx) })
	g.Go(func() error { return o.holds.run(ctx) })
	g.Go(func() error {
		return runs.NewWorker(runs.WorkerOptions{
			Store: o.cluster.Store(), Node: o.node, Runner: o.managing, Gates: o.gates, Begin: o.holds.begin, Held: o.holds.Held,
			Version: o.version, Log: o.log.Named("runs"),
		}).Run(ctx)
	})
	return g.Wait()
}
