package fleettest

import (
	"encoding/json"
	"fmt"
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
			return fmt.Errorf("node %s is at versions %v", node, versions)
		}
	}
	return nil
}

// Holders are the nodes that hold slots of a group.
func (k Keys) Holders(group string) []string {
	var doc struct {
		Holders map[string]json.RawMessage `json:"holders"`
	}
	if json.Unmarshal([]byte(k["slots/"+group].Value), &doc) != nil {
		return nil
	}
	var nodes []string
	for name := range doc.Holders {
		node, _, _ := strings.Cut(name, "/")
		nodes = append(nodes, node)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// AtMost is the invariant that no more than limit nodes hold slots of a group.
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

// FewInMaintenance is the invariant that no more than limit nodes are in
// maintenance.
func FewInMaintenance(limit int) func([]Check) error {
	return func(checks []Check) error {
		if nodes := InMaintenance(checks); len(nodes) > limit {
			return fmt.Errorf("%d nodes are in maintenance, %d may be: %v", len(nodes), limit, nodes)
		}
		return nil
	}
}
