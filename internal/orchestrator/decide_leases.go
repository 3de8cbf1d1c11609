package orchestrator

import (
	"context"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/lease"
)

// leases gives places to hosts that ask for a lease, and tells the others what they wait for. again is when
// time alone changes that.
func (g *granter) leases(ctx context.Context, r *round) (again time.Time, err error) {
	_, members, err := r.rollout()
	if err != nil {
		return again, nil //nolint:nilerr // the cycle says so, and nothing can be planned
	}
	all := lease.AskingIn(&r.State, &members)
	demand, waits := lease.Demand(all)
	if !waits {
		r.wants(demand)
		return again, nil
	}
	if members.Places, err = r.account(demand); err != nil {
		return again, err
	}
	next, denied, again := lease.Plan(all, &members, g.held.Session(), time.Now())
	demand.Nodes = denied
	r.wants(demand)
	if len(next) == 0 {
		r.last(demand)
		return again, nil
	}
	return again, r.grant(ctx, deciderLeases, nil, next, nil, func(t *kv.Txn) { change.Fence(t, r.State.Indexes) })
}

// deciderLeases is the name under which logs show what leases were granted.
const deciderLeases = "leases"
