package agent

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/converge"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/inventory"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/rollout"
)

// converger returns the Converger that brings the host to the desired version when
// the cluster's rollout admits it.
func (p *part) converger(m converge.Maintenance) *converge.Converger {
	grantee := converge.NewGrantee(converge.GranteeOptions{
		StateDir: p.conf.StateDir, Host: p.host, Rollouts: rollout.New(p.client, p.conf.Prefix, p.conf.Cluster).In(p.cluster.Store()),
		Maintenance: m, Log: p.log.Named("rollout"),
	})
	p.admission = &admission{grantee, &p.unorchestrated.grant}
	return converge.New(converge.Options{
		Node: p.node, StateDir: p.conf.StateDir, VersionFile: p.conf.VersionFile,
		Static: *p.conf.Static, Requires: p.conf.Requires,
		Report: p.report, Desired: p.cluster.WatchDesired, Runner: p.jobs,
		Requirements: converge.FromBlocker(p.blocker), Admission: p.admission, Holds: p.holds, Checks: ownChecks{p.checks},
		Cycle: p.cycle, Log: p.log.Named("converge"),
	})
}

// admission is the Grantee, which also observes that no orchestrator runs while
// this host waits for a grant.
type admission struct {
	*converge.Grantee
	unorchestrated *unorchestrated
}

// unorchestrated knows that no orchestrator runs while this host waits for one.
type unorchestrated struct {
	store *kv.Store
	is    atomic.Bool
}

// takeover is how long the replacement of an orchestrator that ended can take: the
// maximum lifetime of its session plus the lock delay. A shorter wait for a grant
// or new content of a stage costs no query.
const takeover = 31 * time.Second

// Enter implements converge.Admission.
func (a *admission) Enter(ctx context.Context, version string, waiting func(string)) error {
	return a.unorchestrated.during(ctx, func() error { return a.Grantee.Enter(ctx, version, waiting) })
}

// during returns what wait returns, which waits for an orchestrator.
func (u *unorchestrated) during(ctx context.Context, wait func() error) error {
	watch, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		if concurrency.Sleep(watch, takeover) != nil {
			return
		}
		_ = fleet.WatchOrchestrated(watch, u.store, func(is bool) { u.is.Store(!is) }) // ends with watch
	})
	defer u.is.Store(false)
	defer watching.Wait()
	defer stop()
	return wait()
}

// joinOnce is the pass of a host without static configuration. It fails if ctx ends
// before the host has joined its cluster.
func (p *part) joinOnce(ctx context.Context) error {
	if p.conf.Member != nil {
		if err := p.joined(ctx); err != nil {
			return err
		}
	}
	return heldByFile(p.conf.StateDir)
}

// heldByFile returns a converge.ErrHeld while the hold file exists.
func heldByFile(stateDir string) error {
	if reason := HoldReason(stateDir); reason != "" {
		return fmt.Errorf("%w: %s", converge.ErrHeld, reason)
	}
	return nil
}

// cycle returns the cycle of static requirements that contains this host: each
// member waits for the next, and the last for the first. It reads all members.
func (p *part) cycle(ctx context.Context) ([]string, error) {
	members, err := p.cluster.Members(ctx, fleet.MembersOptions{})
	if err != nil {
		return nil, err
	}
	graph := inventory.Dependencies(members)
	if !graph.InCycle(p.node) {
		return nil, nil
	}
	for _, c := range graph.Cycles {
		for _, node := range c {
			if node == p.node {
				return c, nil
			}
		}
	}
	return nil, nil
}

// version returns the version that this host runs; empty if it is unknown.
func (p *part) version() string {
	v, err := converge.ReadVersionFile(p.conf.VersionFile)
	if err != nil {
		return ""
	}
	return v
}

// convergeOnce makes one pass of convergence and returns the errors of
// converge.Converger.Once. A host without static configuration only joins its
// cluster; the hold file prevents that, too.
func (a *Agent) convergeOnce(ctx context.Context) error {
	c := a.generation().conf
	if !participates(c) {
		return heldByFile(c.StateDir)
	}
	node, err := a.awaitOwnState(ctx)
	if err != nil {
		return fmt.Errorf("cannot find out this node's name: %w", err)
	}
	p, err := a.newPart(c, node)
	if err != nil {
		return err
	}
	a.setPart(p)
	running, stop := context.WithCancel(ctx)
	g, running := errgroup.WithContext(running)
	g.Go(func() error { return p.run(running, true) })
	g.Go(func() error {
		defer stop()
		if p.converge == nil {
			return p.joinOnce(running)
		}
		_, err := p.converge.Once(running)
		return err
	})
	return g.Wait()
}
