package agent

import (
	"context"
	"errors"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/workflow"
)

// guestCluster is this host's part in a cluster that it may orchestrate without being a
// member: workflows for managers run where the orchestrator is when the cluster
// has no manager.
type guestCluster struct {
	cluster  *cluster.Watched
	node     string
	holds    *holds
	managing *workflow.Runner
	version  func() string
	log      hclog.Logger
}

// newGuestClusters are those of the clusters in which the host is not a member by its
// configuration; o is how it runs workflows otherwise.
func (p *part) newGuestClusters(o workflow.Options) []*guestCluster {
	var all []*guestCluster
	for _, name := range orchestrates(p.conf) {
		o, own := o, name == p.conf.Cluster // each changes options of its own
		if own && p.conf.Member != nil {
			continue
		}
		post := &guestCluster{
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
func (o *guestCluster) run(ctx context.Context) error {
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

// adoptable reports whether an operator may make the host a member by hand, whose
// part in runs nothing else does.
func (p *part) adoptable() bool {
	if p.conf.Member != nil {
		return false
	}
	for _, o := range p.guestClusters {
		if o.cluster.Name() == p.cluster.Name() {
			return false
		}
	}
	return true
}

// adopted does the host's part in runs once it is a member by hand: there is a
// record of it, although its configuration says nothing of that. What it has
// begun then continues when it leaves. It returns ctx's error when that has ended.
func (p *part) adopted(ctx context.Context) error {
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := p.cluster.WatchRecord(waiting, p.node, func(u kv.Update[cluster.Record]) {
		switch {
		case u.Err != nil:
			p.log.Debug("whether this host was joined by hand cannot be read", "error", u.Err)
		case u.Entry.Exists:
			cancel(errJoined)
		}
	})
	if !errors.Is(context.Cause(waiting), errJoined) {
		return err
	}
	p.log.Info("this host was joined by hand: it does its part in runs", "cluster", p.cluster.Name())
	g, ctx := errgroup.WithContext(ctx)
	if !belongs(p.conf) {
		g.Go(func() error { return p.holds.run(ctx) })
	}
	g.Go(func() error { return p.work(ctx) })
	return g.Wait()
}
