package rollout

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/text"
)

// Status is a rollout with what is known of the members.
type Status struct {
	Document
	State    string      `json:"state"`
	Now      pace.Counts `json:"now"`
	Admitted int         `json:"admitted"` // members within the present step
	Limit    int         `json:"limit"`    // of members out of service at the same time; 0: no limit
	Grants   []Granted   `json:"grants"`   // that are open or were given up, the oldest first
	Failed   []Failed    `json:"failed"`
	Down     []string    `json:"down"`   // and not at the version; the first of them
	Behind   []string    `json:"behind"` // not at the version; the first of them
	Out      []Out       `json:"out"`    // of service without a grant; the first of each reason
	// Held are members that steps leave out until an operator ends that, by reason.
	Held []Out `json:"held"`
	// Apart are members that take no part, by reason.
	Apart []Out `json:"apart"`
	// Strangers have an open grant and are not members; the first of them.
	Strangers     []string `json:"strangers"`
	StrangerCount int      `json:"stranger_count"` // all of them
	Waits         []string `json:"waits"`          // what it waits for, in words
	// Missing are the members that take part and have not arrived; the first of them.
	Missing []Missing `json:"missing"`

	Arrival Arrival `json:"-"`
	gated   bool    // the present step waits for its gate, or for consent
}

// Granted is a member that has a grant.
type Granted struct {
	Node    string    `json:"node"`
	Version string    `json:"version"`
	State   string    `json:"state"`
	Since   time.Time `json:"since,omitzero"`
	Reason  string    `json:"reason,omitempty"`
}

// Out are members of one kind.
type Out struct {
	Reason string   `json:"reason"`
	Nodes  []string `json:"nodes"` // the first of them
	Count  int      `json:"count"` // all of them
}

// Failed is a member that failed.
type Failed struct {
	Node    string    `json:"node"`
	Reason  string    `json:"reason"`
	Since   time.Time `json:"since,omitzero"`
	Granted bool      `json:"granted"` // it has its grant, and stays out of service
}

// Show describes the rollout as it is. It returns ErrNone when there never was
// one, the document's kv.ErrDamaged, or what Load and Observe return.
func (r *Rollouts) Show(ctx context.Context) (Status, error) {
	s, err := r.Load(ctx)
	if err == nil {
		err = s.usable(r)
	}
	if err != nil {
		return Status{}, err
	}
	state, err := r.Observe(ctx, s)
	if err != nil {
		return Status{}, err
	}
	return Describe(s.Document, state, r.now()), nil
}

// Describe returns the status of a rollout. It is a pure function.
func Describe(d Document, s State, now time.Time) Status {
	p := newPlanner(d, s, now)
	status := Status{
		Document: d, State: d.State(), Now: p.counts, Waits: p.Waits(),
		Grants: []Granted{}, Failed: []Failed{},
		Strangers: append([]string{}, s.Strangers[:min(len(s.Strangers), pace.MostNames)]...), StrangerCount: len(s.Strangers),
		Down: names(p.in(pace.Down)), Behind: names(p.with(func(m ranked) bool { return m.Version != d.Version })),
		Admitted: len(p.admitted(func(ranked) bool { return true })),
		Out:      groups(p.members, func(m *Member) string { return m.out().Text() }),
		Held:     groups(p.in(pace.Held), (*Member).aside),
		Arrival:  p.arrival(),
		gated:    !d.Over() && d.Gate != nil || p.WaitsForApproval(),
	}
	status.Missing = status.Arrival.Missing[:min(len(status.Arrival.Missing), pace.MostNames)]
	// The stored counts are those of the last change of phase.
	status.Counts = status.Now
	if status.Previous == d.Version { // a rollback returns to the version that ran before
		status.Previous = ""
	}
	if d.Paced() {
		status.Limit, _ = p.Room()
	}
	apart := []ranked{}
	for _, m := range s.Members {
		if g, open := m.OpenGrant(); open {
			status.Grants = append(status.Grants, g)
		}
		apart = append(apart, ranked{Member: &m})
	}
	status.Apart = groups(apart, func(m *Member) string { return m.apart(d.Policy) })
	slices.SortStableFunc(status.Grants, func(a, b Granted) int { return a.Since.Compare(b.Since) })
	for _, m := range p.in(pace.Failed) {
		status.Failed = append(status.Failed, Failed{m.Node, shorten(p.failure(m)), m.failedSince(d), m.granted()})
	}
	return status
}

