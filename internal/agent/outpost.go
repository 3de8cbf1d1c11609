package agent

import (
	"context"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/workflow"
)

// outpost is this host in a cluster that it may orchestrate without being a
// member: workflows for managers run where the orchestrator is when the cluster
// has no manager.
type outpost struct {
	cluster  *cluster.Watched
	node     string
	holds    *holds
	managing *workflow.Runner
	version  func() string
	log      hclog.Logger
}

// newOutposts are those of the clusters in which the host is no member by its
// configuration; o is how it runs workflows otherwise.
func (p *part) newOutposts(o workflow.Options) []*outpost {
	var all []*outpost
	for _, name := range orchestrates(p.conf) {
		o, own := o, name == p.conf.Cluster // each changes options of its own
		if own && p.conf.Member != nil {
			continue
		}
		post := &outpost{
			cluster: cluster.New(p.client, p.conf.Prefix, name).WatchedBy(p.node), node: p.node, version: p.version,
			log: p.log.With("cluster", name),
		}
		post.holds = newHolds(post.cluster.Cluster, p.node, p.conf.StateDir, post.log)
		if !own {
			o.StateDir = workflow.ClusterDir(p.conf.StateDir, name)
			there := *p.conf
			there.Cluster = name
			o.Environ = workflow.Environ(&there)
			o.Params, o.Tokens = workflow.ParamsOf(post.cluster.Cluster, p.node), workflow.TokensOf(p.client, p.conf.Prefix, name)
		}
		o.Held, o.Free = post.holds.Held, post.holds.free
		post.managing = workflow.New(o)
		all = append(all, post)
	}
	return all
}

// run does the host's part in the cluster's runs until ctx ends.
func (o *outpost) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return o.cluster.Run(ctx) })
	g.Go(func() error { return o.holds.run(ctx) })
	g.Go(func() error {
		return runs.NewWorker(runs.WorkerOptions{
			Store: o.cluster.Store(), Node: o.node, Runner: o.managing, Begin: o.holds.begin, Held: o.holds.Held,
			Version: o.version, Log: o.log.Named("runs"),
		}).Run(ctx)
	})
	return g.Wait()
}
