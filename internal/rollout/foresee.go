package rollout

import (
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
)

// mostForeseen bounds how many decisions Foresee looks ahead.
const mostForeseen = 1000

// Foresee returns who is to be admitted, one decision after the other, when all
// that are admitted or at work arrive, canaries are promoted and nothing else
// happens. It is a pure function.
func Foresee(d Document, s State, now time.Time) []Decision {
	s.Members = append([]Member{}, s.Members...)
	if d.Over() || d.Stopped != nil {
		return nil
	}
	if !d.Paced() {
		p := newPlanner(d, s, now)
		all := p.admitted(func(m ranked) bool { return !m.settled() })
		p.record(DecideAdmit, "", all, "all at once: %d members are admitted", len(all))
		return p.decisions
	}
	d.Promoted = true
	var steps []Decision
	for range mostForeseen {
		plan := Plan(d, s, now)
		for _, one := range plan.Decisions {
			if one.Kind != DecideDone {
				steps = append(steps, one)
			}
		}
		d = plan.Document
		if d.Over() || d.Stopped != nil || !arrive(d, s, now) && len(plan.Decisions) == 0 {
			break
		}
	}
	return steps
}

// arrive lets those arrive that are admitted, and those finish that are at work
// from before; it reports whether there were any.
func arrive(d Document, s State, now time.Time) (any bool) {
	p := newPlanner(d, s, now)
	step := p.step()
	for i := range s.Members {
		m := &s.Members[i]
		if !m.Up() {
			continue
		}
		in := m.takesPart(d.Policy) && step.admits(d.Policy.KeyOf(d.Version, m.Node, m.Roles, m.Zone))
		if any = any || m.granted() || in && (m.Version != d.Version || m.out() != cluster.InService); in {
			m.Version, m.Arrived = d.Version, now
			m.Condition.Health, m.Condition.Maintenance = consul.HealthPassing, cluster.MaintenanceNone
		}
		m.Grant, m.Answer = Grant{}, cluster.GrantAnswer{}
	}
	return any
}
