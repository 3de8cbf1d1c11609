package agent

import (
	"context"
	"fmt"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/converge"
	"github.com/jorc/jorc/internal/rollout"
)

// converger brings the host from the version that it runs to the desired one,
// when the cluster's rollout lets it.
func (p *part) converger(m converge.Maintenance) *converge.Converger {
	ledger := cluster.New(p.client, p.conf.Prefix, p.conf.Cluster).In(p.cluster.Store()).Remembering()
	grantee := converge.NewGrantee(converge.GranteeOptions{
		Node: p.node, StateDir: p.conf.StateDir, Rollouts: rollout.New(p.client, p.conf.Prefix, p.conf.Cluster).In(p.cluster.Store()), Ledger: ledger,
		Maintenance: m, Checks: p.checks, Log: p.log.Named("rollout"),
	})
	return converge.New(converge.Options{
		Node: p.node, StateDir: p.conf.StateDir, VersionFile: p.conf.VersionFile,
		Static: *p.conf.Static, Requires: p.conf.Requires,
		Ledger: ledger, Runner: p.jobs,
		Requirements: converge.FromBlocker(p.blocker), Admission: grantee, Holds: p.holds, Checks: ownChecks{p.checks},
		Cycle: p.cycle, Log: p.log.Named("converge"),
	})
}

// joinOnce is the pass of a host without static configuration: when ctx ends
// before it has joined its cluster that failed.
func (p *part) joinOnce(ctx context.Context) error {
	if p.conf.Member != nil {
		if err := p.joined(ctx); err != nil {
			return err
		}
	}
	return stopped(p.conf.StateDir)
}

// stopped is converge.ErrHeld while there is a hold file.
func stopped(stateDir string) error {
	if reason := HoldReason(stateDir); reason != "" {
		return fmt.Errorf("%w: %s", converge.ErrHeld, reason)
	}
	return nil
}

// cycle is the cycle of static requirements that this host is part of: each
// member waits for the next, and the last for the first. It reads all members.
func (p *part) cycle(ctx context.Context) ([]string, error) {
	members, err := p.cluster.Members(ctx, cluster.MembersOptions{})
	if err != nil {
		return nil, err
	}
	graph := cluster.Dependencies(members)
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

// version is the version that this host runs; empty when none is known.
func (p *part) version() string {
	v, err := cluster.ReadVersionFile(p.conf.VersionFile)
	if err != nil {
		return ""
	}
	return v
}
