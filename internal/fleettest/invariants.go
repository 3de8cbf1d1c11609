//go:build linux

package fleettest

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
)

// oneVersion: no node is below running_version twice. The index keys follow the
// nodes' own documents within a cycle of the orchestrator.
func oneVersion(keys Keys) error {
	index := map[string][]string{}
	for name := range keys {
		if rest, ok := strings.CutPrefix(name, "running_version/"); ok {
			version, node, _ := strings.Cut(rest, "/")
			index[node] = append(index[node], version)
		}
	}
	for node, versions := range index {
		if len(versions) != 1 {
			slices.Sort(versions)
			return fmt.Errorf("node %s is at versions %v", node, versions)
		}
	}
	return nil
}

// Holders are the nodes that hold slots of a group: the oldest claim, and the nodes
// whose claim records a slot.
func (k Keys) Holders(group string) []string {
	var nodes []string
	oldest, first := uint64(math.MaxUint64), ""
	for name, key := range k {
		rest, ok := strings.CutPrefix(name, "slots/claim/")
		node, rest, _ := strings.Cut(rest, "/")
		if of, _, _ := strings.Cut(rest, "/"); !ok || of != group || key.Session == "" {
			continue
		}
		if key.Created < oldest {
			oldest, first = key.Created, node
		}
		var claim struct{ Holds bool }
		if json.Unmarshal([]byte(key.Value), &claim) == nil && claim.Holds {
			nodes = append(nodes, node)
		}
	}
	if first != "" {
		nodes = append(nodes, first)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// grants are what a host was granted, or its answers.
type grants []struct{ Change, ID, State string }

// of is the one of a change; the zero value if the host has no grant of it.
func (g grants) of(change string) (one struct{ Change, ID, State string }) {
	for _, one := range g {
		if one.Change == change {
			return one
		}
	}
	return one
}

// Granted are the nodes that are out of service for a grant of a rollout and on
// which no operator gave up.
func (k Keys) Granted() []string { return k.open(func(string) string { return "version" }) }

// Leased are the nodes that have a lease on which no operator gave up.
func (k Keys) Leased() []string { return k.open(func(node string) string { return "lease." + node }) }

// open are the nodes that have an open grant of a change on which no operator gave up.
func (k Keys) open(change func(node string) string) []string {
	var nodes []string
	for name, key := range k {
		node, ok := strings.CutPrefix(name, "nodes/")
		var report struct {
			Grants grants `json:"grants"`
		}
		if !ok || json.Unmarshal([]byte(key.Value), &report) != nil {
			continue
		}
		answer := report.Grants.of(change(node))
		if answer.ID == "" || answer.State == "done" {
			continue
		}
		var granted struct {
			Grants grants `json:"grants"`
		}
		_ = json.Unmarshal([]byte(k["host/"+node+"/grants"].Value), &granted) // a damaged one counts as missing
		if grant := granted.Grants.of(change(node)); grant.ID != answer.ID || grant.State != "given up" {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// FewGranted is the invariant that at most limit nodes have a grant.
func FewGranted(limit int) func(Keys) error {
	return func(k Keys) error {
		if granted := k.Granted(); len(granted) > limit {
			return fmt.Errorf("%d nodes have a grant, %d may: %v", len(granted), limit, granted)
		}
		return nil
	}
}

// AtMost is the invariant that at most limit nodes hold slots of a group.
func AtMost(group string, limit int) func(Keys) error {
	return func(k Keys) error {
		if holders := k.Holders(group); len(holders) > limit {
			return fmt.Errorf("%d nodes hold slots of %s, %d may: %v", len(holders), group, limit, holders)
		}
		return nil
	}
}

// maintenance is what the IDs of Consul's maintenance checks begin with.
const (
	nodeMaintenance    = "_node_maintenance"
	serviceMaintenance = "_service_maintenance:"
)

// InMaintenance are the nodes of which anything is in maintenance.
func InMaintenance(checks []Check) []string {
	var nodes []string
	for _, c := range checks {
		if c.CheckID == nodeMaintenance || strings.HasPrefix(c.CheckID, serviceMaintenance) {
			nodes = append(nodes, c.Node)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// FewInMaintenance is the invariant that at most limit nodes are in maintenance.
func FewInMaintenance(limit int) func([]Check) error {
	return func(checks []Check) error {
		if nodes := InMaintenance(checks); len(nodes) > limit {
			return fmt.Errorf("%d nodes are in maintenance, %d may be: %v", len(nodes), limit, nodes)
		}
		return nil
	}
}
