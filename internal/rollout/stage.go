package rollout

import (
	"fmt"
	"strings"
)

// advance opens the next stretch of the order once nobody within the present
// one is expected any more.
func (p *planner) advance() {
	if !p.quiet() || len(p.unsettled()) > 0 {
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

// canary opens the canary, or tells that there is none left to wait for. Those
// that are down are no canaries: the next ones take their place.
func (p *planner) canary() (wait bool) {
	last, ok := p.lastCanary()
	if p.doc.Policy.Canary == 0 {
		return false
	}
	if !ok { // everybody is down
		return true
	}
	if first, found := p.firstUnsettled(last); found {
		p.open(Canary, 0, first, last)
		return true
	}
	if p.gone() {
		return true
	}
	if p.doc.Phase == Waiting { // they are there already
		p.enter(Canary, 0)
	}
	return p.waitsForPromotion()
}

// lastCanary is the key of the last canary.
func (s survey) lastCanary() (last Key, ok bool) {
	alive := s.alive()
	if len(alive) == 0 {
		return Key{}, false
	}
	return alive[min(max(1, s.doc.Policy.Canary), len(alive))-1].key, true
}

// waitsForPromotion tells whether only consent is missing to leave the canary.
// It needs none when all canaries have been healthy for as long as the policy
// wants; that is what they kept their slots for.
func (s survey) waitsForPromotion() bool {
	if s.doc.Phase != Canary || s.doc.Promoted || s.counts.Working > 0 || len(s.unsettled()) > 0 {
		return false
	}
	if s.doc.Policy.MinHealthy == 0 {
		return true
	}
	last, ok := s.lastCanary()
	for _, m := range s.members {
		if m.key.Compare(last) <= 0 && m.standing != down && (m.standing != done || !m.Up || m.Sick) {
			return true
		}
	}
	return !ok
}

// batches opens the first batch that has somebody to wait for, or ends the
// rollout. A batch is of members that are not down.
func (p *planner) batches() {
	all := p.doc.Policy.Batches
	if len(all) == 0 {
		all = []Amount{{N: 100, Percent: true}}
	}
	alive := p.alive()
	for k := max(1, p.doc.Batch); k <= len(all) && len(alive) > 0; k++ {
		n := min(max(1, all[k-1].Of(len(p.members))), len(alive))
		last := alive[n-1].key
		if n == len(alive) {
			last = p.members[len(p.members)-1].key
			last.Hash = lastHash
		}
		if first, ok := p.firstUnsettled(last); ok {
			p.open(Batch, k, first, last)
			return
		}
		if p.gone() {
			return
		}
	}
	if !p.gone() {
		p.end()
	}
}

func (s survey) alive() []ranked {
	return s.with(func(m ranked) bool { return m.standing != down })
}

// firstUnsettled is the first member up to last of which something is expected.
func (s survey) firstUnsettled(last Key) (Key, bool) {
	for _, m := range s.members {
		if m.key.Compare(last) <= 0 && !m.settled() {
			return m.key, true
		}
	}
	return Key{}, false
}

// open admits the members up to last, of the role and zone of first only where
// these come one after the other.
func (p *planner) open(phase Phase, batch int, first, last Key) {
	rule := Rule{To: &last, Full: p.doc.Rule.Full}
	if p.grouped() {
		rule.From = &Key{Place: first.Place, Zone: first.Zone}
		if !first.sameGroup(last) {
			rule.To = &Key{Place: first.Place, Zone: first.Zone, Hash: lastHash}
		}
	}
	p.enter(phase, batch)
	if !p.doc.Rule.equal(rule) {
		p.doc.Rule, p.doc.Counts = rule, p.counts
	}
	admitted := p.unsettled()
	p.say(DecideAdmit, p.why(first), admitted, "%s: %d members are admitted", p.doc.StateText(), len(admitted))
}

// why says what the stretch that begins at first is about.
func (p *planner) why(first Key) string {
	var parts []string
	if order := p.doc.Policy.Order; len(order) > 0 && first.Place < len(order) {
		parts = append(parts, fmt.Sprintf("role %q", order[first.Place].Name))
	}
	if p.doc.Policy.ZoneByZone {
		parts = append(parts, fmt.Sprintf("zone %q", first.Zone))
	}
	return strings.Join(parts, ", ")
}
