package agent

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/converge"
	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/lease"
	"github.com/jorc/jorc/internal/workflow"
)

// newLease returns the lease of a host, which shares its maintenance with versions and jobs.
func newLease(m *maintenance, stateDir string, least time.Duration, clock durable.Clock, log hclog.Logger) *lease.Host {
	return lease.NewHost(lease.Options{StateDir: stateDir, Maintenance: ownedMaintenance{m, ownerLease}, Least: least, Clock: clock, Log: log.Named("lease")})
}

// changes is the host's side of all changes.
func (p *part) changes() *change.Host {
	return change.NewHost(change.HostOptions{
		Cluster: p.cluster.Cluster, Report: p.report, Roles: p.holds.roles, Log: p.log.Named("changes"),
		Holds: func(ctx context.Context, handle func(string)) error {
			return p.holds.Watch(ctx, func(now converge.Hold) { handle(now.Held) })
		},
		Checks: func(ctx context.Context, handle func([]string)) error {
			return p.checks.Watch(ctx, func(now converge.Health) {
				failing := slices.Clone(now.Failing)
				if now.Drained {
					failing = append(failing, cluster.DrainedText)
				}
				handle(failing)
			})
		},
	})
}

// leasePart is what the host's part in its cluster gives to its lease.
func (p *part) leasePart() lease.Part {
	return lease.Part{
		Cluster: p.cluster.Cluster, Host: p.host, Take: p.jobs.Hold,
		Covers: func(job string) (covers, known bool) {
			res, err := p.jobs.Job(job)
			return err == nil && res.Out && res.Origin != workflow.ByHand, err == nil
		},
	}
}
