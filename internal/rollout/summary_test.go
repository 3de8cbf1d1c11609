package rollout_test

import (
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
)

// TestSummarize: the summary names what the rollout waits for.
func TestSummarize(t *testing.T) {
	t.Parallel()
	up := cluster.Assess(cluster.Signals{Cataloged: true, Gossip: cluster.SignalPassing, Agent: cluster.SignalPassing, Checks: "passing", Maintenance: cluster.MaintenanceNone})
	behind, arrived := rollout.Member{Node: "a", Condition: up, Version: "v1"}, rollout.Member{Node: "a", Condition: up, Version: "v2", Arrived: noon}
	paced := rollout.Policy{MaxParallel: rollout.Amount{N: 1}}
	closed, err := pace.ParseWindow("02:00-03:00")
	if err != nil {
		t.Fatal(err)
	}
	stopped := func(by string) func(*rollout.Document) {
		return func(d *rollout.Document) { d.Stopped = &rollout.Stop{By: by, Since: noon} }
	}
	for name, c := range map[string]struct {
		policy  rollout.Policy
		member  *rollout.Member
		halted  string
		change  func(*rollout.Document)
		blocker rollout.Blocker
		jorc    bool
	}{
		"over":             {paced, &arrived, "", func(d *rollout.Document) { d.Phase = rollout.Done }, "", false},
		"paused by jorc":   {paced, &behind, "", stopped("jorc"), rollout.BlockedByPause, true},
		"paused by ann":    {paced, &behind, "", stopped("ann"), rollout.BlockedByPause, false},
		"no members":       {paced, nil, "", nil, rollout.BlockedByMembers, false},
		"promotion":        {rollout.Policy{Canary: 1}, &arrived, "", func(d *rollout.Document) { d.Phase = rollout.Canary }, rollout.BlockedByPromotion, false},
		"cluster":          {paced, &behind, "the cluster is paused", nil, rollout.BlockedByCluster, false},
		"window":           {rollout.Policy{Windows: []rollout.Window{closed}, MaxParallel: paced.MaxParallel}, &behind, "", nil, rollout.BlockedByWindow, false},
		"hosts":            {paced, &behind, "", nil, rollout.BlockedByHosts, false},
		"hosts, no policy": {rollout.Policy{}, &behind, "", nil, rollout.BlockedByHosts, false},
		"aborted is over":  {paced, &behind, "", func(d *rollout.Document) { d.Phase = rollout.Aborted; stopped("ann")(d) }, "", false},
	} {
		d := started(t, c.policy)
		if c.change != nil {
			c.change(&d)
		}
		s := rollout.State{Halted: c.halted}
		if c.member != nil {
			s.Members = []rollout.Member{*c.member}
		}
		got := rollout.Summarize(d, s, noon.Add(time.Minute))
		if got.Blocker != c.blocker || got.PausedByJorc != c.jorc {
			t.Errorf("%s: waits for %q, paused by jorc: %t; want %q, %t", name, got.Blocker, got.PausedByJorc, c.blocker, c.jorc)
		}
	}
}
