package pace

import (
	"cmp"
	"slices"
	"time"
)

// Demand is one change that wants to take hosts out of service and may not, as the
// budget is used up.
type Demand struct {
	Change   string
	Restores bool      // it takes something back
	Open     int       // hosts that are out of service for it
	Created  time.Time // the change
	Nodes    []string  // that it would take next, in order
}

// Compare orders changes by who gets a place that becomes free: below zero when d comes
// before o. What restores comes first, then the change with the fewest hosts out of
// service, which is max-min fair, then the oldest.
func (d Demand) Compare(o Demand) int {
	return cmp.Or(-CompareBool(d.Restores, o.Restores), cmp.Compare(d.Open, o.Open), d.Created.Compare(o.Created), cmp.Compare(d.Change, o.Change))
}

// CompareBool orders false before true.
func CompareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// LeftFor returns the account in which taken are out, and then the places are kept that go to others,
// changes that come before the demand.
func (a *Account) LeftFor(d Demand, others []Demand, taken ...string) *Account {
	left := a.Clone()
	if a.Budget() == nil {
		return left
	}
	for _, node := range taken {
		left.Take(node)
	}
	others = slices.Clone(others)
	slices.SortFunc(others, Demand.Compare)
	for _, o := range others {
		if o.Change == d.Change || o.Compare(d) > 0 {
			continue
		}
		for _, node := range o.Nodes {
			if l, ok := left.Admit(node); ok || l.Kind == OfHolder { // its place is kept until it has given the lock away
				left.keep(node)
			}
		}
	}
	return left
}
