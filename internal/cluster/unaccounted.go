package cluster

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/kv"
)

// Unaccounted is a host that was provisioned and does not do its part.
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

// presences is what is known of all hosts, read with a number of requests
// that does not depend on theirs.
type presences struct {
	provisioned []string
	clustered   bool // there is a cluster to be a member of
	members     map[string]bool
	versions    map[string]bool
	lives       map[string]Condition // of the provisioned
}

// Unaccounted reads which hosts were provisioned, but are no member (where
// there is a cluster), run no version, have a jorc that died, or are dead. It
// returns consul.ErrDenied also when the token may see only a part, or
// consul.ErrUnreachable.
func (c *Cluster) Unaccounted(ctx context.Context) ([]Unaccounted, error) {
	p, err := c.presences(ctx)
	if err != nil {
		return nil, err
	}
	return p.unaccounted(), nil
}

func (c *Cluster) presences(ctx context.Context) (p presences, err error) {
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return c.mayRead(gctx, PrefixReports, PrefixHosts, KeyProfile)
	})
	g.Go(func() error {
		documents, err := c.reports.List(gctx)
		p.versions = map[string]bool{}
		for _, node := range slices.Sorted(maps.Keys(documents)) {
			d := documents[node].Value
			if d.States[CategoryProvisioned].State == StateSuccess {
				p.provisioned = append(p.provisioned, node)
			}
			if d.Version != "" {
				p.versions[node] = true
			}
		}
		return err
	})
	g.Go(func() error {
		names, err := kv.NewTextTree(c.store, PrefixHosts).Ending(EndMember).Names(gctx)
		if err != nil {
			return err
		}
		p.members = set(slices.Values(names))
		profile, err := kv.NewText(c.store, KeyProfile).Get(gctx)
		p.clustered = profile.Exists || len(names) > 0
		return err
	})
	if err := g.Wait(); err != nil {
		return p, err
	}
	p.lives, err = c.conditions(ctx, p.provisioned)
	return p, err
}

// unaccounted judges each provisioned host.
func (p presences) unaccounted() []Unaccounted {
	all := []Unaccounted{}
	for _, h := range p.provisioned {
		var reasons []string
		for _, r := range []struct {
			holds  bool
			reason string
		}{
			{p.lives[h].Liveness == LivenessAbsent, ReasonAbsent},
			{p.lives[h].Liveness == LivenessDown, ReasonDown},
			{p.clustered && !p.members[h], ReasonNotMember},
			{!p.versions[h], ReasonNoVersion},
			{p.lives[h].AgentCheck() == SignalFailing, ReasonNoAgent},
		} {
			if r.holds {
				reasons = append(reasons, r.reason)
			}
		}
		if len(reasons) > 0 {
			all = append(all, Unaccounted{Host: h, Reasons: reasons})
		}
	}
	slices.SortFunc(all, func(a, b Unaccounted) int { return strings.Compare(a.Host, b.Host) })
	return all
}

func set[T comparable](members iter.Seq[T]) map[T]bool {
	s := map[T]bool{}
	for m := range members {
		s[m] = true
	}
	return s
}
