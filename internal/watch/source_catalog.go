package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
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

// fetcher returns how d is read from Consul, as the type that consul-template
// gives to templates. An answer that ACLs have thinned out is an error: it
// must not change a file.
func (s *sources) fetcher(d *dependency) consul.Source[any] {
	fetch := func(ctx context.Context, q consul.Query) (any, bool, consul.Meta, error) { return s.fetch(ctx, d, q) }
	if d.kind == kindService || d.kind == kindConnect {
		fetch = s.instances(d)
	}
	return func(ctx context.Context, q consul.Query) (any, consul.Meta, error) {
		scoped := d.scope.query()
		scoped.Index, scoped.Wait, scoped.Hash, scoped.Consistent, scoped.Near = q.Index, q.Wait, q.Hash, q.Consistent, d.near
		scoped.MaxBytes = answerOf(s.maxData)
		value, empty, meta, err := fetch(ctx, scoped)
		if err != nil {
			return nil, meta, err
		}
		if err := s.rights.verify(ctx, d, meta.Filtered, empty); err != nil {
			return nil, meta, err
		}
		return value, meta, nil
	}
}

func (s *sources) fetch(ctx context.Context, d *dependency, q consul.Query) (value any, empty bool, meta consul.Meta, err error) {
	switch d.kind {
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

// instances reads a service as consul-template shows it to templates. It keeps the
// instances of the last answer: an instance that did not change is the same value.
func (s *sources) instances(d *dependency) func(context.Context, consul.Query) (any, bool, consul.Meta, error) {
	which := consul.InstancesOf{Service: d.name, Tag: d.tag, Mesh: d.kind == kindConnect, Passing: d.passingOnly()}
	all := consul.NewInstances(s.client, which, healthService)
	return func(ctx context.Context, q consul.Query) (any, bool, consul.Meta, error) {
		found, meta, err := all.Read(ctx, q)
		list := make([]*dep.HealthService, 0, len(found))
		for _, i := range found {
			if d.wants(i) {
				list = append(list, i)
			}
		}
		if d.near == "" {
			sort.Stable(dep.ByNodeThenID(list))
		}
		return list, len(found) == 0, meta, err
	}
}

// wants reports whether the state of an instance is among the states that d asks for.
func (d *dependency) wants(i *dep.HealthService) bool {
	return slices.Contains(d.filters, i.Status) || slices.Contains(d.filters, dep.HealthAny)
}

// healthService is consul-template's view of an instance of a service.
func healthService(e *consul.ServiceEntry) *dep.HealthService {
	address := e.Service.Address
	if address == "" {
		address = e.Node.Address
	}
	for _, c := range e.Checks {
		c.CreateIndex, c.ModifyIndex = 0, 0 // a check written again with equal content is not a change
	}
	return &dep.HealthService{
		Node: e.Node.Node, NodeID: e.Node.ID, NodeAddress: e.Node.Address,
		NodeTaggedAddresses: e.Node.TaggedAddresses, NodeMeta: e.Node.Meta,
		ServiceMeta: e.Service.Meta, Address: address, ServiceTaggedAddresses: e.Service.TaggedAddresses,
		ID: e.Service.ID, Name: e.Service.Service, Tags: sortedTags(e.Service.Tags),
		Status: e.Checks.AggregatedStatus(), Checks: e.Checks, Port: e.Service.Port, Weights: e.Service.Weights,
	}
}

func sortedTags(tags []string) dep.ServiceTags {
	sorted := make([]string, 0, len(tags))
	sorted = append(sorted, tags...)
	slices.Sort(sorted)
	return sorted
}

// rights distinguishes an empty answer from one that the token may not see: Consul
// filters silently, for anonymous tokens without even saying so.
type rights struct {
	client *consul.Client

	mu    sync.Mutex
	asked map[consul.Right]time.Time // the granted ones
}

// rightsFor is how long a granted right is taken for granted.
const rightsFor = time.Minute

func newRights(c *consul.Client) *rights {
	return &rights{client: c, asked: map[consul.Right]time.Time{}}
}

// verify returns ErrDenied for an answer that may be short for want of rights.
func (r *rights) verify(ctx context.Context, d *dependency, filtered, empty bool) error {
	right := rightFor(d)
	if filtered {
		return denied(d, right, "Consul left out what the token may not see")
	}
	if !empty {
		r.mu.Lock()
		delete(r.asked, right) // should it become empty, that has to be asked about
		r.mu.Unlock()
		return nil
	}
	if right.Resource == "" || d.scope.datacenter != "" || d.scope.peer != "" {
		return nil
	}
	r.mu.Lock()
	granted := time.Since(r.asked[right]) < rightsFor
	r.mu.Unlock()
	if granted {
		return nil
	}
	ok, err := r.client.Authorize(ctx, right)
	if err != nil {
		return err
	}
	if !ok[0] {
		return denied(d, right, "the answer is empty and the token may not see more")
	}
	r.mu.Lock()
	r.asked[right] = time.Now()
	r.mu.Unlock()
	return nil
}

// rightsAtOnce is the number of rights that Consul answers in one request.
const rightsAtOnce = 64

// confirm notes in refused which of the keys, of one scope and at most
// rightsAtOnce, the token may not read.
func (r *rights) confirm(ctx context.Context, keys []*dependency, refused map[string]error) error {
	if keys[0].scope.datacenter != "" {
		return r.confirmElsewhere(ctx, keys, refused)
	}
	ask := make([]consul.Right, len(keys))
	for i, d := range keys {
		ask[i] = rightFor(d)
	}
	ok, err := r.client.Authorize(ctx, ask...)
	if err != nil {
		return err
	}
	for i, d := range keys {
		if !ok[i] {
			refused[d.id] = denied(d, ask[i], "the token may not see it")
		}
	}
	return nil
}

// confirmElsewhere asks another datacenter, whose rights only its answers tell.
func (r *rights) confirmElsewhere(ctx context.Context, keys []*dependency, refused map[string]error) error {
	for _, d := range keys {
		_, _, err := r.client.KVGet(ctx, d.name, d.scope.query())
		if errors.Is(err, consul.ErrDenied) {
			refused[d.id] = err
		} else if err != nil {
			return err
		}
	}
	return nil
}

func rightFor(d *dependency) consul.Right {
	switch d.kind {
	case kindKey:
		return consul.Right{Resource: "key", Access: "read", Segment: d.name}
	case kindPrefix:
		return consul.Right{Resource: "key", Access: "read", Segment: d.name}
	case kindService, kindConnect:
		return consul.Right{Resource: "service", Access: "read", Segment: d.name}
	case kindNode, kindNodes:
		return consul.Right{Resource: "node", Access: "read", Segment: d.name}
	case kindServices:
		return consul.Right{Resource: "service", Access: "read", Segment: "consul"}
	}
	return consul.Right{}
}

func denied(d *dependency, right consul.Right, what string) error {
	return &consul.Error{
		Op: "read " + string(d.kind), Name: d.name, Class: consul.ErrDenied,
		Err: fmt.Errorf("%s: grant %s:%s on %q", what, right.Resource, right.Access, right.Segment),
	}
}
