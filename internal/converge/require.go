package converge

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/blocker"
	"github.com/jorc/jorc/internal/config"
)

// Missing is a requirement that is not there.
type Missing struct {
	Target string `json:"target"`
	Have   int    `json:"have"`
	Want   int    `json:"want"`
	For    string `json:"for"`
	Why    string `json:"why"`
}

// String is "mysql: 0 of 1 functional".
func (m Missing) String() string {
	return fmt.Sprintf("%s: %d of %d %s", m.Target, m.Have, m.Want, m.For)
}

// waitingFor is one line about all that is missing.
func waitingFor(missing []Missing) string {
	parts := make([]string, len(missing))
	for i, m := range missing {
		parts[i] = m.String()
	}
	return "waiting for " + strings.Join(parts, "; ")
}

// targets tells sets of missing targets apart, whatever their numbers.
func targets(missing []Missing) string {
	parts := make([]string, len(missing))
	for i, m := range missing {
		parts[i] = m.Target + " " + m.For
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// FromBlocker are the Requirements that b tells of.
func FromBlocker(b *blocker.Blocker) Requirements { return services{b} }

type services struct{ blocker *blocker.Blocker }

// Watch says nothing before Consul has answered about all that is required.
func (s services) Watch(ctx context.Context, r []config.Requires, handle func([]Missing)) error {
	needs := make([]blocker.Need, len(r))
	for i := range r {
		n, err := blocker.NeedOf(r[i])
		if err != nil {
			return err
		}
		needs[i] = n
	}
	return s.blocker.Watch(ctx, needs, blocker.Options{}, func(states []blocker.State) {
		var missing []Missing
		for _, s := range states {
			if !s.Answered && !s.Denied {
				return
			}
			if !s.Satisfied {
				n := s.Need
				missing = append(missing, Missing{Target: n.Target.Ident(), Have: s.Have, Want: n.Target.Count, For: n.For.String(), Why: s.Why})
			}
		}
		handle(missing)
	})
}
