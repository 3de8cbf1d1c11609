package rollout

import (
	"cmp"
	"slices"
	"time"
)

// ranked is a member with its key and its standing.
type ranked struct {
	Member
	key      Key
	standing standing
}

// settled tells whether nothing more is to be expected of the member now.
func (r ranked) settled() bool {
	return r.standing == done || r.standing == failed || r.standing == down
}

// survey is what a document makes of a view: the members that it is about, in
// the order in which the version reaches them.
type survey struct {
	doc     Document
	now     time.Time
	members []ranked
	// others are no part of it any more, but under way.
	others []ranked
	counts Counts
	halted string
}

func newSurvey(d Document, v View, now time.Time) survey {
	s := survey{doc: d, now: now, halted: v.Halted}
	for _, m := range v.Members {
		r := ranked{m, d.Policy.KeyOf(d.Version, m.Node, m.Roles, m.Zone), m.standing(d, now)}
		if !m.part(d.Policy) {
			if r.standing == working {
				s.others = append(s.others, r)
			}
			continue
		}
		s.members = append(s.members, r)
		s.counts.add(r.standing)
	}
	slices.SortFunc(s.members, func(a, b ranked) int { return cmp.Or(a.key.Compare(b.key), cmp.Compare(a.Node, b.Node)) })
	return s
}

func (c *Counts) add(s standing) {
	c.Members++
	switch s {
	case done:
		c.Done++
	case failed:
		c.Failed++
	case working:
		c.Working++
	case down:
		c.Down++
	case pending:
		c.Pending++
	}
}

// with returns those members that are as wanted, in order.
func (s survey) with(wanted func(ranked) bool) []ranked {
	var all []ranked
	for _, m := range s.members {
		if wanted(m) {
			all = append(all, m)
		}
	}
	return all
}

func (s survey) standing(want standing) []ranked {
	return s.with(func(m ranked) bool { return m.standing == want })
}

// grouped tells whether one role or zone has to be finished before the next.
func (s survey) grouped() bool { return len(s.doc.Policy.Order) > 0 || s.doc.Policy.ZoneByZone }

// room is how many members may be out of service at one time, and which are
// without a slot to be so. With a limit of its own a role's members count by
// themselves.
func (s survey) room() (allowed int, out []ranked) {
	place := 0
	switch {
	case s.doc.Rule.To != nil:
		place = s.doc.Rule.To.Place
	case len(s.members) > 0:
		place = s.members[0].key.Place
	}
	limit, own := s.doc.Policy.MaxParallel, false
	if order := s.doc.Policy.Order; !s.doc.Rule.All && place >= 0 && place < len(order) && order[place].Limit != (Amount{}) {
		limit, own = order[place].Limit, true
	}
	n := 0
	for _, m := range s.members {
		if own && m.key.Place != place {
			continue
		}
		n++
		if m.out() {
			out = append(out, m)
		}
	}
	return max(1, limit.Of(n)), out
}

// names returns the names of members in order, as many as a decision lists.
func names(all []ranked) []string {
	list := make([]string, 0, len(all))
	for _, m := range all {
		list = append(list, m.Node)
	}
	slices.Sort(list)
	return list[:min(len(list), mostNames)]
}

// mostNames bounds lists of members.
const mostNames = 10
