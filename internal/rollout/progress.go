package rollout

import (
	"cmp"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
)

// HostProgress is how far one host is on its way to the version of a rollout.
type HostProgress struct {
	pace.HostProgress
	Roles   []string `json:"roles"`
	Version string   `json:"version"` // that it runs
	// Granted is when its open grant began; left out: it has none.
	Granted time.Time `json:"granted,omitzero"`
	Health  string    `json:"health"` // passing, warning, critical, maintenance; empty: the host is absent
	// Out is why it is out of service: grant, down, critical, maintenance; empty: it is in service.
	Out string `json:"out"`
	// NextTry is when it tries again what failed.
	NextTry time.Time `json:"next_try,omitzero"`
}

// Progress returns how far each member is, the ones that need attention first. It
// is a pure function, made of what Plan is made of.
func Progress(d Document, s State, now time.Time) []HostProgress {
	p := newPlanner(d, s, now)
	o := p.Outlook()
	all := make([]HostProgress, 0, len(s.Members))
	for _, m := range append(slices.Clone(p.members), p.others...) {
		all = append(all, p.hostProgress(m, o))
	}
	for _, m := range s.Members {
		if why := m.apart(d.Policy); why != "" && !m.granted() {
			h := m.hostProgress()
			h.State, h.Detail = pace.Apart, why
			all = append(all, h)
		}
	}
	slices.SortStableFunc(all, func(a, b HostProgress) int { return pace.CompareProgress(a.State, b.State) })
	return all
}

// hostProgress is what does not depend on the other members.
func (m *Member) hostProgress() HostProgress {
	h := HostProgress{
		HostProgress: pace.HostProgress{Node: m.Node, Zone: m.Zone}, Roles: append([]string{}, m.Roles...), Version: m.Version, Health: m.Condition.Health, Out: string(m.out()),
	}
	if m.granted() || m.givenUp() {
		h.Granted = m.grantedSince()
	}
	return h
}

func (p *planner) hostProgress(m ranked, o pace.Outlook) HostProgress {
	h := m.hostProgress()
	h.State = m.in.State
	switch m.in.State {
	case pace.Failed:
		h.Since, h.Detail = m.failedSince(p.doc), shorten(p.failure(m))
		for _, s := range m.states() {
			if s.failedIn(p.doc) {
				h.NextTry = s.NextTry
				break
			}
		}
	case pace.Working:
		h.Since, h.Detail = h.Granted, cmp.Or(m.activity(), p.grantText(m))
		if !p.doc.Paced() {
			h.Since = m.Config.Since
		}
	case pace.Down:
		h.Since, h.Detail = m.DownSince, "its host or its agent is down"
	case pace.Left:
		h.Since, h.Detail = h.Granted, p.grantText(m)
	case pace.Held:
		h.Since, h.Detail = h.Granted, cmp.Or(p.grantText(m), m.aside())
	case pace.HasIt:
		h.Since = m.Arrived
	case pace.Pending:
		h.Detail = cmp.Or(m.unmet(p.doc), "it has not begun")
		if p.doc.Paced() {
			h.Detail = o.Why(m.in).Text(p.Words.Noun)
		}
	}
	return h
}

// unmet is what the member says that it waits for before it begins.
func (m Member) unmet(d Document) string {
	if c := m.Config; c.Version == d.Version && c.State == cluster.StatePending {
		return shorten(c.Detail)
	}
	return ""
}

// activity is the workflow that the member executes now; empty: none.
func (m *Member) activity() string {
	for _, s := range m.states() {
		if s.State == cluster.StateRunning {
			return s.category + " is running since " + s.Since.UTC().Format(time.RFC3339)
		}
	}
	return ""
}
