package nodes

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
)

// Unaccounted is a host that was provisioned and does not do its part.
type Unaccounted struct {
	Host    string   `json:"host"`
	Reasons []string `json:"reasons"`
}

// Reasons to be unaccounted for.
const (
	NotMember  = "no member of the cluster"
	NoVersion  = "runs no version"
	NoJorc     = "jorc's own check has expired"
	DeadHost   = "dead: gossip does not hear it"
	NotCatalog = "not in Consul's catalog"
)

// presences is what is known of all hosts, read with a number of requests
// that does not depend on theirs.
type presences struct {
	provisioned []string
	clustered   bool // there is a cluster to be a member of
	members     map[string]bool
	versions    map[string]bool
	nodes       []*consul.Node
	checks      consul.HealthChecks // of gossip, and jorc's own
}

// Unaccounted reads which hosts were provisioned, but are no member (where
// there is a cluster), run no version, have a jorc that died, or are dead. It
// returns consul.ErrDenied also when the token may see only a part, or
// consul.ErrUnreachable.
func (l *Ledger) Unaccounted(ctx context.Context) ([]Unaccounted, error) {
	p, err := l.presences(ctx)
	if err != nil {
		return nil, err
	}
	return p.unaccounted(), nil
}

func (l *Ledger) presences(ctx context.Context) (presences, error) {
	var p presences
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return l.mayRead(ctx, keyNodes, cluster.PrefixHosts, cluster.KeyProfile)
	})
	g.Go(func() error { return l.maySeeCatalog(ctx) })
	g.Go(func() error {
		documents, err := l.docs.List(ctx)
		p.versions = map[string]bool{}
		for _, node := range slices.Sorted(maps.Keys(documents)) {
			d := documents[node].Value
			if d.States[Provisioned].State == Success {
				p.provisioned = append(p.provisioned, node)
			}
			if d.Version != "" {
				p.versions[node] = true
			}
		}
		return err
	})
	g.Go(func() error {
		names, err := kv.NewTextTree(l.store, cluster.PrefixHosts).Ending(cluster.EndMember).Names(ctx)
		if err != nil {
			return err
		}
		p.members = set(slices.Values(names))
		profile, err := kv.NewText(l.store, cluster.KeyProfile).Get(ctx)
		p.clustered = profile.Exists || len(names) > 0
		return err
	})
	g.Go(func() (err error) {
		p.nodes, err = whole(l.client.CatalogNodes(ctx, consul.Query{}))
		return err
	})
	g.Go(func() (err error) {
		p.checks, err = whole(l.client.HealthState(ctx, "any", consul.Query{
			Filter: fmt.Sprintf("CheckID == %q or ServiceID == %q", serfHealth, l.presence),
		}))
		return err
	})
	return p, g.Wait()
}

// unaccounted judges each provisioned host.
func (p presences) unaccounted() []Unaccounted {
	lives := livesOf(p.provisioned, p.nodes, p.checks)
	expired := map[string]bool{}
	for _, c := range p.checks {
		if c.CheckID != serfHealth && c.Status != consul.HealthPassing {
			expired[c.Node] = true
		}
	}
	all := []Unaccounted{}
	for _, h := range p.provisioned {
		var reasons []string
		for _, r := range []struct {
			holds  bool
			reason string
		}{
			{lives[h] == Gone, NotCatalog},
			{lives[h] == Dead, DeadHost},
			{p.clustered && !p.members[h], NotMember},
			{!p.versions[h], NoVersion},
			{expired[h], NoJorc},
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
