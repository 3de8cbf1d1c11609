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

// guestCluster is this host's part in a cluster that it may orchestrate without
// being a member: if the cluster has no manager, workflows for managers run on the
// host of the orchestrator.
type guestCluster struct {
	cluster  *cluster.Watched
	node     string
	holds    *holds
	managing *workflow.Runner
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
			cluster: cluster.New(p.client, p.conf.Prefix, name).WatchedBy(p.node), node: p.node, version: p.version,
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
			Store: o.cluster.Store(), Node: o.node, Runner: o.managing, Begin: o.holds.begin, Held: o.holds.Held,
			Version: o.version, Log: o.log.Named("runs"),
		}).Run(ctx)
	})
	return g.Wait()
}

// mayBeJoinedManually reports whether workOnceJoined has to run: neither the
// configuration nor a guest cluster makes this host work on the cluster's runs.
func (p *part) mayBeJoinedManually() bool {
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

// workOnceJoined works on runs once an operator has joined the host manually, so
// that a record of it exists although its configuration has no member block. Work
// that has begun continues when the host leaves. It returns ctx's error.
func (p *part) workOnceJoined(ctx context.Context) error {
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := p.cluster.WatchRecord(waiting, p.node, func(u kv.Update[cluster.Record]) {
		switch {
		case u.Err != nil:
			p.log.Debug("cannot read whether this host was joined manually", "error", u.Err)
		case u.Entry.Exists:
			cancel(errJoined)
		}
	})
	if !errors.Is(context.Cause(waiting), errJoined) {
		return err
	}
	p.log.Info("this host was joined manually; it works on runs", "cluster", p.cluster.Name())
	g, ctx := errgroup.WithContext(ctx)
	if !participates(p.conf) {
		g.Go(func() error { return p.holds.run(ctx) })
	}
	g.Go(func() error { return p.work(ctx) })
	return g.Wait()
}
