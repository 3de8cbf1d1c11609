package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/text"
)

// step is what is admitted at present: the members up to last, of one group only
// where groups come one after the other.
type step struct {
	all   bool
	last  *Key // nil: no member
	group *Group
}

func (s step) admits(k Key) bool {
	if s.all {
		return true
	}
	return s.last != nil && k.Compare(*s.last) <= 0 && (s.group == nil || k.Group == *s.group)
}

// step returns what the document admits.
func (p *planner) step() step {
	var last Key
	var ok bool
	switch phase := p.doc.Phase; {
	case phase == Done, phase == RollingBack, phase == Batch && !p.doc.Paced():
		return step{all: true}
	case phase == Canary:
		last, ok = p.lastCanary()
	case phase == Batch:
		last, ok = p.lastOf(p.doc.Batch)
	}
	group := p.doc.Group
	switch {
	case !ok, p.grouped() && group == nil:
		return step{}
	case !p.grouped():
		group = nil
	}
	return step{last: &last, group: group}
}

// admitted returns the members that the step admits and that are as wanted.
func (p *planner) admitted(wanted func(ranked) bool) []ranked {
	s := p.step()
	return p.with(func(m ranked) bool { return wanted(m) && s.admits(m.key) })
}

// advance admits the next group or the next step once nothing more is expected
// of the admitted members.
func (p *planner) advance() {
	if !p.settledStep() {
		p.ungate()
		return
	}
	if p.doc.Phase != Batch {
		if p.canary() {
			return
		}
		p.doc.Batch = 0
	}
	p.batches()
}

// settledStep reports whether nothing more is expected of the admitted members.
func (p *planner) settledStep() bool {
	return p.quiet() && len(p.admitted(func(m ranked) bool { return !m.settled() && p.counted(m) })) == 0
}

// remains reports whether members are left that no step has admitted.
func (p *planner) remains() bool {
	s := p.step()
	return slices.ContainsFunc(p.members, func(m ranked) bool { return !m.settled() && !s.admits(m.key) })
}

// grouped reports whether one role or zone is finished before the next begins.
func (p *planner) grouped() bool { return len(p.doc.Policy.Order) > 0 || p.doc.Policy.ZoneByZone }

// counted reports whether the present step waits for the member. The last step
// waits for all; the others not for hosts that do not answer.
func (p *planner) counted(m ranked) bool {
	return !m.unanswered() || p.doc.Phase == Batch && p.doc.Batch >= len(p.doc.Policy.Batches)
}

// canary admits the canary, or reports that it has to be waited for. Members that are
// down, held or do not answer are not canaries: the next ones take their place.
func (p *planner) canary() (wait bool) {
	if p.doc.Policy.Canary == 0 {
		return false
	}
	last, ok := p.lastCanary()
	if !ok { // all are down or held
		return true
	}
	if first, found := p.firstUnsettled(last, Canary, 0); found {
		p.open(Canary, 0, first)
		return true
	}
	if p.tooManyDown() {
		return true
	}
	if p.doc.Phase == Waiting { // they are there already
		p.enter(Canary, 0)
		p.doc.Steps = max(1, p.doc.Steps)
	}
	return p.waitsForPromotion()
}

// lastCanary is the key of the last canary.
func (p *planner) lastCanary() (last Key, ok bool) {
	alive := p.with(func(m ranked) bool { return m.alive() && !m.unanswered() })
	if len(alive) == 0 {
		alive = p.alive()
	}
	if len(alive) == 0 {
		return Key{}, false
	}
	return alive[min(max(1, p.doc.Policy.Canary), len(alive))-1].key, true
}

