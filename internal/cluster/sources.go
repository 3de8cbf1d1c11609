package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
)

// sources are the answers that members are put together from.
type sources struct {
	records   map[string]kv.Leaf[Record]
	leaders   Leaders
	noLeaders error               // why who leads cannot be read
	nodes     []consul.NodeInfo   // without services and checks
	checks    []consul.CheckState // those that checksFor asks for
	partial   bool                // checks that pass were not asked for
	services  []consul.ServiceHosts
	inventory []consul.NodeInfo // with services and checks
	reports   map[string]kv.Leaf[report]
}

// tell calls unreadable with what cannot be read; without it the first of that
// is returned, but for what nodes report.
func (s sources) tell(unreadable func(key string, err error)) error {
	var first error
	tell := func(key string, err error) {
		switch {
		case err == nil:
		case unreadable != nil:
			unreadable(key, err)
		case first == nil && !strings.HasPrefix(key, PrefixReports):
			first = err
		}
	}
	tell(KeyLeaders, s.noLeaders)
	for _, node := range slices.Sorted(maps.Keys(s.records)) {
		tell(MemberKey(node), s.records[node].Err)
	}
	for _, node := range slices.Sorted(maps.Keys(s.reports)) {
		tell(PrefixReports+node, s.reports[node].Err)
	}
	return first
}

// read asks for everything that is needed at one time.
func (c *Cluster) read(ctx context.Context, need Need) (sources, error) {
	var s sources
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { s.records, err = c.members.List(ctx); return err })
	g.Go(func() (err error) {
		s.leaders, err = c.Leaders(ctx)
		if unreadable(err) {
			s.noLeaders, err = err, nil
		}
		return err
	})
	if need&NeedReports != 0 {
		g.Go(func() (err error) { s.reports, err = c.reports.List(ctx); return err })
	}
	if need&(NeedCatalog|NeedDatacenter|needChecks) != 0 {
		g.Go(func() (err error) { s.nodes, err = whole(c.client.CatalogHosts(ctx, consul.Query{})); return err })
	}
	// One answer with nodes, services and checks is as long as all others
	// together, and Consul writes it with one processor.
	if need&NeedServices != 0 {
		g.Go(func() (err error) { s.services, err = whole(c.client.ServiceHosts(ctx, consul.Query{})); return err })
	}
	if need&needChecks != 0 {
		s.partial = true
		q := consul.Query{Filter: checksFor(need, catalog.PresenceID(c.name))}
		g.Go(func() (err error) { s.checks, err = whole(c.client.CheckStates(ctx, q)); return err })
	}
	err := g.Wait()
	return s, err
}

// unreadable tells whether err is about what a document holds.
func unreadable(err error) bool { return errors.Is(err, kv.ErrDamaged) || errors.Is(err, kv.ErrNewer) }

// whole turns an answer that ACLs made smaller into a failure: what is missing
// must not look as if it were not there.
func whole[T any](v T, meta consul.Meta, err error) (T, error) {
	if err == nil && meta.Filtered {
		err = fmt.Errorf("read the catalog: the token does not see all of it (it needs node:read and service:read): %w", consul.ErrDenied)
	}
	return v, err
}
