package rollout

import "time"

// mostForeseen bounds how many decisions Foresee looks ahead.
const mostForeseen = 1000

// Foresee returns who is to be admitted, one decision after the other, when all
// who are admitted or under way arrive, canaries are promoted and nothing else
// happens. It is a pure function.
func Foresee(d Document, v View, now time.Time) []Decision {
	v.Members = append([]Member{}, v.Members...)
	if d.Over() || d.Stopped != nil {
		return nil
	}
	if d.Rule.All {
		p := planner{survey: newSurvey(d, v, now)}
		all := p.unsettled()
		p.say(DecideAdmit, "", all, "everybody at once: %d members are admitted", len(all))
		return p.decisions
	}
	d.Promoted = true
	var steps []Decision
	for range mostForeseen {
		next, _, decided := Plan(d, v, now)
		for _, one := range decided {
			if one.Kind != DecideDone {
				steps = append(steps, one)
			}
		}
		d = next
		if d.Over() || d.Stopped != nil || !arrive(d, v.Members, now) && len(decided) == 0 {
			break
		}
	}
	return steps
}

// arrive lets those arrive who are admitted, and those finish who are under way
// from before; it tells whether there were any.
func arrive(d Document, members []Member, now time.Time) (any bool) {
	for i := range members {
		m := &members[i]
		if !m.Up {
			continue
		}
		in := m.part(d.Policy) && d.Rule.Admits(d.Policy.KeyOf(d.Version, m.Node, m.Roles, m.Zone))
		if any = any || m.Holds || in && (m.Version != d.Version || m.Sick); in {
			m.Version, m.Arrived, m.Sick = d.Version, now, false
		}
		m.Holds = false
	}
	return any
}
