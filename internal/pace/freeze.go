package pace

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ErrFreeze: the freeze is invalid.
var ErrFreeze = errors.New("not a freeze")

// Freeze is a time in which nothing begins that takes hosts out of service: from From to
// To, or, with Weekly, each week.
type Freeze struct {
	ID     string    `json:"id"`
	From   time.Time `json:"from,omitzero"`
	To     time.Time `json:"to,omitzero"`
	Weekly *Window   `json:"weekly,omitempty"`
	Roles  []string  `json:"roles,omitempty"` // it is of members with one of them; none: of all
	Reason string    `json:"reason,omitempty"`
	By     string    `json:"by,omitempty"`
	Since  time.Time `json:"since,omitzero"` // when it was added
}

// Same reports whether both are of the same times and members.
func (f *Freeze) Same(o Freeze) bool {
	return f.From.Equal(o.From) && f.To.Equal(o.To) && slices.Equal(f.Roles, o.Roles) && (f.Weekly == nil) == (o.Weekly == nil) && f.When() == o.When()
}

// Check returns ErrFreeze for a freeze that is over at now, or never ends.
func (f *Freeze) Check(now time.Time) error {
	at := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	switch {
	case f.Weekly != nil && WindowsChange([]Window{*f.Weekly}, now).IsZero():
		return fmt.Errorf("%w: %q never ends: leave some time in which changes may begin", ErrFreeze, f.Weekly)
	case f.Weekly != nil:
		return nil
	case f.To.IsZero():
		return fmt.Errorf("%w: it never ends: give an end, or a time of the week", ErrFreeze)
	case !f.To.After(f.From):
		return fmt.Errorf("%w: it ends at %s, and begins at %s: give an end after the beginning", ErrFreeze, at(f.To), at(f.From))
	case !f.To.After(now):
		return fmt.Errorf("%w: it ended at %s: give an end in the future", ErrFreeze, at(f.To))
	}
	return nil
}

// Open reports whether t is within the freeze.
func (f *Freeze) Open(t time.Time) bool {
	if f.Weekly != nil {
		return f.Weekly.Open(t)
	}
	return !t.Before(f.From) && t.Before(f.To)
}

// Over reports whether the freeze does not come again.
func (f *Freeze) Over(now time.Time) bool { return f.Weekly == nil && !now.Before(f.To) }

// Change returns when the freeze begins or ends next; zero: never.
func (f *Freeze) Change(now time.Time) time.Time {
	switch {
	case f.Weekly != nil:
		return WindowsChange([]Window{*f.Weekly}, now)
	case now.Before(f.From):
		return f.From
	case now.Before(f.To):
		return f.To
	}
	return time.Time{}
}

// ended returns when the freeze ended last; zero: not in the last two weeks, or it is
// open.
func (f *Freeze) ended(now time.Time) time.Time {
	switch {
	case f.Open(now):
	case f.Weekly == nil && !now.Before(f.To):
		return f.To
	case f.Weekly != nil:
		for _, at := range slices.Backward(edges([]Window{*f.Weekly}, now, -searchDays, 0)) {
			if !at.After(now) && f.Weekly.Open(at.Add(-time.Nanosecond)) {
				return at
			}
		}
	}
	return time.Time{}
}

// holds reports whether the freeze is of a member with roles.
func (f *Freeze) holds(roles []string) bool {
	return len(f.Roles) == 0 || slices.ContainsFunc(f.Roles, func(r string) bool { return slices.Contains(roles, r) })
}

// When is the time of the freeze in words.
func (f *Freeze) When() string {
	if f.Weekly != nil {
		return "each week " + f.Weekly.String()
	}
	return fmt.Sprintf("from %s until %s", f.From.UTC().Format(time.RFC3339), f.To.UTC().Format(time.RFC3339))
}

// String names the freeze: "freeze 3f2a each week Sat 00:00-24:00: the sale".
func (f *Freeze) String() string {
	text := "freeze " + f.ID
	if len(f.Roles) > 0 {
		text += " of role " + strings.Join(f.Roles, ", ")
	}
	if text += " " + f.When(); f.Reason != "" {
		text += ": " + f.Reason
	}
	return text
}

