package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/consul"
)

// Level is the state that an instance must have reached to be found.
type Level int

// Levels. Waits, results and exports give them the same meaning.
const (
	// Functional: Consul's DNS returns it, since it is passing or warning. The zero
	// Level, and the default.
	Functional Level = iota
	// Addressable: it is registered, with any health.
	Addressable
	// Reachable: it is functional and accepts a TCP connection. Only waits find out.
	Reachable
)

// String returns the level's name, as ParseLevel reads it.
func (l Level) String() string {
	switch l {
	case Addressable:
		return "addressable"
	case Reachable:
		return "reachable"
	default:
		return "functional"
	}
}

// ParseLevel reads a Level; empty means Functional.
func ParseLevel(s string) (Level, error) {
	switch s {
	case "", "functional":
		return Functional, nil
	case "addressable":
		return Addressable, nil
	case "reachable":
		return Reachable, nil
	}
	return 0, fmt.Errorf(`level %q must be "addressable", "functional" or "reachable"`, s)
}

// Includes reports whether an instance of that health has reached the level, as
// far as its health alone decides.
func (l Level) Includes(status string) bool {
	return l == Addressable || status == consul.HealthPassing || status == consul.HealthWarning
}

// fetchParallel limits the concurrent requests of Fetch.
const fetchParallel = 16

// ServiceInstance is one instance of a service in results and exports. Meta does
// not contain jorc's own keys.
type ServiceInstance struct {
	Service         string                           `json:"service"`
	ID              string                           `json:"id"`
	Node            string                           `json:"node"`
	NodeAddress     string                           `json:"node_address"`
	Datacenter      string                           `json:"datacenter"`
	Address         string                           `json:"address"` // the service's, or else the node's
	Port            int                              `json:"port"`
	Status          string                           `json:"status"` // passing, warning, critical, maintenance
	Tags            []string                         `json:"tags"`
	Meta            map[string]string                `json:"meta"`
	TaggedAddresses map[string]consul.ServiceAddress `json:"-"`
	Interfaces      map[string]string                `json:"interfaces"` // name of a tagged address → address
}

// NodeName returns the DNS name of the instance's node.
func (i ServiceInstance) NodeName() string {
	return i.Node + ".node." + i.Datacenter + ".consul"
}

// Snapshot is a copy of the catalog: the names of all services, and the
// instances of one level, in order of service, node and id.
type Snapshot struct {
	Services  []string
	Instances []ServiceInstance
	// LeftOut are the names of services that Consul's HTTP API cannot read.
	LeftOut []string
}

// Fetch reads a snapshot of the instances that have reached level: one request for the names and one per service, 16 at
// a time. Consul's documented API has no endpoint that returns addresses with
// health for more than one service. Errors are those of the client;
// consul.ErrDenied also if the token does not see everything, because hidden
// services must not look deleted.
func Fetch(ctx context.Context, client *consul.Client, level Level, q consul.Query) (*Snapshot, error) {
	names, meta, err := client.CatalogServices(ctx, q)
	switch {
	case err != nil:
		return nil, err
	case meta.Filtered:
		return nil, fmt.Errorf("list services: the token does not see all of them (it needs service:read and node:read): %w", consul.ErrDenied)
	case len(names) == 0:
		// Consul's servers are a service themselves.
		return nil, fmt.Errorf("list services: the catalog looks empty, without Consul's own service; the token may lack service:read: %w", consul.ErrDenied)
	}
	s := &Snapshot{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if addressable(name) {
			s.Services = append(s.Services, name)
		} else {
			s.LeftOut = append(s.LeftOut, name)
		}
	}
	found := make([][]ServiceInstance, len(s.Services))
	err = forEach(ctx, len(found), func(ctx context.Context, i int) (err error) {
		found[i], err = instancesOf(ctx, client, s.Services[i], "", level, q)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.Instances = slices.Concat(found...)
	return s, nil
}

// forEach calls do for 0 to n-1, fetchParallel at a time, until the first error.
func forEach(ctx context.Context, n int, do func(context.Context, int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(fetchParallel)
	for i := range n {
		g.Go(func() error { return do(ctx, i) })
	}
	return g.Wait()
}

// Resolve reads the instances of a service that have reached level, with the tag
// if it is not empty. Errors are those of the
// client; without instances, consul.ErrDenied if the token may not read the
// service, and otherwise consul.ErrNotFound.
func Resolve(ctx context.Context, client *consul.Client, name, tag string, level Level, q consul.Query) ([]ServiceInstance, error) {
	all, err := instancesOf(ctx, client, name, tag, level, q)
	if err != nil {
		return nil, err
	}
	if len(all) > 0 {
		return all, nil
	}
	may, err := client.Authorize(ctx, consul.Right{Resource: "service", Access: "read", Segment: name})
	switch {
	case err != nil:
		return nil, err
	case !may[0]:
		return nil, fmt.Errorf("service %q: the token lacks service:read on it: %w", name, consul.ErrDenied)
	}
	what := "healthy instances"
	if level == Addressable {
		what = "instances"
	}
	return nil, fmt.Errorf("service %q: no %s: %w", name, what, consul.ErrNotFound)
}

func instancesOf(ctx context.Context, client *consul.Client, name, tag string, level Level, q consul.Query) ([]ServiceInstance, error) {
	entries, meta, err := client.HealthService(ctx, name, tag, false, q)
	if err != nil {
		return nil, err
	}
	if meta.Filtered {
		return nil, fmt.Errorf("service %q: the token does not see all instances (it needs service:read and node:read): %w", name, consul.ErrDenied)
	}
	out := make([]ServiceInstance, 0, len(entries))
	for _, e := range entries {
		if status := e.Checks.AggregatedStatus(); level.Includes(status) {
			out = append(out, newInstance(e.Node, e.Service, status))
		}
	}
	slices.SortFunc(out, func(a, b ServiceInstance) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.ID, b.ID))
	})
	return out, nil
}

