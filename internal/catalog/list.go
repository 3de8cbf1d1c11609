package catalog

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jorc/jorc/internal/consul"
)

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
// Errors are those of the client.
func List(ctx context.Context, client *consul.Client, q consul.Query) ([]ServiceSummary, error) {
	names, _, err := client.CatalogServices(ctx, q)
	if err != nil {
		return nil, err
	}
	sorted := slices.Sorted(maps.Keys(names))
	out := make([]ServiceSummary, len(sorted))
	err = forEach(ctx, len(sorted), func(ctx context.Context, i int) error {
		entries, _, err := client.HealthService(ctx, sorted[i], "", false, q)
		if err != nil {
			return err
		}
		out[i] = summarize(sorted[i], names[sorted[i]], entries)
		return nil
	})
	return out, err
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
// are those of the client; consul.ErrNotFound when there is no such node, or
// the token may not see it.
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
