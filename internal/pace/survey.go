package pace

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"
)

// Survey is the present state of one change: which hosts take part, in the order in which it
// reaches them, how far each is, and which the present step admits.
type Survey struct {
	Situation
	Change
	Members []Member
	// Others take no part, but have an open grant.
	Others []Member
	Now    Counts // of Members
	gone   int    // how many of Now.Down are gone

	now       time.Time
	decisions []Decision
	stop      string // pause it, for that reason
	restore   string // take it back, for that reason
	denied    []Denied
	crowded   bool              // see Planned.Crowded
	kept      map[string]Reason // candidates that another one comes before, by node
	windows   *time.Time        // see windowChange
	leases    *leases           // nil: without a limit
}

// NewSurvey returns how the change stands.
func NewSurvey(s Situation, c Change, now time.Time) *Survey {
	v := &Survey{Situation: s, Change: c, now: now}
	paced := c.Paced()
	v.Unfrozen, v.paced = c.Unfrozen || !c.Disturbs, &paced
	if v.freezing == nil {
		v.freezing = newFreezing(s.Freezes, now)
	}
	v.Places = c.places(v.Places)
	v.survey()
	return v
}

// survey makes the members of the hosts.
func (v *Survey) survey() {
	all := make([]Member, 0, len(v.Wants))
	v.Others, v.Now, v.gone = nil, Counts{}, 0
	next := 0 // wants are mostly in the order of the hosts
	for i := range v.Wants {
		w := &v.Wants[i]
		h := v.host(w.Node, next)
		if h < 0 {
			continue
		}
		next = h + 1
		m := Member{Host: &v.Hosts[h], Want: w}
		m.Part = m.Host.part(v.ID)
		if w.Apart != "" && !m.Part.Granted() {
			continue
		}
		m.State = m.state(&v.Change, v.now)
		if v.InOrder {
			m.Key = Key{Group: v.Policy.group(m.Roles, m.Zone), Hash: uint64(i)}
		} else {
			m.Key = v.Policy.KeyOf(v.Tag, m.Node, m.Roles, m.Zone)
		}
		if w.Apart != "" {
			v.Others = append(v.Others, m)
			continue
		}
		all = append(all, m)
		v.Now.Add(m.State)
		if m.State == Down && m.Gone {
			v.gone++
		}
	}
	if v.Members = all; !v.InOrder || v.grouped() {
		v.Members = inOrder(all)
	}
	if v.InOrder {
		v.Phase, v.Batch, v.Group = v.firstStep()
	}
}

// inOrder returns members in the order of their keys. What is sorted are numbers, as that is
// most of the time of a plan; each member is copied once.
func inOrder(all []Member) []Member {
	zones := map[string]int{} // in order
	for i := range all {
		zones[all[i].Key.Zone] = 0
	}
	for i, zone := range slices.Sorted(maps.Keys(zones)) {
		zones[zone] = i
	}
	type at struct {
		group, i int
		hash     uint64
	}
	order := make([]at, len(all))
	for i := range all {
		key := &all[i].Key
		order[i] = at{key.Place*len(zones) + zones[key.Zone], i, key.Hash}
	}
	slices.SortFunc(order, func(a, b at) int {
		if a.group != b.group {
			return cmp.Compare(a.group, b.group)
		}
		if a.hash != b.hash {
			return cmp.Compare(a.hash, b.hash)
		}
		return cmp.Compare(all[a.i].Node, all[b.i].Node)
	})
	sorted := make([]Member, len(all))
	for i := range order {
		sorted[i] = all[order[i].i]
	}
	return sorted
}

// everyone returns the members, and then the others.
func (v *Survey) everyone() iter.Seq[Member] {
	return func(yield func(Member) bool) {
		for _, m := range v.Members {
			if !yield(m) {
				return
			}
		}
		for _, m := range v.Others {
			if !yield(m) {
				return
			}
		}
	}
}

// With returns the members that are as wanted, in order.
func (v *Survey) With(wanted func(Member) bool) []Member {
	var all []Member
	for _, m := range v.Members {
		if wanted(m) {
			all = append(all, m)
		}
	}
	return all
}

// In returns the members in a state, in order.
func (v *Survey) In(want State) []Member {
	return v.With(func(m Member) bool { return m.State == want })
}

// Step is what is admitted at present: the members up to last, of one group only where
// groups come one after the other.
type Step struct {
	all   bool
	last  *Key // nil: no member
	group *Group
}

// Admits reports whether the step admits the member with that key.
func (s Step) Admits(k Key) bool {
	if s.all {
		return true
	}
	return s.last != nil && k.Compare(*s.last) <= 0 && (s.group == nil || k.Group == *s.group)
}

