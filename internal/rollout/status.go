package rollout

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/text"
)

// Status is a rollout with what is known of the members.
type Status struct {
	Document
	State    string    `json:"state"`
	Now      Counts    `json:"now"`
	Admitted int       `json:"admitted"` // members within the present step
	Limit    int       `json:"limit"`    // of members out of service at the same time; 0: no limit
	Grants   []Granted `json:"grants"`   // that are open or were given up, the oldest first
	Failed   []Failed  `json:"failed"`
	Down     []string  `json:"down"`   // and not at the version; the first of them
	Behind   []string  `json:"behind"` // not at the version; the first of them
	Out      []Out     `json:"out"`    // of service without a grant; the first of each reason
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
		Document: d, State: d.State(), Now: p.counts, Waits: p.waits(),
		Grants: []Granted{}, Failed: []Failed{},
		Strangers: append([]string{}, s.Strangers[:min(len(s.Strangers), mostNames)]...), StrangerCount: len(s.Strangers),
		Down: names(p.in(down)), Behind: names(p.with(func(m ranked) bool { return m.Version != d.Version })),
		Admitted: len(p.admitted(func(ranked) bool { return true })),
		Out:      groups(p.members, func(m *Member) string { return m.out().Text() }),
		Held:     groups(p.in(held), (*Member).aside),
		Arrival:  p.arrival(),
		gated:    !d.Over() && d.Gate != nil || p.waitsForPromotion(),
	}
	status.Missing = status.Arrival.Missing[:min(len(status.Arrival.Missing), mostNames)]
	// The stored counts are those of the last change of phase.
	status.Counts = status.Now
	if status.Previous == d.Version { // a rollback returns to the version that ran before
		status.Previous = ""
	}
	if d.Paced() {
		status.Limit, _ = p.room()
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
	for _, m := range p.in(failed) {
		status.Failed = append(status.Failed, Failed{m.Node, shorten(m.failure(d, now)), m.failedSince(d), m.granted()})
	}
	return status
}

// Blocker is what a rollout in progress waits for.
type Blocker string

// Values of Blocker, in the order in which they count.
const (
	BlockedByPause     Blocker = "pause"
	BlockedByMembers   Blocker = "no_members" // none takes part
	BlockedByPromotion Blocker = "promotion"  // an operator's consent after the canary, or after a step
	BlockedByBake      Blocker = "bake"       // a step is done and has to stay so
	BlockedByCluster   Blocker = "cluster"    // it is paused, or the orchestrator only observes
	BlockedByGate      Blocker = "gate"       // the workflow that the step has to pass
	BlockedByWindow    Blocker = "window"
	BlockedByFreeze    Blocker = "freeze" // of the whole cluster
	BlockedByHosts     Blocker = "hosts"  // that are to finish, to begin or to come back
)

// Blockers returns all values of Blocker.
func Blockers() []Blocker {
	return []Blocker{BlockedByPause, BlockedByMembers, BlockedByPromotion, BlockedByBake, BlockedByCluster, BlockedByGate, BlockedByWindow, BlockedByFreeze, BlockedByHosts}
}

// Summary is a rollout in numbers.
type Summary struct {
	Counts  Counts
	Blocker Blocker // empty: the rollout is over
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
		Counts: p.counts, Blocker: p.blocker(), LastProgress: p.lastProgress(),
		PausedByJorc: d.State() == Paused && d.Stopped.By == byJorc,
	}
}

// blocker returns what the rollout waits for.
func (p *planner) blocker() Blocker {
	_, isFrozen := p.doc.frozen(p.Control, nil, p.now)
	switch d := p.doc; {
	case d.Over():
		return ""
	case d.Stopped != nil:
		return BlockedByPause
	case len(p.members) == 0:
		return BlockedByMembers
	case p.waitsForPromotion():
		return BlockedByPromotion
	case d.Gate != nil && !d.Gate.Baked:
		return BlockedByBake
	case p.Halted != "":
		return BlockedByCluster
	case d.Gate != nil && !d.Gate.Passed:
		return BlockedByGate
	case d.Paced() && !p.inWindow():
		return BlockedByWindow
	case isFrozen:
		return BlockedByFreeze
	}
	return BlockedByHosts
}

