package pace

import (
	"cmp"
	"slices"
	"time"
)

// stopped is why no host at all is offered a grant.
func (v *Survey) stopped() Reason {
	frozen, isFrozen := v.Frozen(nil) // the whole cluster
	isFrozen = isFrozen && !v.ByTag   // hosts of it may have exceptions
	switch {
	case !v.Paced():
		return Reason{Code: BecauseFree}
	case v.Phase == Aborted:
		return Reason{Code: BecauseAborted}
	case v.Stopped != "" && !v.Over():
		return Reason{Code: BecausePaused, Said: v.Stopped}
	case v.Halted != "":
		return Reason{Code: BecauseHalted, Said: v.Halted}
	case !v.InWindow():
		return Reason{Code: BecauseWindow, At: v.windowChange()}
	case isFrozen:
		return Reason{Code: BecauseFreeze, Said: frozen.String()}
	case v.now.Before(v.Quiet):
		return Reason{Code: BecauseQuiet, At: v.Quiet}
	}
	return Reason{}
}

// Bars is why the member is offered no grant, however much room there is.
func (v *Survey) Bars(m Member) Reason { return cmp.Or(v.stopped(), v.barred(m)) }

// barred is why a grant of this member alone has to wait.
func (v *Survey) barred(m Member) Reason {
	if m.Want.Apart != "" {
		return Reason{Code: BecauseApart, Said: m.Want.Apart}
	}
	return v.waits(&m)
}

// waits is barred of one that takes part.
func (v *Survey) waits(m *Member) Reason {
	frozen, isFrozen := v.Frozen(m.Roles)
	switch {
	case m.Aside() != "":
		return Reason{Code: BecauseHeld, Said: m.Aside()}
	case !m.Up:
		return Reason{Code: BecauseDown}
	case isFrozen && m.Want.freezes():
		return Reason{Code: BecauseFreeze, Said: frozen.String()}
	}
	return v.refuses(m)
}

// refuses is why a member that is up takes no grant, whatever holds it.
func (v *Survey) refuses(m *Member) Reason {
	switch {
	case m.Want.Barred != "":
		return Reason{Code: BecauseBarred, Said: m.Want.Barred}
	case m.Part.declined(v.now):
		return Reason{Code: BecauseDeclined, Said: m.Part.Reason}
	case m.Part.Silent() && v.now.Before(m.Part.Rested()):
		return Reason{Code: BecauseSilent, N: m.Part.Unanswered, At: m.Part.Rested()}
	}
	return Reason{}
}

// expired reports whether the member's offer is to be withdrawn: it was not answered in
// time, the member may no longer begin, or it has arrived with an earlier grant, of which
// the orchestrator did not know when it made the offer: an import had overwritten the report.
func (v *Survey) expired(m Member) bool {
	if m.Want.Stale || m.State == Working && m.Want.Has && !m.Part.Open() {
		return true
	}
	host := *m.Host
	host.HoldFile = "" // the host declines by itself
	m.Host = &host
	late := !m.Part.Until.IsZero() && !v.now.Before(m.Part.Until)
	return late || v.now.Sub(m.Part.Since) >= AnswerWithin || !v.barred(m).None()
}

// needsGrant reports whether the member begins as soon as it is granted.
func (v *Survey) needsGrant(m *Member) bool {
	return m.Up && (m.State == Pending || m.State == Failed && v.triesAgain(m))
}

// triesAgain reports whether a member that failed needs another grant for that.
func (v *Survey) triesAgain(m *Member) bool {
	return !v.Final && (m.Part.Stranded() || !m.Part.Granted() && !m.Part.GivenUp())
}

