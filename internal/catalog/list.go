package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"

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
// Services of which Consul's HTTP API cannot be asked, because their names
// cannot be part of a path, are left out; their names are returned, too.
// Errors are those of the client.
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

// addressable reports whether a service's name, as part of a path, stands for
// that service: "../x" would be another endpoint.
func addressable(name string) bool {
	return path.Clean("/"+name) == "/"+name && !strings.ContainsFunc(name, unicode.IsControl)
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