// waitsForPromotion reports whether only consent is missing to leave the step.
// Where the policy asks for consent after each step, all but the last need it.
// Otherwise only the canary does, and it needs none when all canaries have been healthy for as long as the policy
// wants, which is when their grants are done.
func (p *planner) waitsForPromotion() bool {
	if p.doc.Over() || p.doc.Phase == RollingBack || !p.gatePassed() {
		return false
	}
	if p.doc.Policy.ApproveEach {
		return p.doc.Steps > 0 && !p.doc.approved() && p.settledStep() && p.remains()
	}
	if p.doc.Phase != Canary || p.doc.Promoted || p.counts.Working > 0 {
		return false
	}
	last, ok := p.lastCanary()
	canaries := p.with(func(m ranked) bool { return ok && m.key.Compare(last) <= 0 && m.alive() && !m.unanswered() })
	if slices.ContainsFunc(canaries, func(m ranked) bool { return !m.settled() }) {
		return false
	}
	sound := func(m ranked) bool { return m.progress == done && m.out() == cluster.InService }
	return p.doc.Policy.MinHealthy == 0 || !ok || slices.ContainsFunc(canaries, func(m ranked) bool { return !sound(m) })
}

// batches admits the first batch that is not finished, or ends the rollout.
func (p *planner) batches() {
	for k := max(1, p.doc.Batch); k <= max(1, len(p.doc.Policy.Batches)); k++ {
		last, ok := p.lastOf(k)
		if !ok {
			break
		}
		if first, found := p.firstUnsettled(last, Batch, k); found {
			p.open(Batch, k, first)
			return
		}
		if p.tooManyDown() {
			return
		}
	}
	if !p.tooManyDown() && len(p.heldUp()) == 0 && (p.doc.Steps == 0 || !p.doc.Policy.gates() || p.passGate()) {
		p.end()
	}
}

// lastOf is the key of the last member of a batch. A batch is of members that are
// neither down nor held, its share of members that are not held; the last one has all.
func (p *planner) lastOf(batch int) (last Key, ok bool) {
	alive := p.alive()
	if len(alive) == 0 {
		return Key{}, false
	}
	n := min(p.doc.Policy.UpTo(batch, len(p.members)-p.counts.Held), len(alive))
	if n == len(alive) {
		return p.members[len(p.members)-1].key, true
	}
	return alive[n-1].key, true
}

func (p *planner) alive() []ranked {
	return p.with(ranked.alive)
}

// alive reports whether steps are made of the member.
func (r ranked) alive() bool { return r.progress != down && r.progress != held }

// heldUp returns the held members that the rollout waits for: all that are left of a
// step that does not pass without one of them. The step may be a group, the one after
// the present step, or a rollback; and nothing ends while the whole cluster is held.
func (p *planner) heldUp() []ranked {
	if p.counts.Held == 0 || p.doc.Over() {
		return nil
	}
	left := p.in(held)
	waiting := p.in(pending)
	var next *Group
	if len(waiting) > 0 {
		next = &waiting[0].key.Group
	}
	group := p.heldGroup(next)
	switch {
	case len(group) > 0:
		return group
	case len(waiting) > 0:
		return nil
	case p.AllHeld:
		return left
	case !p.doc.Paced() && p.counts.Done > 0,
		p.doc.Phase == RollingBack && len(p.with(func(m ranked) bool { return m.moved(p.doc) })) > 0,
		p.doc.Paced() && p.doc.Phase == Batch && p.doc.Batch >= len(p.doc.Policy.Batches) && p.counts.reached() > p.doc.Counts.reached():
		return nil // members have taken their turn in the last step
	}
	return left
}

// heldGroup returns the held members of the first group before next, or of all groups if
// that is nil, in which nothing but held members is left and none has taken its turn.
func (p *planner) heldGroup(next *Group) []ranked {
	if !p.grouped() || p.doc.Phase == RollingBack {
		return nil
	}
	for i := 0; i < len(p.members); {
		group := p.members[i].key.Group
		n := slices.IndexFunc(p.members[i:], func(m ranked) bool { return m.key.Group != group })
		if n < 0 {
			n = len(p.members) - i
		}
		all := p.members[i : i+n]
		i += n
		if next != nil && group == *next {
			return nil
		}
		if !slices.ContainsFunc(all, ranked.alive) {
			if left := slices.DeleteFunc(slices.Clone(all), func(m ranked) bool { return m.progress != held }); len(left) > 0 {
				return left
			}
		}
	}
	return nil
}

