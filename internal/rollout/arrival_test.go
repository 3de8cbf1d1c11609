package rollout_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
)

// drain puts a member into maintenance that jorc did not begin.
func drain(m *rollout.Member) {
	m.Condition = cluster.Assess(cluster.Signals{
		Cataloged: true, Gossip: cluster.SignalPassing, Agent: cluster.SignalPassing, Maintenance: cluster.MaintenanceForeign, Checks: "passing",
	})
}

// TestOutcome: how a wait ends, by what is missing.
func TestOutcome(t *testing.T) {
	t.Parallel()
	type member = func(*rollout.Member)
	held := func(m *rollout.Member) { m.Hold = "since noon by ann: disk" }
	down := func(m *rollout.Member) { set(m, false, false) }
	both := func(all ...member) member {
		return func(m *rollout.Member) {
			for _, one := range all {
				one(m)
			}
		}
	}
	gone := func(m *rollout.Member) { m.Condition, m.Version = cluster.Assess(cluster.Signals{}), "" }
	role := func(name string) member { return func(m *rollout.Member) { m.Roles = []string{name} } }
	grantDone := func(m *rollout.Member) { grant(m); arrive(m) }
	givenUp := func(m *rollout.Member) { grant(m); m.Grant.State = pace.GivenUp }
	paced := pace.Policy{MaxParallel: pace.Amount{N: 5}}
	kept := pace.Policy{MaxParallel: pace.Amount{N: 5}, Order: []pace.Role{{Name: "worker"}, {Name: "db", Kept: true}}}
	outside := func(m *rollout.Member) { m.Outside = true }
	for _, test := range []struct {
		name    string
		members []member
		policy  pace.Policy
		want    error // nil with an empty text: all are there
		text    string
	}{
		{"all are there", []member{arrive, arrive}, paced, nil, ""},
		{"without a policy", []member{arrive, arrive}, pace.Policy{}, nil, ""},
		{"one is about to begin", []member{arrive, nil}, paced, nil, "waits"},
		{"one has a grant", []member{arrive, grant}, paced, nil, "waits"},
		{"one is at the version and has a grant", []member{arrive, grantDone}, paced, nil, "waits"},
		{"one is down", []member{arrive, down}, paced, nil, "waits"},
		{"one is down, without a policy", []member{arrive, down}, pace.Policy{}, nil, "waits"},
		{"one is down at the version", []member{arrive, both(down, arrive)}, paced, nil, ""},
		{"one left the catalog at the old version", []member{arrive, both(gone, func(m *rollout.Member) { m.Version = "v1" })}, paced, nil, "waits"},
		{"one is held", []member{arrive, held}, paced, rollout.ErrAside, "n2: it is held: since noon by ann: disk"},
		{"one is held, without a policy", []member{arrive, held}, pace.Policy{}, rollout.ErrAside, "1 of 2 members run v2; missing: n2: it is held"},
		{"one is held at the version", []member{arrive, both(held, arrive)}, paced, nil, ""},
		{"one is held and down", []member{arrive, both(held, down)}, paced, rollout.ErrAside, "n2: it is held"},
		{"one is held, and one is down", []member{arrive, held, down}, paced, nil, "waits"},
		{"one is held, and one begins", []member{arrive, held, nil}, paced, nil, "waits"},
		{"one is drained", []member{arrive, drain}, paced, rollout.ErrAside, "n2: it is in maintenance"},
		{"one is drained and keeps its grant", []member{arrive, both(grantDone, drain)}, paced, rollout.ErrAside, "n2: it is in maintenance"},
		{"one is drained, without a policy", []member{arrive, drain}, pace.Policy{}, rollout.ErrAside, "n2: it is in maintenance"},
		{"one is drained and failed", []member{arrive, both(drain, fail)}, pace.Policy{}, rollout.ErrAside, "n2: it is in maintenance that jorc did not begin; config failed"},
		{"one is drained, and one begins", []member{arrive, drain, nil}, pace.Policy{}, nil, "waits"},
		{"one is drained and held", []member{arrive, both(drain, held)}, paced, rollout.ErrAside, "n2: it is held"},
		{"an operator gave up on one", []member{arrive, givenUp}, paced, rollout.ErrAside, "n2: an operator gave up on it"},
		{"one failed", []member{arrive, fail}, pace.Policy{}, rollout.ErrFailed, "1 of 2 members failed: n2: config failed"},
		{"one failed, and one begins", []member{arrive, fail, nil}, pace.Policy{}, nil, "waits"},
		{"one failed, and one is held", []member{arrive, fail, held}, pace.Policy{}, rollout.ErrFailed, "1 of 3 members failed: n2"},
		{"one failed, and one is down", []member{arrive, fail, down}, pace.Policy{}, rollout.ErrFailed, "1 of 3 members failed: n2"},
		{"a manager", []member{arrive, role(cluster.RoleManager)}, paced, nil, ""},
		{"a logical member", []member{arrive, gone}, paced, nil, ""},
		{"outside the cluster's filter", []member{arrive, outside}, paced, nil, ""},
		{"a role that is kept back", []member{arrive, role("db")}, kept, nil, ""},
		{"a role that was kept back", []member{arrive, role("db")}, paced, nil, "waits"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			v := fleetOf(len(test.members), func(i int, m *rollout.Member) {
				if set := test.members[i]; set != nil {
					set(m)
				}
			})
			d := started(t, test.policy)
			d.Phase, d.Finished = pace.Done, noon
			over, err := rollout.Outcome(rollout.Describe(d, v, noon), d)
			switch {
			case test.want == nil && (err != nil || over == (test.text == "waits")):
				t.Errorf("got %v, %v, want %q", over, err, test.text)
			case test.want != nil && (!over || !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text)):
				t.Errorf("got %v, %v, want %v: %q", over, err, test.want, test.text)
			}
		})
	}
}

// TestOutcomeOfRollback: a wait after a rollback by an operator is for the version that is
// desired then; a rollback by the policy, and one that came meanwhile, fails it.
func TestOutcomeOfRollback(t *testing.T) {
	t.Parallel()
	v := fleetOf(1, func(_ int, m *rollout.Member) { arrive(m) })
	before := started(t, pace.Policy{MaxParallel: pace.Amount{N: 1}})
	before.Version = "v3"
	back := started(t, before.Policy)
	back.Phase, back.RollbackOf = pace.Done, &rollout.Rollback{Version: "v3", Reason: "slow"}
	for _, by := range []string{"ann", "jorc"} {
		back.By = by
		status := rollout.Describe(back, v, noon)
		_, err := rollout.Outcome(status, back)
		if fails := errors.Is(err, rollout.ErrFailed) && strings.Contains(err.Error(), "v3 was rolled back to v2, which is desired now"); fails != (by == "jorc") || err != nil && !fails {
			t.Errorf("after a rollback by %s: %v", by, err)
		}
		if _, err := rollout.Outcome(status, before); !errors.Is(err, rollout.ErrFailed) || !strings.Contains(err.Error(), "v3 is rolled back to v2, which is desired now: slow") {
			t.Errorf("before a rollback by %s: %v", by, err)
		}
	}
}