// Step returns what the change admits.
func (v *Survey) Step() Step {
	var last Key
	var ok bool
	switch {
	case v.ByTag && !v.InOrder, v.Phase == Done, v.Phase == RollingBack && !v.backByGroup(), v.Phase == Batch && !v.Paced():
		return Step{all: true}
	case v.Phase == RollingBack:
		last, ok = v.last()
	case v.Phase == Canary:
		last, ok = v.lastCanary()
	case v.Phase == Batch:
		last, ok = v.lastOf(v.Batch)
	}
	group := v.Group
	switch {
	case !ok, v.grouped() && group == nil:
		return Step{}
	case !v.grouped():
		group = nil
	}
	return Step{last: &last, group: group}
}

// Admitted returns the members that the step admits and that are as wanted.
func (v *Survey) Admitted(wanted func(Member) bool) []Member {
	s := v.Step()
	return v.With(func(m Member) bool { return wanted(m) && s.Admits(m.Key) })
}

// quiet reports whether no host is at work on a grant.
func (v *Survey) quiet() bool {
	return v.Now.Working == 0 && !slices.ContainsFunc(v.Others, func(m Member) bool { return m.atWork(&v.Change) })
}

// TooManyDown reports whether so many are down that nothing can be concluded from the
// others. Hosts that are gone do not count.
func (v *Survey) TooManyDown() bool {
	if !v.Paced() {
		return v.Now.Down > 0 && v.Now.Done == 0
	}
	allowed, _ := v.Room()
	return v.Now.Down-v.gone >= min(allowed, v.Now.Members-v.gone)
}

// SettledStep reports whether nothing more is expected of the admitted members.
func (v *Survey) SettledStep() bool {
	s := v.Step()
	return v.quiet() && !slices.ContainsFunc(v.Members, func(m Member) bool { return !m.Settled() && v.counted(m) && s.Admits(m.Key) })
}

// remains reports whether members are left that no step has admitted.
func (v *Survey) remains() bool {
	s := v.Step()
	return slices.ContainsFunc(v.Members, func(m Member) bool { return !m.Settled() && !s.Admits(m.Key) })
}

// grouped reports whether one role or zone is finished before the next begins.
func (v *Survey) grouped() bool {
	return (!v.ByTag || v.InOrder) && (len(v.Policy.Order) > 0 || v.Policy.ZoneByZone)
}

// backByGroup reports whether what went out is taken back one group after the other.
func (v *Survey) backByGroup() bool {
	return v.Policy.ZoneByZone || slices.ContainsFunc(v.Policy.Order, func(r Role) bool { return !r.Kept })
}

// last is the key of the last member.
func (v *Survey) last() (last Key, ok bool) {
	if len(v.Members) == 0 {
		return Key{}, false
	}
	return v.Members[len(v.Members)-1].Key, true
}

// counted reports whether the present step waits for the member. The last step and what is
// taken back wait for all; the others not for hosts that do not answer.
func (v *Survey) counted(m Member) bool {
	return !m.Part.Silent() || v.Phase == RollingBack || v.Phase == Batch && v.Batch >= len(v.Policy.Batches)
}

// lastCanary is the key of the last canary. Members that are down, held or do not answer
// are not canaries: the next ones take their place.
func (v *Survey) lastCanary() (last Key, ok bool) {
	n := max(1, v.Policy.Canary)
	if last, found := v.nth(n, func(m *Member) bool { return m.Alive() && !m.Part.Silent() }); found > 0 {
		return last, true
	}
	last, found := v.nth(n, (*Member).Alive)
	return last, found > 0
}

// lastOf is the key of the last member of a batch. A batch is of members that are
// neither down nor held, its share of members that are neither held nor gone; the last one has all.
func (v *Survey) lastOf(batch int) (last Key, ok bool) {
	alive := 0
	for i := range v.Members {
		if v.Members[i].Alive() {
			alive++
		}
	}
	if n := v.Policy.UpTo(batch, len(v.Members)-v.Now.Held-v.gone); n < alive {
		last, _ = v.nth(n, (*Member).Alive)
		return last, true
	}
	if alive == 0 {
		return Key{}, false
	}
	return v.last()
}

// nth is the key of the n-th member, from 1, that is as wanted, or of the last one: found is
// which of them it is.
func (v *Survey) nth(n int, wanted func(*Member) bool) (key Key, found int) {
	for i := range v.Members {
		if m := &v.Members[i]; wanted(m) {
			key = m.Key
			if found++; found == n {
				break
			}
		}
	}
	return key, found
}

// HeldUp returns the held members that the change waits for: all that are left of a step
// that does not pass without one of them. The step may be a group, the one after the
// present step, or that of what restores; and nothing ends while the whole cluster is held.
func (v *Survey) HeldUp() []Member {
	if v.Now.Held == 0 || v.Over() {
		return nil
	}
	left, waiting := v.In(Held), v.In(Pending)
	var next *Group
	if len(waiting) > 0 {
		next = &waiting[0].Key.Group
	}
	group := v.heldGroup(next)
	switch {
	case len(group) > 0:
		return group
	case len(waiting) > 0:
		return nil
	case v.AllHeld:
		return left
	case !v.Paced() && v.Now.Done > 0,
		v.Phase == RollingBack && len(v.With(v.reached)) > 0,
		v.Paced() && v.Phase == Batch && v.Batch >= len(v.Policy.Batches) && v.Now.Reached() > v.Counts.Reached():
		return nil // members have taken their turn in the last step
	}
	return left
}