// Offers are the grants for which there is room.
func (v *Survey) Offers() (all []Offer) {
	v.denied, v.crowded, v.kept = nil, false, map[string]Reason{}
	if !v.stopped().None() {
		return nil
	}
	candidates, tags, newcomers := v.candidates(), v.tags(), v.Newcomers
	slices.SortStableFunc(candidates, v.compareCandidates)
	allowed, out := v.Room()
	count, open := len(out), 0
	for _, m := range out {
		if m.Part.Granted() {
			open++
		}
	}
	places, crowded := v.Places.Clone(), false
	for _, m := range candidates {
		if why := cmp.Or(tags.keeps(m), v.later(m)); !why.None() {
			v.kept[m.Node] = why
			continue
		}
		if v.ByTag && !m.Want.Granted && newcomers == 0 {
			v.kept[m.Node] = Reason{Code: BecauseStep, Said: "the present step has all its hosts"}
			continue
		}
		limit, admitted := m.Want.places(places).Admit(m.Node)
		if admitted && m.Out() == InService && !places.certain(m.Node) { // one that is out already takes no place
			limit, admitted = v.leases.admit()
		}
		switch {
		case m.Part.Granted(): // stranded: it stays in its place
		case open >= allowed, count >= allowed && m.Out() == InService:
			crowded = true
			continue
		case !admitted:
			v.denied = append(v.denied, Denied{m.Node, limit})
			continue
		default:
			m.Want.places(places).Take(m.Node)
			open++
			if m.Out() == InService {
				count++
			}
		}
		tags.take(m)
		if !m.Want.Granted {
			newcomers--
		}
		all = append(all, Offer{Node: m.Node, Tries: m.Part.Tries(), Until: v.until(*m)})
	}
	if len(all) == 0 && crowded && open < allowed {
		return v.repairs(out)
	}
	return all
}

// repairAfter is for how long hosts that are out must have kept all others from a grant before one of them takes it early for a reason
// that is not known: a restart, or the grant of another change, is over by then.
const repairAfter = 5 * time.Minute

// repairs offers a grant, before its turn, to a member that is out of service. Members whose turn it is have no room while
// such members take it up, and would wait for ever: what they wait for is what may bring those back. One that an
// earlier tag left out of service comes at once. Of others that is not known, as a check may also fail after the tag has counted as sound: they
// come after repairAfter. Only of what hosts try by tags is the order one of caution; of versions and runs it may be one of dependencies.
func (v *Survey) repairs(out []Member) []Offer {
	if !v.ByTag || v.InOrder || len(v.In(Working)) > 0 { // which may make room
		return nil
	}
	long := !v.CrowdedSince.IsZero() && v.now.Sub(v.CrowdedSince) >= repairAfter
	for _, m := range out {
		if m.Out() == InService || !v.needsGrant(&m) || !v.waits(&m).None() {
			continue
		}
		if v.crowded = true; !m.Want.Broken && !long {
			continue
		}
		limit, admitted := m.Want.places(v.Places).Admit(m.Node)
		if admitted {
			return []Offer{{Node: m.Node, Tries: m.Part.Tries(), Until: v.until(m), Early: true}}
		}
		if !slices.ContainsFunc(v.denied, func(d Denied) bool { return d.Node == m.Node }) {
			v.denied = append(v.denied, Denied{m.Node, limit})
		}
	}
	return nil
}

// compareCandidates sorts candidates: hosts that did not answer come last. Where hosts try tags, the ones in service come first: of the
// others it is not known why they fail.
func (v *Survey) compareCandidates(a, b *Member) int {
	out := func(m *Member) bool { return v.ByTag && m.Out() != InService }
	return cmp.Or(a.Part.Tries()-b.Part.Tries(), CompareBool(out(a), out(b)))
}

// later is why the member's step has not come yet.
func (v *Survey) later(m *Member) Reason {
	if m.Want.Later == "" {
		return Reason{}
	}
	return Reason{Code: BecauseStep, Said: m.Want.Later}
}

// candidates are the members that begin as soon as there is room for them. What restores takes
// the members that are out of service for something else first, whatever the
// step: they need no room. Where groups come one after the other only members of one
// group are at work.
func (v *Survey) candidates() (all []*Member) {
	s := v.Step()
	for i := range v.Members {
		m := &v.Members[i]
		if v.needsGrant(m) && (s.Admits(m.Key) || v.outOfTurn(*m)) && v.waits(m).None() {
			all = append(all, m)
		}
	}
	if !v.Restores || v.Over() || !v.grouped() {
		return all
	}
	groups := map[Group]bool{}
	for _, m := range v.In(Working) {
		groups[m.Key.Group] = true
	}
	if i := slices.IndexFunc(all, func(m *Member) bool { return m.Part.Stranded() }); len(groups) == 0 && i >= 0 {
		groups[all[i].Key.Group] = true
	}
	if len(groups) == 0 {
		return all
	}
	return slices.DeleteFunc(all, func(m *Member) bool { return !groups[m.Key.Group] })
}

// outOfTurn reports whether what restores takes the member back before its turn.
func (v *Survey) outOfTurn(m Member) bool { return v.Restores && m.Part.Stranded() }
