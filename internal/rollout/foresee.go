package rollout

import "time"

// mostForeseen bounds how many decisions Foresee looks ahead.
const mostForeseen = 1000

// Foresee returns who is to be admitted, one decision after the other, when all
// who are admitted arrive, canaries are promoted and nothing else happens. It is a
// pure function.
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
		if len(decided) == 0 || next.Over() || next.Stopped != nil {
			break
		}
		d = next
		for i := range v.Members {
			m := &v.Members[i]
			if m.part(d.Policy) && m.Up && d.Rule.Admits(d.Policy.KeyOf(d.Version, m.Node, m.Roles, m.Zone)) {
				m.Version, m.Arrived, m.Holds, m.Sick = d.Version, now, false, false
			}
		}
	}
	return steps
}