// heldGroup returns the held members of the first group before next, or of all groups if
// that is nil, in which nothing but held members is left and none has taken its turn.
func (v *Survey) heldGroup(next *Group) []Member {
	if !v.grouped() || v.Phase == RollingBack && !v.backByGroup() {
		return nil
	}
	for i := 0; i < len(v.Members); {
		group := v.Members[i].Key.Group
		n := slices.IndexFunc(v.Members[i:], func(m Member) bool { return m.Key.Group != group })
		if n < 0 {
			n = len(v.Members) - i
		}
		all := v.Members[i : i+n]
		i += n
		if next != nil && group == *next {
			return nil
		}
		if !slices.ContainsFunc(all, Member.Alive) {
			if left := slices.DeleteFunc(slices.Clone(all), func(m Member) bool { return m.State != Held }); len(left) > 0 {
				return left
			}
		}
	}
	return nil
}

// reached reports whether the change has reached the member: it failed, was given up, or
// came to what it brings in the change.
func (v *Survey) reached(m Member) bool {
	return m.State == Failed || m.State == Left || m.State == HasIt && (m.Want.Granted || !m.Want.Arrived.Before(v.Created))
}

// Room is how many members may be out of service at the same time, and which are. Shares
// are of members that are neither held nor gone. With a limit of its own a role's members count by
// themselves, but for open grants, which always count. What an operator gave up on does not. Only
// open grants count for a change that does not disturb.
func (v *Survey) Room() (allowed int, out []Member) {
	limit, own, place := v.Policy.MaxParallel, false, 0
	if order, g := v.Policy.Order, v.Group; g != nil && g.Place >= 0 && g.Place < len(order) && order[g.Place].Limit != (Amount{}) {
		limit, own, place = order[g.Place].Limit, true, g.Place
	}
	n := 0
	for _, m := range v.Members {
		counts := !own || m.Key.Place == place
		if counts && m.State != Held && !m.Gone {
			n++
		}
		if m.Part.Granted() || v.Disturbs && counts && !m.Gone && m.Out() != InService {
			out = append(out, m)
		}
	}
	return max(1, limit.Of(n)), append(out, v.Others...)
}

// Unsound are members that arrived, are down, and do not count as failed yet.
func (v *Survey) Unsound() []Member {
	if v.Policy.Bake == 0 {
		return nil
	}
	return v.With(func(m Member) bool { return m.State == HasIt && m.Out() == OutDown })
}

// InWindow reports whether hosts may begin now, as far as windows say.
func (v *Survey) InWindow() bool {
	return v.Phase == RollingBack || EachOpen(v.windowLists(), v.now)
}

// Closed is when hosts may begin again, as far as windows say, in words; empty: they may begin now.
func (v *Survey) Closed() string {
	if v.InWindow() {
		return ""
	}
	return ClosedText(v.windowChange())
}

// windowLists are all lists of windows of which one has to be open.
func (v *Survey) windowLists() [][]Window {
	if len(v.Windows) == 0 {
		return [][]Window{v.Policy.Windows}
	}
	return append([][]Window{v.Policy.Windows}, v.Windows...)
}

// Frozen returns the freeze that keeps a host with roles from a grant; with none that of
// the whole cluster.
func (v *Survey) Frozen(roles []string) (Frozen, bool) {
	if v.Unfrozen {
		return Frozen{}, false
	}
	at := v.freezing.of(roles)
	return at.Frozen, at.frozen
}

// allFrozen reports whether every member of which something is expected is frozen.
func (v *Survey) allFrozen() bool {
	return !slices.ContainsFunc(v.Members, func(m Member) bool {
		if m.Settled() || m.State == Working {
			return !m.Settled()
		}
		_, frozen := v.Frozen(m.Roles)
		return !frozen
	})
}

// LastProgress is when the last member arrived, or when hosts could begin again after
// that.
func (v *Survey) LastProgress() time.Time {
	moved := Latest(v.Since, v.Gated, WindowsOpenSince(v.Policy.Windows, v.now), v.PlannedSince)
	if !v.Unfrozen {
		moved = Latest(moved, v.Freezes.Ended(v.now))
	}
	for _, m := range v.Members {
		if m.Want.Has && !m.Want.Arrived.After(v.now) {
			moved = Latest(moved, m.Want.Arrived)
		}
	}
	return moved
}

// until returns when the member may no longer begin: its window ends, or a freeze begins.
// Zero: it always may.
func (v *Survey) until(m Member) (at time.Time) {
	if v.Phase != RollingBack && v.InWindow() {
		at = v.windowChange()
	}
	if !v.Unfrozen && m.Want.freezes() {
		at = Earliest(at, v.freezing.of(m.Roles).begins)
	}
	return at
}
