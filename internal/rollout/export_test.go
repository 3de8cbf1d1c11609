package rollout

import (
	"slices"
	"time"

	"github.com/jorc/jorc/internal/pace"
)

// For tests only.
var (
	Begin = func(version string, p pace.Policy, now time.Time) Document { return begin(version, p, "", "", now) }
)

// Admitted are the members that the document's present step admits.
func Admitted(d Document, s State, now time.Time) []string {
	p := newPlanner(d, s, now)
	in := p.admitted(func(ranked) bool { return true })
	var all []string
	for _, m := range s.Members {
		if slices.ContainsFunc(in, func(r ranked) bool { return r.Node == m.Node }) {
			all = append(all, m.Node)
		}
	}
	return all
}

// Resumed and Promoted are the document after the command of an operator.
func Resumed(d Document, now time.Time) Document             { return d.resumed(now) }
func Promoted(d Document, by string, now time.Time) Document { return d.promoted(by, now) }

// Outcome is how a wait that began with the rollout first ends.
func Outcome(s Status, first Document) (over bool, err error) {
	return s.outcome(s.Version, first, nil)
}
