package orchestrator

import (
	"context"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/lease"
	"github.com/jorc/jorc/internal/pace"
)

// changeLeases names the leases among the changes that wait for a place: no host has two, and none waits for
// one of another while there is room.
const changeLeases = "leases"

// leases gives places to hosts that ask for a lease, and tells the others what they wait for. again is when
// time alone changes that.
func (g *granter) leases(ctx context.Context, r *round) (again time.Time, err error) {
	_, members, err := r.rollout()
	if err != nil {
		return again, nil //nolint:nilerr // the cycle says so, and nothing can be planned
	}
	all := lease.AskingIn(&r.State, &members)
	demand := pace.Demand{Change: changeLeases}
	for i := range all {
		if !all[i].Answer.Open() && (demand.Created.IsZero() || all[i].Wish.Since.Before(demand.Created)) {
			demand.Created = all[i].Wish.Since
		}
	}
	if demand.Created.IsZero() { // all have their places, if there are any
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