func (m *Member) describeGrant() Granted {
	g := Granted{Node: m.Node, Version: m.Answer.Version, State: m.Answer.State, Since: m.Answer.Since, Reason: shorten(m.Answer.Reason)}
	switch {
	case m.givenUp():
		g.State, g.Since, g.Reason = GivenUp, m.Grant.Since, shorten(strings.Trim(m.Grant.By+": "+m.Grant.Reason, ": "))
	case m.offered():
		g.Version, g.State, g.Since, g.Reason = m.Grant.Version, Offered, m.Grant.Since, ""
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

// waits lists what the rollout waits for.
func (p *planner) waits() []string {
	d := p.doc
	switch {
	case d.Over():
		return []string{}
	case d.Stopped != nil:
		return []string{"'jorc update resume'"}
	case len(p.members) == 0:
		return []string{"eligible members: there are none"}
	case p.waitsForPromotion():
		return []string{"'jorc update promote'"}
	}
	waits := append([]string{}, p.gateWaits()...)
	add := func(all []ranked, what string) {
		if len(all) > 0 {
			waits = append(waits, listed(all)+" "+what)
		}
	}
	if p.Halted != "" {
		waits = append(waits, p.Halted)
	}
	add(append(p.in(working), p.others...), "to finish")
	for _, m := range p.in(working) {
		if why := m.aside(); why != "" {
			waits = append(waits, m.Node+": "+why)
		}
	}
	if all := p.heldUp(); len(all) > 0 && p.settledStep() {
		waits = append(waits, "a host of the next step that is not held")
		for _, m := range all {
			waits = append(waits, m.Node+": "+m.aside())
		}
	}
	ready := p.admitted(func(m ranked) bool { return m.progress == pending })
	barred := p.barred
	if !d.Paced() {
		barred = func(ranked) string { return "" } // a host that needs no grant begins by itself
	}
	free := slices.DeleteFunc(slices.Clone(ready), func(m ranked) bool { return barred(m) != "" })
	frozen, isFrozen := d.frozen(p.Control, nil, p.now)
	for _, m := range ready {
		if why := barred(m); why != "" && !(isFrozen && why == frozen.String()) {
			waits = append(waits, m.Node+": "+why)
		}
	}
	add(free, "to begin")
	if allowed, out := p.room(); d.Paced() && len(free) > 0 && len(out) >= allowed {
		broken := slices.DeleteFunc(out, func(m ranked) bool { return m.progress == working })
		add(broken, fmt.Sprintf("to be in service again: %d may be out of it, and 'jorc update give-up' frees the place of a host with a grant", allowed))
	}
	for _, m := range free {
		if limit, ok := p.Places.Admit(m.Node); !ok && d.Paced() {
			waits = append(waits, p.Places.Explain(limit))
			break
		}
	}
	if len(waits) == 0 && p.tooManyDown() {
		add(p.in(down), "to come back")
	}
	if !p.inWindow() {
		waits = append(waits, "its window: "+closedText(pace.WindowsChange(d.Policy.Windows, p.now)))
	}
	if isFrozen {
		waits = append(waits, "the end of a freeze: "+frozen.String())
	}
	if p.now.Before(p.Quiet) {
		waits = append(waits, p.stopped())
	}
	if len(waits) == 0 {
		waits = append(waits, "the orchestrator")
	}
	return waits[:min(len(waits), mostNames)]
}

// listed names members for people.
func listed(all []ranked) string {
	text := strings.Join(names(all), ", ")
	if len(all) > mostNames {
		text += fmt.Sprintf(" and %d more", len(all)-mostNames)
	}
	return text
}

// outlook is what decides whether members without a grant are offered one.
type outlook struct {
	stopped  string
	step     step
	waits    string // why the step admits no more
	offered  map[string]bool
	denied   map[string]string // why the budget keeps members back
	occupied string            // the places that are taken; empty: there is room
}

func (p *planner) outlook() outlook {
	o := outlook{stopped: p.stopped(), step: p.step(), offered: map[string]bool{}, denied: map[string]string{}}
	o.waits = fmt.Sprintf("not admitted yet: phase %s, %d of %d members are admitted", p.doc.StateText(),
		len(p.admitted(func(ranked) bool { return true })), p.counts.Members)
	if waits := p.waits(); len(waits) > 0 {
		o.waits += "; it waits for " + strings.Join(waits, "; ")
	}
	for _, offer := range p.offers() {
		o.offered[offer.Node] = true
	}
	for _, d := range p.denied {
		o.denied[d.Node] = p.Places.Explain(d.Limit)
	}
	if allowed, out := p.room(); len(out) > 0 {
		o.occupied = fmt.Sprintf("%d may be out of service at one time, and are: %s", allowed, p.outNames(out))
	}
	return o
}

// waitText says why a member without a grant is not offered one.
func (p *planner) waitText(m ranked) string { return p.outlook().waitText(p, m) }

func (o outlook) waitText(p *planner, m ranked) string {
	why := p.barred(m)
	switch {
	case o.stopped != "":
		return o.stopped
	case why != "":
		return why
	case !o.step.admits(m.key):
		return o.waits
	case o.offered[m.Node]:
		return "the orchestrator offers it a grant next"
	}
	return cmp.Or(o.denied[m.Node], o.occupied)
}

// outNames names members that are out of service, and since when.
func (p *planner) outNames(out []ranked) string {
	var all []string
	for _, m := range out[:min(len(out), mostNames)] {
		text := m.Node
		switch {
		case m.granted():
			text += " (grant since " + m.grantedSince().UTC().Format(time.RFC3339)
			if m.progress == failed {
				text += ", failed"
			}
			text += ")"
		default:
			text += " (" + m.out().Text() + ")"
		}
		all = append(all, text)
	}
	if more := len(out) - len(all); more > 0 {
		all = append(all, fmt.Sprintf("%d more", more))
	}
	return strings.Join(all, ", ")
}

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
		p.record(DecideAdmit, "", all, "all at once: %s admitted", text.Count(len(all), "member is", "members are"))
		return p.decisions
	}
	d.Promoted, d.Policy, d.Gate = true, d.Policy.withoutGates(), nil
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
		if !m.Up() || m.aside() != "" {
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
