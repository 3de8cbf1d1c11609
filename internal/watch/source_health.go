package watch

import (
	"context"
	"slices"
	"sort"

	dep "github.com/hashicorp/consul-template/dependency"

	"github.com/jorc/jorc/internal/consul"
)

// fetcher returns how d is read from Consul, as the type that consul-template
// gives to templates. An answer that ACLs have thinned out is an error: it
// must not change a file.
func (s *sources) fetcher(d *dependency) consul.Source[any] {
	return func(ctx context.Context, q consul.Query) (any, consul.Meta, error) {
		scoped := d.scope.query()
		scoped.Index, scoped.Wait, scoped.Hash, scoped.Near = q.Index, q.Wait, q.Hash, d.near
		value, empty, meta, err := s.fetch(ctx, d, scoped)
		if err != nil {
			return nil, meta, err
		}
		if err := s.rights.believe(ctx, d, meta.Filtered, empty); err != nil {
			return nil, meta, err
		}
		return value, meta, nil
	}
}

func (s *sources) fetch(ctx context.Context, d *dependency, q consul.Query) (value any, empty bool, meta consul.Meta, err error) {
	switch d.kind {
	case kindService:
		list, meta, err := s.client.HealthService(ctx, d.name, d.tag, d.passingOnly(), q)
		return instances(d, list), len(list) == 0, meta, err
	case kindConnect:
		list, meta, err := s.client.HealthConnect(ctx, d.name, d.tag, d.passingOnly(), q)
		return instances(d, list), len(list) == 0, meta, err
	case kindServices:
		services, meta, err := s.client.CatalogServices(ctx, q)
		return snippets(services), len(services) == 0, meta, err
	case kindNodes:
		list, meta, err := s.client.CatalogNodes(ctx, q)
		return nodes(list, d.near == ""), len(list) == 0, meta, err
	case kindNode:
		return s.fetchNode(ctx, d, q)
	case kindCARoots:
		roots, meta, err := s.client.CARoots(ctx, q)
		if err != nil {
			return nil, false, meta, err
		}
		return roots.Roots, false, meta, nil
	case kindCALeaf:
		leaf, meta, err := s.client.CALeaf(ctx, d.name, q)
		return leaf, false, meta, err
	}
	panic("watch: no fetcher for " + string(d.kind))
}

// instances is consul-template's view of the instances of a service.
func instances(d *dependency, entries []*consul.ServiceEntry) []*dep.HealthService {
	list := make([]*dep.HealthService, 0, len(entries))
	for _, e := range entries {
		status := e.Checks.AggregatedStatus()
		if !slices.Contains(d.filters, status) && !slices.Contains(d.filters, dep.HealthAny) {
			continue
		}
		address := e.Service.Address
		if address == "" {
			address = e.Node.Address
		}
		for _, c := range e.Checks {
			c.CreateIndex, c.ModifyIndex = 0, 0 // a written check that says the same is no change
		}
		list = append(list, &dep.HealthService{
			Node: e.Node.Node, NodeID: e.Node.ID, NodeAddress: e.Node.Address,
			NodeTaggedAddresses: e.Node.TaggedAddresses, NodeMeta: e.Node.Meta,
			ServiceMeta: e.Service.Meta, Address: address, ServiceTaggedAddresses: e.Service.TaggedAddresses,
			ID: e.Service.ID, Name: e.Service.Service, Tags: sortedTags(e.Service.Tags),
			Status: status, Checks: e.Checks, Port: e.Service.Port, Weights: e.Service.Weights,
		})
	}
	if d.near == "" {
		sort.Stable(dep.ByNodeThenID(list))
	}
	return list
}

func sortedTags(tags []string) dep.ServiceTags {
	sorted := make([]string, 0, len(tags))
	sorted = append(sorted, tags...)
	slices.Sort(sorted)
	return sorted
}