// moved reports whether the rollout has reached the member: it failed, was given up, or
// came to the version in the rollout.
func (r ranked) moved(d Document) bool {
	granted := r.Grant.Version == d.Version && !r.Grant.Since.Before(d.Started)
	return r.progress == failed || r.progress == left || r.progress == done && (granted || !r.Arrived.Before(d.Started))
}

// firstUnsettled is the first member up to last of which a step expects something.
func (p *planner) firstUnsettled(last Key, phase Phase, batch int) (Key, bool) {
	at := *p
	at.doc.Phase, at.doc.Batch = phase, batch
	for _, m := range p.members {
		if m.key.Compare(last) <= 0 && !m.settled() && at.counted(m) {
			return m.key, true
		}
	}
	return Key{}, false
}

// open admits a step, of the group of its first member where groups come one
// after the other, once the step before lets it begin.
func (p *planner) open(phase Phase, batch int, first Key) {
	var group *Group
	if p.grouped() {
		group = &Group{first.Place, first.Zone}
	}
	same := equalTo(group, p.doc.Group, func(a, b Group) bool { return a == b })
	if same && p.doc.Phase == phase && p.doc.Batch == batch || len(p.heldGroup(&first.Group)) > 0 || !p.pass() {
		return
	}
	p.leave()
	p.enter(phase, batch)
	p.doc.Group, p.doc.Counts = group, p.counts
	p.doc.Steps++
	admitted := p.admitted(func(m ranked) bool { return !m.settled() })
	p.record(DecideAdmit, p.groupText(), admitted, "%s: %s admitted", p.doc.StateText(), text.Count(len(admitted), "member is", "members are"))
}

// groupText names the group whose turn it is.
func (p *planner) groupText() string {
	var parts []string
	g := p.doc.Group
	if g == nil {
		return ""
	}
	if order := p.doc.Policy.Order; g.Place >= 0 && g.Place < len(order) {
		parts = append(parts, fmt.Sprintf("role %q", order[g.Place].Name))
	}
	if p.doc.Policy.ZoneByZone {
		parts = append(parts, fmt.Sprintf("zone %q", g.Zone))
	}
	return strings.Join(parts, ", ")
}

// room is how many members may be out of service at the same time, and which are. Shares
// are of members that are not held. With a limit of its own a role's members count by themselves, but for open grants,
// which always count. What an operator gave up on does not.
func (p *planner) room() (allowed int, out []ranked) {
	limit, own, place := p.doc.Policy.MaxParallel, false, 0
	if order, g := p.doc.Policy.Order, p.doc.Group; g != nil && g.Place >= 0 && g.Place < len(order) && order[g.Place].Limit != (Amount{}) {
		limit, own, place = order[g.Place].Limit, true, g.Place
	}
	n := 0
	for _, m := range p.members {
		counts := !own || m.key.Place == place
		if counts && m.progress != held {
			n++
		}
		if m.out() != cluster.InService && (counts || m.granted()) {
			out = append(out, m)
		}
	}
	return max(1, limit.Of(n)), append(out, p.others...)
}

// expired reports whether the member's offer is to be withdrawn: it was not
// answered in time, the member may no longer begin, or it has arrived with an earlier
// grant, of which the orchestrator did not know when it made the offer: an import had
// overwritten the report.
func (p *planner) expired(m ranked) bool {
	if m.progress == working && m.Version == p.doc.Version && !m.Answer.Open() {
		return true
	}
	member := *m.Member
	member.HoldFile = "" // the host declines by itself
	m.Member = &member
	late := !m.Grant.Until.IsZero() && !p.now.Before(m.Grant.Until)
	return late || p.now.Sub(m.Grant.Since) >= answerWithin || p.barred(m) != ""
}

