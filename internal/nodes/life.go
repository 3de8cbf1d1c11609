package nodes

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/consul"
)

// Life is what Consul knows of a host. Only gossip tells: other checks of a
// host that died stay in the catalog as they were.
type Life string

// Lives of hosts.
const (
	Alive     Life = "alive"
	Dead      Life = "dead"      // gossip does not hear it
	Unwatched Life = "unwatched" // in the catalog, but no part of the gossip
	Gone      Life = "gone"      // not in the catalog
)

// Apart tells whether the host is not to be counted on.
func (l Life) Apart() bool { return l == Dead || l == Gone }

// serfHealth is the check that gossip keeps.
const serfHealth = "serfHealth"

// lives tells how each of hosts is, with three requests whatever their number.
func (l *Ledger) lives(ctx context.Context, hosts []string) (map[string]Life, error) {
	if len(hosts) == 0 {
		return nil, nil
	}
	var nodes []*consul.Node
	var checks consul.HealthChecks
	only := namedFilter(hosts)
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return l.maySeeCatalog(gctx) })
	g.Go(func() (err error) {
		nodes, err = whole(l.client.CatalogNodes(gctx, consul.Query{Filter: only}))
		return err
	})
	g.Go(func() (err error) {
		filter := fmt.Sprintf("CheckID == %q", serfHealth)
		if only != "" {
			filter += " and (" + only + ")"
		}
		checks, err = whole(l.client.HealthState(gctx, "any", consul.Query{Filter: filter}))
		return err
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return livesOf(hosts, nodes, checks), nil
}

func livesOf(hosts []string, nodes []*consul.Node, checks consul.HealthChecks) map[string]Life {
	known := map[string]Life{}
	for _, n := range nodes {
		known[n.Node] = Unwatched
	}
	for _, c := range checks {
		switch {
		case c.CheckID != serfHealth:
		case c.Status == consul.HealthPassing:
			known[c.Node] = Alive
		default:
			known[c.Node] = Dead
		}
	}
	lives := make(map[string]Life, len(hosts))
	for _, h := range hosts {
		lives[h] = Gone
		if life, ok := known[h]; ok {
			lives[h] = life
		}
	}
	return lives
}

// mostNamed is how many hosts a filter names; for more all are read.
const mostNamed = 32

// namedFilter is a filter for these hosts; empty when there are too many, or
// when one has a name that a filter cannot hold as it is.
func namedFilter(hosts []string) string {
	if len(hosts) > mostNamed {
		return ""
	}
	parts := make([]string, len(hosts))
	for i, h := range hosts {
		if strings.ContainsFunc(h, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' || r == '_')
		}) {
			return ""
		}
		parts[i] = fmt.Sprintf("Node == %q", h)
	}
	return strings.Join(parts, " or ")
}