// Summary is a rollout in numbers.
type Summary struct {
	Counts  pace.Counts
	Blocker pace.Blocker // empty: the rollout is over
	// PausedByJorc: jorc paused the rollout by itself, after failures for example.
	PausedByJorc bool
	// LastProgress is when the last member arrived, or when hosts could begin again
	// after that.
	LastProgress time.Time
}

// Summarize returns the summary of a rollout. It is a pure function.
func Summarize(d Document, s State, now time.Time) Summary {
	p := newPlanner(d, s, now)
	return Summary{
		Counts: p.counts, Blocker: p.Blocker(), LastProgress: p.LastProgress(),
		PausedByJorc: d.State() == Paused && d.Stopped.By == byJorc,
	}
}

func (m *Member) describeGrant() Granted {
	g := Granted{Node: m.Node, Version: m.Answer.Tag, State: m.Answer.State, Since: m.Answer.Since, Reason: shorten(m.Answer.Reason)}
	switch {
	case m.givenUp():
		g.State, g.Since, g.Reason = string(pace.GivenUp), m.Grant.Since, shorten(strings.Trim(m.Grant.By+": "+m.Grant.Reason, ": "))
	case m.offered():
		g.Version, g.State, g.Since, g.Reason = m.Grant.Tag, string(pace.Offered), m.Grant.Since, ""
	}
	return g
}

// OpenGrant returns the grant that the member has, one that an operator gave up on too.
func (m *Member) OpenGrant() (Granted, bool) {
	if !m.granted() && !m.givenUp() {
		return Granted{}, false
	}
	return m.describeGrant(), true
}

// groups puts members together by the text that of returns; members without a
// text are left out.
func groups(all []ranked, of func(*Member) string) []Out {
	by := map[string][]ranked{}
	for _, m := range all {
		if why := of(m.Member); why != "" {
			by[why] = append(by[why], m)
		}
	}
	found := []Out{}
	for _, why := range slices.Sorted(maps.Keys(by)) {
		found = append(found, Out{why, names(by[why]), len(by[why])})
	}
	return found
}

// mostForeseen bounds how many decisions Foresee looks ahead.
const mostForeseen = 1000

// Foresee returns who is to be admitted, one decision after the other, when all
// that are admitted or at work arrive, canaries are promoted and nothing else
// happens. It is a pure function.
func Foresee(d Document, s State, now time.Time) []pace.Decision {
	s.Members = append([]Member{}, s.Members...)
	if d.Over() || d.Stopped != nil {
		return nil
	}
	if !d.Paced() {
		p := newPlanner(d, s, now)
		all := p.admitted(func(m ranked) bool { return !m.in.Settled() })
		one := event.Decision{Kind: event.ChangeStepBegan, Text: "all at once: " + text.Count(len(all), "member is", "members are") + " admitted"}
		return []pace.Decision{{Decision: one, Nodes: names(all), Count: len(all)}}
	}
	d.Promoted, d.Policy, d.Gate = true, d.Policy.WithoutGates(), nil
	var steps []pace.Decision
	for range mostForeseen {
		plan := Plan(d, s, now)
		for _, one := range plan.Decisions {
			if one.Kind != event.ChangeDone {
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
	step := p.Step()
	for i := range s.Members {
		m := &s.Members[i]
		if !m.Up() || m.aside() != "" {
			continue
		}
		in := m.takesPart(d.Policy) && step.Admits(d.Policy.KeyOf(d.Version, m.Node, m.Roles, m.Zone))
		if any = any || m.granted() || in && (m.Version != d.Version || m.out() != pace.InService); in {
			m.Version, m.Arrived = d.Version, now
			m.Condition.Health, m.Condition.Maintenance = consul.HealthPassing, cluster.MaintenanceNone
		}
		m.Grant, m.Answer = change.Grant{}, cluster.Answer{}
	}
	return any
}