// offers are the grants for which there is room.
func (p *planner) offers() (all []Offer) {
	if p.stopped() != "" {
		return nil
	}
	candidates := p.admitted(func(m ranked) bool { return p.needsGrant(m) && p.barred(m) == "" })
	slices.SortStableFunc(candidates, func(a, b ranked) int { return a.tries() - b.tries() })
	allowed, out := p.room()
	count, open := len(out), 0
	for _, m := range out {
		if m.granted() {
			open++
		}
	}
	places := p.Places.Clone()
	for _, m := range candidates {
		switch limit, admitted := places.Admit(m.Node); {
		case m.granted(): // stranded: it stays in its place
		case open >= allowed, count >= allowed && m.out() == cluster.InService:
			continue
		case !admitted:
			p.denied = append(p.denied, Denied{m.Node, limit})
			continue
		default:
			places.Take(m.Node)
			open++
			if m.out() == cluster.InService {
				count++
			}
		}
		all = append(all, Offer{Node: m.Node, Tries: m.tries(), Until: p.until(m.Member)})
	}
	return all
}

// tries is how many offers in a row the member did not answer.
func (m *Member) tries() int {
	if m.unanswered() {
		return m.Grant.Tries
	}
	return 0
}

// needsGrant reports whether the member begins as soon as it is granted.
func (p *planner) needsGrant(m ranked) bool {
	return m.Up() && (m.progress == pending || m.progress == failed && (m.stranded() || !m.granted() && !m.givenUp()))
}

// stopped says why no host at all is offered a grant; empty: hosts are.
func (p *planner) stopped() string {
	frozen, isFrozen := p.doc.frozen(p.Control, nil, p.now) // the whole cluster
	switch {
	case !p.doc.Paced():
		return "no grants are needed: all hosts begin at once"
	case p.doc.Phase == Aborted:
		return "the rollout was aborted"
	case p.doc.Stopped != nil && !p.doc.Over():
		return p.doc.Stopped.text()
	case p.Halted != "":
		return p.Halted
	case !p.inWindow():
		return closedText(pace.WindowsChange(p.doc.Policy.Windows, p.now))
	case isFrozen:
		return frozen.String()
	case p.now.Before(p.Quiet):
		return "Consul's KV was restored: grants resume at " + p.Quiet.UTC().Format(time.RFC3339)
	}
	return ""
}

func closedText(opens time.Time) string {
	if opens.IsZero() {
		return "outside the window"
	}
	return "outside the window until " + opens.UTC().Format(time.RFC3339)
}

// held says what holds the member; empty: nothing does.
func (m *Member) held() string {
	switch {
	case m.Hold != "":
		return "it is held: " + shorten(m.Hold)
	case m.HoldFile != "":
		return "it cannot begin: " + shorten(m.HoldFile)
	}
	return ""
}

// drained says that the member is in maintenance that jorc did not begin; empty: it is not.
func (m *Member) drained() string {
	if m.Condition.Drained() {
		return cluster.DrainedText
	}
	return ""
}

// aside says why steps leave the member out: it is held or drained. Empty: they do not.
func (m *Member) aside() string { return cmp.Or(m.held(), m.drained()) }

// barred says why a grant of this member alone has to wait; empty: it does not.
func (p *planner) barred(m ranked) string {
	apart := m.apart(p.doc.Policy)
	frozen, isFrozen := p.frozen(m.Member)
	switch {
	case apart != "":
		return apart
	case m.aside() != "":
		return m.aside()
	case !m.Up():
		return "its host or its agent is down"
	case isFrozen:
		return frozen.String()
	case m.declined(p.now):
		return "it cannot begin: " + shorten(m.Answer.Reason)
	case m.unanswered() && p.now.Before(m.Grant.rested()):
		return fmt.Sprintf("it did not answer %d offers; the next is at %s", m.Grant.Tries, m.Grant.rested().UTC().Format(time.RFC3339))
	}
	return ""
}
