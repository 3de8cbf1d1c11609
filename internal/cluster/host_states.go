package cluster

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/kv"
)

// HostState is the state of a host in one category.
type HostState struct {
	Host     string    `json:"host"`
	Category string    `json:"category"`
	State    string    `json:"state"`
	Since    time.Time `json:"since,omitzero"`
	Version  string    `json:"version"` // that it is about
	Detail   string    `json:"detail"`
	LogURL   string    `json:"log_url"`
	Suspect  string    `json:"suspect"`
}

// States reads the states of node, or of all nodes when it is empty, in order
// of hosts and categories. Documents that cannot be read do not hide others:
// unreadable says why. It returns what Report returns.
func (c *Cluster) HostStates(ctx context.Context, node string) (all []HostState, unreadable []error, err error) {
	if node != "" {
		d, _, err := c.Report(ctx, node)
		return statesOf(node, d), nil, err
	}
	leaves, err := both(ctx,
		func(ctx context.Context) error { return c.mayRead(ctx, PrefixReports) },
		func(ctx context.Context) (map[string]kv.Leaf[Report], error) { return c.reports.List(ctx) })
	if err != nil {
		return nil, nil, err
	}
	all = []HostState{}
	for _, host := range slices.Sorted(maps.Keys(leaves)) {
		if err := leaves[host].Err; err != nil {
			unreadable = append(unreadable, err)
		}
		all = append(all, statesOf(host, leaves[host].Value)...)
	}
	return all, unreadable, nil
}

func statesOf(host string, d Report) []HostState {
	all := []HostState{}
	for category, s := range d.States {
		all = append(all, HostState{host, category, s.State, s.Since, s.Version, s.Detail, s.LogURL, s.Suspect})
	}
	slices.SortFunc(all, func(a, b HostState) int {
		return cmp.Or(strings.Compare(a.Host, b.Host), strings.Compare(a.Category, b.Category))
	})
	return all
}
