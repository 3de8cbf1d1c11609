package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// Unaccounted is a provisioned host that does not do its part.
type Unaccounted struct {
	Host    string   `json:"host"`
	Reasons []string `json:"reasons"`
}

// Reasons to be unaccounted for.
const (
	ReasonNotMember = "no member of the cluster"
	ReasonNoVersion = "runs no version"
	ReasonNoAgent   = "jorc's own check has expired"
	ReasonDown      = "dead: gossip does not hear it"
	ReasonAbsent    = "not in Consul's catalog"
)

// Unaccounted reads which provisioned hosts do not do their part; ttl is as for
// State.Unaccounted. It returns consul.ErrDenied also when the token may see only
// a part, or consul.ErrUnreachable.
func (c *Cluster) Unaccounted(ctx context.Context, ttl map[string]time.Duration) ([]Unaccounted, error) {
	var s State
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.mayRead(gctx, PrefixReports, PrefixHosts, KeyProfile) })
	g.Go(func() error { return c.maySeeCatalog(gctx) })
	g.Go(func() (err error) {
		s, err = c.Load(gctx, NeedReports|NeedAgent|NeedLiveness|NeedProfile)
		return err
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return s.Unaccounted(ttl, now()), nil
}

// Unaccounted returns the hosts that were provisioned, but are no member (where
// there is a cluster), run no version, have a jorc agent that died, are down or
// absent, or have no jorc agent and reported a category for the last time longer
// ago than its ttl.
func (s *State) Unaccounted(ttl map[string]time.Duration, now time.Time) []Unaccounted {
	clustered := s.Exists || len(s.Nodes()) > 0
	all := []Unaccounted{}
	for _, node := range slices.Sorted(maps.Keys(s.Hosts)) {
		h := s.Hosts[node]
		if h.Report.States[CategoryProvisioned].State != StateSuccess {
			continue
		}
		var reasons []string
		add := func(holds bool, reason string) {
			if holds {
				reasons = append(reasons, reason)
			}
		}
		add(h.Condition.Liveness == LivenessAbsent, ReasonAbsent)
		add(h.Condition.Liveness == LivenessDown, ReasonDown)
		add(clustered && !h.Member, ReasonNotMember)
		add(h.Report.Version == "", ReasonNoVersion)
		add(h.Condition.AgentCheck() == SignalFailing, ReasonNoAgent)
		if h.Condition.AgentCheck() == SignalNone {
			for _, category := range slices.Sorted(maps.Keys(ttl)) {
				state, reported := h.Report.States[category]
				add(reported && now.Sub(state.latest()) > ttl[category], fmt.Sprintf("no report of %s for more than %s", category, shortDuration(ttl[category])))
			}
		}
		if len(reasons) > 0 {
			all = append(all, Unaccounted{Host: node, Reasons: reasons})
		}
	}
	return all
}

// shortDuration is d without units that are zero: 24h in place of 24h0m0s.
func shortDuration(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}
