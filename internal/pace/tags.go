package pace

import (
	"fmt"
	"maps"
	"slices"
)

// tags is the order in which the tags of a change reach its hosts (Change.ByTag): Policy.Canary hosts try each tag
// before others take it, and with Policy.ZoneByZone a zone takes a tag before the next zone does. A nil tags keeps
// no host.
type tags struct {
	v      *Survey
	names  []string // of the zones, in order
	zones  map[string]*zoneTags
	spread map[string]*spread // by tag
}

// zoneTags is what the hosts of a zone do.
type zoneTags struct {
	busy  bool            // a host has a grant
	wants bool            // a host may be offered one, now or when its freeze ends
	more  bool            // such a host would take more tags than are known
	tags  map[string]bool // that such hosts would take
	free  bool            // a host is neither held, drained nor down
	held  []*Want         // of hosts that are held or drained
}

// spread is how many hosts have a tag or try it, and how many of them have proven it: their checks have passed with it.
type spread struct{ tried, proven int }

// tags returns the order of the tags as the hosts are; nil: the change has no order.
func (v *Survey) tags() *tags {
	if !v.ByTag || v.InOrder || v.Policy.Canary == 0 && !v.Policy.ZoneByZone {
		return nil
	}
	t := &tags{v: v, zones: map[string]*zoneTags{}, spread: map[string]*spread{}}
	for i := range v.Members {
		m := &v.Members[i]
		z := t.zones[m.Key.Zone]
		if z == nil {
			z = &zoneTags{tags: map[string]bool{}}
			t.zones[m.Key.Zone] = z
		}
		aside := m.Aside() != ""
		z.free = z.free || m.Up && !aside
		if aside && !m.Want.Has {
			z.held = append(z.held, m.Want)
		}
		t.count(m, m.Part.Granted(), 1)
		switch {
		case m.Part.Granted():
			z.busy = true
		case v.awaited(m):
			z.wants, z.more = true, z.more || m.Want.MoreTags
			for _, tag := range m.Want.Tags {
				z.tags[tag] = true
			}
		}
	}
	t.names = slices.Sorted(maps.Keys(t.zones))
	return t
}

// awaited reports whether the member is to be offered a grant, now or when its freeze ends: other hosts do not pass it by.
func (v *Survey) awaited(m *Member) bool {
	return v.needsGrant(m) && m.Aside() == "" && v.refuses(m).None()
}

// count adds the tags that a member has and the tags that it tries with a grant to the tags of all members (n is 1), or takes
// them out (-1).
func (t *tags) count(m *Member, granted bool, n int) {
	tried := map[string]bool{} // true: proven
	for _, tag := range m.Want.Proven {
		tried[tag] = true
	}
	if granted {
		for _, tag := range m.Want.Tags {
			tried[tag] = false
		}
	}
	for tag, proven := range tried {
		s := t.spread[tag]
		if s == nil {
			s = new(spread)
			t.spread[tag] = s
		}
		if s.tried += n; proven {
			s.proven += n
		}
	}
}

// take notes that the member is offered a grant, and that it is no longer awaited.
func (t *tags) take(m *Member) {
	if t == nil {
		return
	}
	t.count(m, false, -1)
	t.count(m, true, 1)
	t.zones[m.Key.Zone].busy = true
}

// keeps is why the order keeps the member from a grant.
func (t *tags) keeps(m *Member) Reason {
	if t == nil {
		return Reason{}
	}
	if t.v.Policy.ZoneByZone {
		for _, zone := range t.names {
			if zone >= m.Key.Zone {
				break
			}
			switch z := t.zones[zone]; {
			case z.takes(m.Want):
				return Reason{Code: BecauseTag, Said: fmt.Sprintf("zone %q comes first", zone)}
			case z.heldUp(m.Want):
				return Reason{Code: BecauseTag, Said: fmt.Sprintf("zone %q comes first, and all its hosts are held or drained", zone)}
			}
		}
	}
	if n := t.v.Policy.Canary; n > 0 {
		for _, tag := range m.Want.Tags {
			if s := t.spread[tag]; s != nil && s.proven < n && s.tried >= n {
				return Reason{Code: BecauseTag, Said: fmt.Sprintf("%d of %d canaries have passed", s.proven, n)}
			}
		}
	}
	return Reason{}
}

// takes reports whether a host of the zone has a grant, or may be offered one for a tag that w has, too.
func (z *zoneTags) takes(w *Want) bool {
	return z.busy || z.wants && (z.more || w.MoreTags || slices.ContainsFunc(w.Tags, func(tag string) bool { return z.tags[tag] }))
}

// heldUp reports whether nothing but hosts that are held or drained is left in the zone, and one of them would take a tag of w.
func (z *zoneTags) heldUp(w *Want) bool {
	return !z.free && slices.ContainsFunc(z.held, func(o *Want) bool { return o.Shares(w) })
}

// Shares reports whether both hosts would take the same tag, as far as it is known.
func (w *Want) Shares(o *Want) bool {
	return w.MoreTags || o.MoreTags || slices.ContainsFunc(w.Tags, func(tag string) bool { return slices.Contains(o.Tags, tag) })
}

// Awaited returns the members of which a grant is the next thing that is expected: they could be offered one, now or when their
// freeze ends, and the order of the tags does not keep them.
func (v *Survey) Awaited() (all []*Member) {
	order := v.tags()
	for i := range v.Members {
		if m := &v.Members[i]; v.awaited(m) && order.keeps(m).None() {
			all = append(all, m)
		}
	}
	return all
}
