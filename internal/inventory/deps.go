// Package inventory shows the members of a cluster to people and to other programs: as an inventory of Ansible, and as a
// graph of which host requires which, in several formats. It is pure: members go in, text comes out. Begin at Dependencies
// and ForAnsible.
package inventory

import (
	"maps"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/cluster"
)

// Graph is which hosts require which across hosts.
type Graph struct {
	Nodes    []string            // members, sorted
	Services map[string][]string // service → members that provide it, sorted
	Edges    []Edge              // sorted by node and target
	// Stuck are the members whose static configuration can never begin, sorted:
	// what they wait for is provided only by members that wait themselves.
	Stuck []string
	// Cycles are what they wait for in a circle: each begins and ends with the
	// same member.
	Cycles [][]string
}

// GraphDocument is a Graph as JSON has it.
type GraphDocument struct {
	Members  []string            `json:"members"`
	Provides map[string][]string `json:"provides"` // service → members
	Requires []Edge              `json:"requires"`
	Cycles   [][]string          `json:"cycles"`
	Stuck    []string            `json:"stuck"`
}

// Document returns the graph as JSON has it.
func (g Graph) Document() GraphDocument {
	return GraphDocument{append([]string{}, g.Nodes...), g.Services, g.Edges, g.Cycles, g.Stuck}
}

// Edge is one requirement of one member.
type Edge struct {
	Node    string `json:"node"`
	Service string `json:"service"`
	Count   int    `json:"count"`
	For     string `json:"for"`
	// External: no member provides the service; it is taken to come from elsewhere.
	External bool `json:"external"`
}

// addressable: a service is registered whatever its health, and so before its
// host's static configuration; waiting for it blocks no member.
const addressable = "addressable"

// Dependencies builds the graph of members.
func Dependencies(members []cluster.Member) Graph {
	g := Graph{Services: map[string][]string{}, Edges: []Edge{}, Stuck: []string{}, Cycles: [][]string{}}
	for _, m := range members {
		g.Nodes = append(g.Nodes, m.Node)
		for _, s := range slices.Compact(slices.Sorted(slices.Values(m.Provides))) {
			g.Services[s] = append(g.Services[s], m.Node)
		}
	}
	slices.Sort(g.Nodes)
	for _, m := range members {
		for _, r := range m.Requires {
			service := r.Service()
			_, known := g.Services[service]
			e := Edge{Node: m.Node, Service: service, Count: max(1, r.Count), For: r.For, External: !known || strings.Contains(r.Target, "@")}
			if e.For == "" {
				e.For = "functional"
			}
			g.Edges = append(g.Edges, e)
		}
	}
	slices.SortStableFunc(g.Edges, func(a, b Edge) int {
		return strings.Compare(a.Node+"\x00"+a.Service, b.Node+"\x00"+b.Service)
	})
	for _, providers := range g.Services {
		slices.Sort(providers)
	}
	g.findStuck()
	return g
}

// blocks reports whether the edge keeps its member waiting for other members.
func (e Edge) blocks() bool { return !e.External && e.For != addressable }

// findStuck lets every member begin that can, until no further one can: the
// rest waits for one another.
func (g *Graph) findStuck() {
	began := map[string]bool{}
	for again := true; again; {
		again = false
		for _, node := range g.Nodes {
			if !began[node] && g.canBegin(node, began) {
				began[node], again = true, true
			}
		}
	}
	for _, node := range g.Nodes {
		if !began[node] {
			g.Stuck = append(g.Stuck, node)
		}
	}
	g.findCycles(began)
}

func (g *Graph) canBegin(node string, began map[string]bool) bool {
	for _, e := range g.Edges {
		if e.Node == node && e.blocks() && g.ready(e, began) < min(e.Count, len(g.Services[e.Service])) {
			return false
		}
	}
	return true
}

// ready is how many of a service's members have begun. That more are required
// than there are is for 'jorc wait' to report, not a cycle.
func (g *Graph) ready(e Edge, began map[string]bool) int {
	n := 0
	for _, p := range g.Services[e.Service] {
		if began[p] {
			n++
		}
	}
	return n
}

// findCycles finds for every stuck member that is in a circle the first that a
// walk along unmet requirements closes; each circle is returned once.
func (g *Graph) findCycles(began map[string]bool) {
	known := map[string]bool{}
	for _, start := range g.Stuck {
		at := map[string]int{}
		walk := []string{}
		for node := start; node != ""; node = g.waitsFor(node, began) {
			if i, seen := at[node]; seen {
				g.addCycle(walk[i:], known)
				break
			}
			at[node] = len(walk)
			walk = append(walk, node)
		}
	}
}

// waitsFor returns a stuck member that node waits for.
func (g *Graph) waitsFor(node string, began map[string]bool) string {
	for _, e := range g.Edges {
		if e.Node != node || !e.blocks() || g.ready(e, began) >= min(e.Count, len(g.Services[e.Service])) {
			continue
		}
		for _, p := range g.Services[e.Service] {
			if !began[p] {
				return p
			}
		}
	}
	return ""
}

func (g *Graph) addCycle(cycle []string, known map[string]bool) {
	least := slices.Index(cycle, slices.Min(cycle))
	cycle = slices.Concat(cycle[least:], cycle[:least])
	key := strings.Join(cycle, "\x00")
	if known[key] {
		return
	}
	known[key] = true
	g.Cycles = append(g.Cycles, append(cycle, cycle[0]))
}

// External returns the required services that no member provides, sorted.
func (g Graph) External() []string {
	names := map[string]bool{}
	for _, e := range g.Edges {
		if e.External {
			names[e.Service] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// InCycle reports whether a member waits in a circle.
func (g Graph) InCycle(node string) bool {
	return slices.ContainsFunc(g.Cycles, func(c []string) bool { return slices.Contains(c, node) })
}

// Via returns the service for which node waits for provider.
func (g Graph) Via(node, provider string) string {
	for _, e := range g.Edges {
		if e.Node == node && e.blocks() && slices.Contains(g.Services[e.Service], provider) {
			return e.Service
		}
	}
	return ""
}
