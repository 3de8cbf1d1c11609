package watch

import (
	"context"
	"sort"
	"time"

	dep "github.com/hashicorp/consul-template/dependency"

	"github.com/jorc/jorc/internal/consul"
)

func snippets(services map[string][]string) []*dep.CatalogSnippet {
	list := make([]*dep.CatalogSnippet, 0, len(services))
	for name, tags := range services {
		list = append(list, &dep.CatalogSnippet{Name: name, Tags: sortedTags(tags)})
	}
	sort.Stable(dep.ByName(list))
	return list
}

func nodes(list []*consul.Node, sorted bool) []*dep.Node {
	out := make([]*dep.Node, 0, len(list))
	for _, n := range list {
		out = append(out, node(n))
	}
	if sorted {
		sort.Stable(dep.ByNode(out))
	}
	return out
}

func node(n *consul.Node) *dep.Node {
	return &dep.Node{
		ID: n.ID, Node: n.Node, Address: n.Address, Datacenter: n.Datacenter,
		TaggedAddresses: n.TaggedAddresses, Meta: n.Meta,
	}
}

// fetchNode reads a node and its services; without a name the local agent's.
func (s *sources) fetchNode(ctx context.Context, d *dependency, q consul.Query) (any, bool, consul.Meta, error) {
	name := d.name
	if name == "" {
		self, err := s.client.AgentSelf(ctx)
		if err != nil {
			return nil, false, consul.Meta{}, err
		}
		name = self.Config.NodeName
	}
	n, meta, err := s.client.CatalogNode(ctx, name, q)
	if err != nil {
		return nil, false, meta, err
	}
	if n == nil {
		return &dep.CatalogNode{}, true, meta, nil
	}
	services := make([]*dep.CatalogNodeService, 0, len(n.Services))
	for _, v := range n.Services {
		services = append(services, &dep.CatalogNodeService{
			ID: v.ID, Service: v.Service, Tags: sortedTags(v.Tags), Meta: v.Meta,
			Port: v.Port, Address: v.Address, EnableTagOverride: v.EnableTagOverride,
		})
	}
	sort.Stable(dep.ByService(services))
	return &dep.CatalogNode{Node: node(n.Node), Services: services}, false, meta, nil
}

// datacentersEvery is how often the list of datacenters is read: Consul cannot
// block on it.
const datacentersEvery = time.Minute

func (s *sources) watchDatacenters(ctx context.Context, d *dependency) {
	tick := time.NewTicker(datacentersEvery)
	defer tick.Stop()
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-retry.C:
		}
		list, err := s.client.Datacenters(ctx)
		if err != nil {
			retry.Reset(2 * time.Second)
		}
		s.send(ctx, []change{{id: d.id, value: list, err: err, at: time.Now()}})
	}
}