// overlaps reports whether both are of the same roles and have a time in common after
// now. One of dates may lie over one of each week.
func (f *Freeze) overlaps(o *Freeze, now time.Time) bool {
	sorted := func(roles []string) []string { return slices.Compact(slices.Sorted(slices.Values(roles))) }
	switch {
	case !slices.Equal(sorted(f.Roles), sorted(o.Roles)), (f.Weekly == nil) != (o.Weekly == nil):
		return false
	case f.Weekly == nil:
		return f.From.Before(o.To) && o.From.Before(f.To)
	}
	both := func(t time.Time) bool { return f.Open(t) && o.Open(t) }
	return both(now) || slices.ContainsFunc(edges([]Window{*f.Weekly, *o.Weekly}, now, 0, searchDays), both)
}

// Freezes are the freezes of a cluster.
type Freezes []Freeze

// Frozen is a freeze that is in force.
type Frozen struct {
	Freeze
	Until time.Time // when no freeze is in force for the same members; zero: that is not known
}

// String is the freeze and its end in words: "frozen until 2026-12-27T06:00:00Z by freeze
// 3f2a: the sale".
func (f Frozen) String() string {
	text := "frozen"
	if !f.Until.IsZero() {
		text += " until " + f.Until.UTC().Format(time.RFC3339)
	}
	text += " by freeze " + f.ID
	if len(f.Roles) > 0 {
		text += " of role " + strings.Join(f.Roles, ", ")
	}
	if f.Reason != "" {
		text += ": " + f.Reason
	}
	return text
}

// mostJoined bounds how many freezes in a row count as one.
const mostJoined = 64

// At returns the freeze that is in force for a member with roles. Where one ends in
// another, Until is the end of the last.
func (all Freezes) At(roles []string, now time.Time) (Frozen, bool) {
	var first *Freeze
	until := now
	for range mostJoined {
		i := slices.IndexFunc(all, func(f Freeze) bool { return f.holds(roles) && f.Open(until) })
		if i < 0 {
			break
		}
		if first == nil {
			first = &all[i]
		}
		if until = all[i].Change(until); until.IsZero() {
			break
		}
	}
	if first == nil {
		return Frozen{}, false
	}
	return Frozen{*first, until}, true
}

// Any returns a freeze that is in force for some members.
func (all Freezes) Any(now time.Time) (Frozen, bool) {
	for _, f := range all {
		if f.Open(now) {
			return all.At(f.Roles, now)
		}
	}
	return Frozen{}, false
}

// Begins returns when a freeze of a member with roles begins next; zero: never.
func (all Freezes) Begins(roles []string, now time.Time) (begins time.Time) {
	for _, f := range all {
		if f.holds(roles) && !f.Open(now) {
			begins = Earliest(begins, f.Change(now))
		}
	}
	return begins
}

// Change returns when one of the freezes begins or ends next; zero: never.
func (all Freezes) Change(now time.Time) (at time.Time) {
	for _, f := range all {
		at = Earliest(at, f.Change(now))
	}
	return at
}

// Ended returns when one of the freezes ended last; zero: not in the last two weeks.
func (all Freezes) Ended(now time.Time) (at time.Time) {
	for _, f := range all {
		if t := f.ended(now); t.After(at) {
			at = t
		}
	}
	return at
}

// Earliest returns the earliest of times that are not zero; zero: all are.
func Earliest(times ...time.Time) (first time.Time) {
	for _, t := range times {
		if first.IsZero() || !t.IsZero() && t.Before(first) {
			first = t
		}
	}
	return first
}

// Bounds of the freezes of a cluster.
const (
	mostFreezes = 64
	keptFreezes = 7 * 24 * time.Hour // since a rollout's deadline counts from the end of a freeze
)

// Add returns the freezes with one more, without the ones that ended a week ago. It returns
// ErrFreeze if Check does, or one of the same roles lies at the same time.
func (all Freezes) Add(f Freeze, now time.Time) (Freezes, error) {
	if err := f.Check(now); err != nil {
		return all, err
	}
	kept := slices.DeleteFunc(slices.Clone(all), func(o Freeze) bool { return o.Over(now.Add(-keptFreezes)) })
	for _, o := range kept {
		if o.overlaps(&f, now) {
			return all, fmt.Errorf("%w: it overlaps freeze %s, %s, of the same members: 'jorc cluster freeze remove %s' first", ErrFreeze, o.ID, o.When(), o.ID)
		}
	}
	if len(kept) >= mostFreezes {
		return all, fmt.Errorf("%w: there are %d, and no more are kept: 'jorc cluster freeze remove' one", ErrFreeze, len(kept))
	}
	return append(kept, f), nil
}