func newInstance(node *consul.Node, s *consul.AgentService, status string) ServiceInstance {
	i := ServiceInstance{
		Service: s.Service, ID: s.ID, Node: node.Node, NodeAddress: node.Address, Datacenter: node.Datacenter, Address: s.Address, Port: s.Port,
		Status: status, Tags: slices.Sorted(slices.Values(s.Tags)), Meta: map[string]string{}, TaggedAddresses: s.TaggedAddresses,
		Interfaces: map[string]string{},
	}
	if i.Address == "" {
		i.Address = node.Address
	}
	if i.Tags == nil {
		i.Tags = []string{}
	}
	for k, v := range s.Meta {
		if k != MetaOwner && k != MetaHash {
			i.Meta[k] = v
		}
	}
	for name, a := range s.TaggedAddresses {
		if !automatic(name, a, s) {
			i.Interfaces[name] = a.Address
		}
	}
	if len(i.Interfaces) == 0 {
		i.Interfaces["lan"] = i.Address
	}
	return i
}

// automatic reports whether Consul added the tagged address itself.
func automatic(name string, a consul.ServiceAddress, s *consul.AgentService) bool {
	switch name {
	case "lan_ipv4", "lan_ipv6", "wan_ipv4", "wan_ipv6":
		return a.Address == s.Address && a.Port == s.Port
	}
	return name == "virtual" || strings.HasPrefix(name, "consul-virtual")
}

// compareAddresses orders IP addresses by number, before everything else.
func compareAddresses(a, b string) int {
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	switch {
	case errX == nil && errY == nil:
		return x.Compare(y)
	case errX == nil:
		return -1
	case errY == nil:
		return 1
	default:
		return cmp.Compare(a, b)
	}
}

// ServiceSummary is one service of the catalog and the health of its instances.
type ServiceSummary struct {
	Service     string   `json:"service"`
	Instances   int      `json:"instances"`
	Passing     int      `json:"passing"`
	Warning     int      `json:"warning"`
	Critical    int      `json:"critical"`
	Maintenance int      `json:"maintenance"`
	Tags        []string `json:"tags"`
}

// List reads all services that the token may see, in order of their names.
// Services that Consul's HTTP API cannot read, because their names cannot be
// part of a path, are left out; leftOut has their names. Errors are those of the
// client.
func List(ctx context.Context, client *consul.Client, q consul.Query) (all []ServiceSummary, leftOut []string, err error) {
	names, _, err := client.CatalogServices(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	sorted := slices.Sorted(maps.Keys(names))
	answers := make([]*ServiceSummary, len(sorted)) // nil: left out
	err = forEach(ctx, len(sorted), func(ctx context.Context, i int) error {
		if !addressable(sorted[i]) {
			return nil
		}
		entries, _, err := client.HealthService(ctx, sorted[i], "", false, q)
		switch {
		case errors.Is(err, consul.ErrRefused), errors.Is(err, consul.ErrNotFound):
			return nil
		case err != nil:
			return err
		}
		s := summarize(sorted[i], names[sorted[i]], entries)
		answers[i] = &s
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	all = make([]ServiceSummary, 0, len(sorted))
	for i, s := range answers {
		if s == nil {
			leftOut = append(leftOut, sorted[i])
			continue
		}
		all = append(all, *s)
	}
	return all, leftOut, nil
}

// addressable reports whether a service's name, as part of a path, names that
// service: "../x" is another endpoint, and Consul refuses what cannot be printed.
func addressable(name string) bool {
	return path.Clean("/"+name) == "/"+name && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
}

func summarize(name string, tags []string, entries []*consul.ServiceEntry) ServiceSummary {
	s := ServiceSummary{Service: name, Instances: len(entries), Tags: append([]string{}, tags...)}
	slices.Sort(s.Tags)
	for _, e := range entries {
		switch e.Checks.AggregatedStatus() {
		case consul.HealthPassing:
			s.Passing++
		case consul.HealthWarning:
			s.Warning++
		case consul.HealthMaint:
			s.Maintenance++
		default:
			s.Critical++
		}
	}
	return s
}

// ListNode reads the instances on one node, in order of service and id. Errors
// are those of the client; consul.ErrNotFound if the node does not exist or the
// token may not see it.
func ListNode(ctx context.Context, client *consul.Client, node string, q consul.Query) ([]ServiceInstance, error) {
	at, _, err := client.CatalogNode(ctx, node, q)
	if err != nil {
		return nil, err
	}
	if at == nil || at.Node == nil {
		return nil, fmt.Errorf("node %q: %w", node, consul.ErrNotFound)
	}
	checks, _, err := client.HealthNode(ctx, node, q)
	if err != nil {
		return nil, err
	}
	out := make([]ServiceInstance, 0, len(at.Services))
	for _, s := range at.Services {
		var own consul.HealthChecks
		for _, c := range checks {
			if c.ServiceID == s.ID || c.ServiceID == "" {
				own = append(own, c)
			}
		}
		out = append(out, newInstance(at.Node, s, own.AggregatedStatus()))
	}
	slices.SortFunc(out, func(a, b ServiceInstance) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.ID, b.ID))
	})
	return out, nil
}
