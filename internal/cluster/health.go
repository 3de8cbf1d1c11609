package cluster

import (
	"strconv"

	"github.com/jorc/jorc/internal/consul"
)

// needChecks are the needs that checks decide about.
const needChecks = NeedHealth | NeedAgent

// checksFor is the filter, in Consul's own language, for the checks that can
// make a difference: those that do not pass, and to know of an agent the one of
// jorc itself. Of large clusters that is far less than all.
func checksFor(need Need, presence string) string {
	filter := "Status != " + strconv.Quote(consul.HealthPassing)
	if need&NeedAgent != 0 {
		filter += " or ServiceID == " + strconv.Quote(presence)
	}
	return filter
}

// assess fills in the condition of the members in all, as far as need asks for
// it; at has their places by name.
func (s sources) assess(all []Member, at map[string]int, presence string, need Need) {
	signals := make([]Signals, len(all))
	for _, n := range s.nodes {
		if i, ok := at[n.Node]; ok {
			signals[i] = observed()
			if s.partial {
				signals[i].Gossip = SignalPassing // a failing check would be in the answer
			}
		}
	}
	count := func(checks []consul.CheckState) {
		for _, check := range checks {
			if i, ok := at[check.Node]; ok {
				signals[i].add(check, presence)
			}
		}
	}
	count(s.checks)
	for _, n := range s.inventory {
		count(n.Checks)
	}
	for i, one := range signals {
		m := &all[i]
		m.Condition = Assess(one)
		if need&NeedHealth != 0 {
			m.Health = m.Condition.Health
		}
		if need&NeedAgent != 0 {
			m.Agent = m.Condition.Agent
		}
	}
}
