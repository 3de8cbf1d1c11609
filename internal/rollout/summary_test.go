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
	paced := pace.Policy{MaxParallel: pace.Amount{N: 1}}
	closed, err := pace.ParseWindow("02:00-03:00")
	if err != nil {
		t.Fatal(err)
	}
	stopped := func(by string) func(*rollout.Document) {
		return func(d *rollout.Document) { d.Stopped = &rollout.Stop{By: by, Since: noon} }
	}
	for name, c := range map[string]struct {
		policy  pace.Policy
		member  *rollout.Member
		halted  string
		change  func(*rollout.Document)
		blocker pace.Blocker
		jorc    bool
	}{
		"over":             {paced, &arrived, "", func(d *rollout.Document) { d.Phase = pace.Done }, "", false},
		"paused by jorc":   {paced, &behind, "", stopped("jorc"), pace.BlockedByPause, true},
		"paused by ann":    {paced, &behind, "", stopped("ann"), pace.BlockedByPause, false},
		"no members":       {paced, nil, "", nil, pace.BlockedByMembers, false},
		"promotion":        {pace.Policy{Canary: 1}, &arrived, "", func(d *rollout.Document) { d.Phase = pace.Canary }, pace.BlockedByPromotion, false},
		"cluster":          {paced, &behind, "the cluster is paused", nil, pace.BlockedByCluster, false},
		"window":           {pace.Policy{Windows: []pace.Window{closed}, MaxParallel: paced.MaxParallel}, &behind, "", nil, pace.BlockedByWindow, false},
		"hosts":            {paced, &behind, "", nil, pace.BlockedByHosts, false},
		"hosts, no policy": {pace.Policy{}, &behind, "", nil, pace.BlockedByHosts, false},
		"aborted is over":  {paced, &behind, "", func(d *rollout.Document) { d.Phase = pace.Aborted; stopped("ann")(d) }, "", false},
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
