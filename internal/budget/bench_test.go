package budget_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/budget"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/lease"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/stage"
)

// bigWorld are 5,000 members of a cluster with a budget of a tenth. A version is running: a third
// has it. With all, new content of a stage, which half of them has, and a run that disturbs are, too.
func bigWorld(b *testing.B, now time.Time, all bool) (cluster.State, rollout.Stored, stage.Documents, []runs.Active) {
	b.Helper()
	const hosts = 5000
	s := cluster.State{Hosts: map[string]*cluster.Host{}, Desired: "v2", Control: cluster.Control{Budget: &pace.Budget{MaxOut: pace.Amount{N: 10, Percent: true}}}}
	input := cluster.StageInputsOf([]cluster.StageInput{{Name: "key app/limit", Digest: "d"}})
	run := runs.Active{Run: runs.Run{ID: "r", Request: runs.Request{Workflow: "patch", Disturbs: true}, Created: now, State: runs.Running, Started: now}, Jobs: map[string]runs.Job{}}
	for i := range hosts {
		node := fmt.Sprintf("node-%04d", i)
		h := &cluster.Host{
			Node: node, Member: true, Reported: true, Record: cluster.Record{Roles: []string{"web"}, Zone: fmt.Sprintf("rack-%d", i%50), Static: []string{"converge"}},
			Report:    cluster.Report{Version: "v1", Since: now.Add(-time.Hour)},
			Condition: cluster.Condition{Liveness: cluster.LivenessUp, Agent: cluster.AgentUp, Health: consul.HealthPassing},
		}
		if i%3 == 0 {
			h.Report.Version = "v2"
		}
		if all {
			h.Report.Stages = map[string]cluster.StageReport{"edge": {Policy: cluster.StagePolicy{MaxParallel: "1%"}, Wants: "c", Changed: input}}
			if i%2 == 0 {
				h.Report.Stages["edge"] = cluster.StageReport{Policy: cluster.StagePolicy{MaxParallel: "1%"}, Taken: input, State: cluster.StageDone}
				h.Report = h.Report.WithAnswer(cluster.Answer{Change: cluster.FilesChange("edge"), ID: "1.1.s", Tag: "c", State: cluster.GrantDone})
			}
			run.Roster = append(run.Roster, node)
			if i%5 == 0 {
				run.Jobs[node] = runs.Job{State: runs.Done, Attempt: 1, History: []runs.Change{{At: now.Add(-time.Hour), State: runs.Done}}}
			}
		}
		s.Hosts[node] = h
	}
	limit, err := pace.PolicyAmount("1%")
	if err != nil {
		b.Fatal(err)
	}
	stored := rollout.Stored{Desired: "v2", Exists: true, Control: s.Control, Session: "s", Document: rollout.Document{
		Spec:     rollout.Spec{Version: "v2", Previous: "v1", Policy: pace.Policy{MaxParallel: limit}, Started: now.Add(-time.Hour)},
		Progress: pace.Progress{Since: now.Add(-time.Hour), Phase: pace.Batch, Batch: 1},
	}}
	return s, stored, stage.Documents{Stage: "edge", Book: stage.Book{Active: true}}, []runs.Active{run}
}

// askFor is the state with n hosts that ask for a lease.
func askFor(b *testing.B, s cluster.State, n int, now time.Time) cluster.State {
	b.Helper()
	s.Hosts = maps.Clone(s.Hosts)
	for node, h := range s.Hosts {
		if n--; n < 0 {
			break
		}
		asks := *h
		asks.Report = h.Report.Wishing(&cluster.Wish{ID: node, Since: now.Add(-time.Minute)})
		s.Hosts[node] = &asks
	}
	return s
}

// BenchmarkPass plans, on a state that is there, with one active change and with three: the pass
// that offers grants, and after it the round of a cycle, which plans stages and runs on one count. Target: a pass with three
// takes at most 1.5 times as long as one with one, and at most 40 ms.
func BenchmarkPass(b *testing.B) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	plan := func(b *testing.B, s *cluster.State, stored rollout.Stored, d budget.Documents, do func(members rollout.State, places *pace.Account)) {
		b.Helper()
		members, err := rollout.StateOf(s, stored)
		if err != nil {
			b.Fatal(err)
		}
		do(members, budget.Count(s, members, d, "", nil, now))
	}
	for _, changes := range []int{1, 3} {
		s, stored, edge, active := bigWorld(b, now, changes == 3)
		documents := budget.Documents{Stages: map[string]stage.Documents{"edge": edge}}
		grants := func(b *testing.B) {
			plan(b, &s, stored, documents, func(members rollout.State, places *pace.Account) {
				if members.Places = places; len(rollout.Plan(stored.Document, members, now).Offers) == 0 {
					b.Fatal("nothing is offered")
				}
			})
		}
		b.Run(fmt.Sprintf("grants, %d active", changes), func(b *testing.B) {
			for b.Loop() {
				grants(b)
			}
		})
		if changes == 1 {
			continue
		}
		asking := askFor(b, s, 17, now)
		b.Run("the granter's pass, 20 active", func(b *testing.B) {
			for b.Loop() {
				plan(b, &asking, stored, documents, func(members rollout.State, places *pace.Account) {
					if members.Places = places; len(rollout.Plan(stored.Document, members, now).Offers) == 0 {
						b.Fatal("nothing is offered")
					}
					if next, _, _ := lease.Plan(lease.AskingIn(&asking, &members), &members, "s", now); len(next) == 0 {
						b.Fatal("no lease is granted, and none waits")
					}
				})
			}
		})
		members := s.Members(nil)
		for i := range members {
			members[i].Agent = cluster.AgentUp
		}
		b.Run("all kinds", func(b *testing.B) {
			for b.Loop() {
				grants(b)
				plan(b, &s, stored, documents, func(_ rollout.State, places *pace.Account) {
					p := stage.Plan(documents.Stages["edge"].Book, documents.Stages["edge"].Stops, stage.State{Stage: "edge", Session: "s", Hosts: stage.HostsOf(&s)["edge"], Places: places}, now)
					if len(p.Offers) == 0 {
						b.Fatal("no turn is offered")
					}
					for _, node := range p.Offers {
						places.Take(node)
					}
					c := runs.Plan(runs.Situation{Now: now, Members: members, Left: func(pace.Demand, []string) *pace.Account { return places.Clone() }}, active, nil)
					if len(c.Queues) == 0 {
						b.Fatal("no job is given")
					}
				})
			}
		})
	}
}
