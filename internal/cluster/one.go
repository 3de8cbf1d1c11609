package cluster

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/profile"
)

// MemberOf reads one member as Members shows it; what is read does not grow
// with their number. It returns ErrNoMember, or what Members returns.
func (c *Cluster) MemberOf(ctx context.Context, node string, need Need) (Member, error) {
	s := sources{records: map[string]kv.Leaf[Record]{}, reports: map[string]kv.Leaf[report]{}}
	info := consul.NodeInfo{Node: node}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		r, err := c.Record(ctx, node)
		s.records[node] = kv.Leaf[Record]{Entry: kv.Entry[Record]{Value: r, Exists: true}}
		return err
	})
	g.Go(func() (err error) { s.leaders, err = c.Leaders(ctx); return err })
	if need&NeedReports != 0 {
		g.Go(func() error {
			e, err := c.reports.At(node).Get(ctx)
			s.reports[node] = kv.Leaf[report]{Entry: e}
			return err
		})
	}
	if need&(NeedCatalog|NeedDatacenter|NeedServices|needChecks) != 0 {
		g.Go(func() error {
			n, err := whole(c.client.CatalogNode(ctx, node, consul.Query{}))
			if err != nil || n == nil {
				return err
			}
			info.Address, info.Meta = n.Node.Address, n.Node.Meta
			s.nodes = []consul.NodeInfo{{Node: node, Address: n.Node.Address, Datacenter: n.Node.Datacenter, Meta: n.Node.Meta}}
			for _, service := range n.Services {
				info.Services = append(info.Services, struct{ ID, Service string }{service.ID, service.Service})
			}
			return nil
		})
	}
	var checks []consul.CheckState
	if need&needChecks != 0 {
		g.Go(func() error {
			all, err := whole(c.client.HealthNode(ctx, node, consul.Query{}))
			for _, h := range all {
				checks = append(checks, consul.CheckState{Node: node, CheckID: h.CheckID, Status: h.Status, Notes: h.Notes, ServiceID: h.ServiceID, ServiceName: h.ServiceName})
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return Member{}, err
	}
	info.Checks = checks
	s.inventory = []consul.NodeInfo{info}
	return s.members(catalog.PresenceID(c.name), need)[0], nil
}

// Belongs tells whether the cluster's own filter, which d has, matches a member.
// It asks Consul only where there is a filter, and returns what MemberOf returns,
// or a *FilterError.
func (c *Cluster) Belongs(ctx context.Context, d profile.Document, node string) (bool, error) {
	f, err := filterOf(d)
	if err != nil || f.String() == "" {
		return err == nil, err
	}
	m, err := c.MemberOf(ctx, node, f.need)
	if err != nil {
		return false, err
	}
	return f.Match(&m), nil
}
