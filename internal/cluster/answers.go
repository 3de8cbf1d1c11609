package cluster

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
)

// Answers are what Consul said of a cluster beside the documents of the whole of it, decoded.
type Answers struct {
	Node string // the only one that the answers are about; empty: all
	HostDocuments
	Stages  map[string]kv.Leaf[string] // the documents of stages, by their names below PrefixStages
	Runs    map[string]kv.Leaf[string] // the marks of runs in progress, by id
	Reports map[string]kv.Leaf[Report]
	Catalog map[string]CatalogHost // nodes of the catalog, by name
}

// HostDocuments are the documents below host/, by node.
type HostDocuments struct {
	Members map[string]kv.Leaf[Record]
	Holds   map[string]kv.Leaf[Hold]
	Grants  map[string]kv.Leaf[string]
	Results map[string]kv.Leaf[string]
}

// CatalogHost is what the catalog and the health checks say about one node.
type CatalogHost struct {
	Info    consul.NodeInfo // without services and checks
	Tallies map[string]Tally
	Failing []consul.CheckState
	Signals Signals
}

// CatalogOf puts answers about nodes together: what need asks for. presence is the id of jorc's own service in the cluster.
func CatalogOf(nodes, inventory []consul.NodeInfo, need Need, presence string) map[string]CatalogHost {
	all := make(map[string]CatalogHost, max(len(nodes), len(inventory)))
	for _, n := range nodes {
		h := InCatalog(n)
		if need&(NeedLiveness|NeedInstances) == 0 {
			h.Signals.Gossip = SignalPassing // a failing check would be in the answer
		}
		all[n.Node] = h
	}
	for _, n := range inventory {
		h, known := all[n.Node]
		if !known { // it was registered between the two answers
			h = InCatalog(n)
		}
		all[n.Node] = h.With(n.Services, n.Checks, presence)
	}
	return all
}

// InCatalog returns a node of the catalog of which no check is known yet.
func InCatalog(n consul.NodeInfo) CatalogHost { return CatalogHost{Info: n, Signals: observed()} }

// With returns the node with its services and checks.
func (h CatalogHost) With(services []consul.Instance, checks []consul.CheckState, presence string) CatalogHost {
	for _, check := range checks {
		h.Signals.Add(check, presence)
	}
	h.Tallies, h.Failing = tally(services, checks), failing(checks)
	h.Info.Services, h.Info.Checks = nil, nil
	return h
}

// Take fills in what answers say of the control, stages, runs and hosts. Hosts that are not among changed are those of
// before; nil: all are new.
func (s *State) Take(a Answers, before *State, changed map[string]bool) {
	s.addHolds(a)
	s.Stages, s.ActiveRuns = StageDocumentsOf(a.Stages), entries(a.Runs)
	if before == nil || changed == nil || !s.Leaders.Equal(before.Leaders) {
		s.Hosts = make(map[string]*Host, len(a.Members))
		s.addHosts(a, slices.Values(a.nodes()))
		return
	}
	for key, err := range before.Damaged {
		if node, ok := NodeOf(key); ok && !changed[node] && !strings.HasSuffix(key, EndHold) {
			s.Damaged[key] = err
		}
	}
	s.Hosts, s.nodes = before.Hosts, before.nodes
	if len(changed) > 0 {
		s.Hosts = maps.Clone(before.Hosts)
		s.addHosts(a, maps.Keys(changed))
		for node := range changed {
			if was, is := before.Hosts[node], s.Hosts[node]; (was != nil && was.Member) != (is != nil && is.Member) {
				s.nodes = nil
			}
		}
	}
	if s.nodes == nil {
		s.nodes = s.Nodes()
	}
}

// nodes returns the names of all hosts that have a document, and of the one that
// the answers are about.
func (a Answers) nodes() []string {
	all := make(map[string]bool, len(a.Members))
	add := func(node string) { all[node] = true }
	eachKey(a.Members, add)
	eachKey(a.Grants, add)
	eachKey(a.Results, add)
	eachKey(a.Reports, add)
	if a.Node != "" {
		add(a.Node)
	}
	return slices.Collect(maps.Keys(all))
}

func eachKey[T any](leaves map[string]kv.Leaf[T], do func(string)) {
	for name := range leaves {
		do(name)
	}
}

// addHolds takes the holds of hosts into the control.
func (s *State) addHolds(a Answers) {
	s.Stored.Nodes = nil
	for node, leaf := range a.Holds {
		hold, err := ReadableHold(leaf)
		if err != nil {
			s.Damaged[HoldKey(node)] = err
		}
		if s.Stored.Nodes == nil {
			s.Stored.Nodes = make(map[string]Hold, len(a.Holds))
		}
		s.Stored.Nodes[node] = hold
	}
	s.Control = s.Stored.At(time.Now())
}

// StageDocumentsOf puts the documents of each stage together.
func StageDocumentsOf(leaves map[string]kv.Leaf[string]) map[string]StageDocuments {
	if len(leaves) == 0 {
		return nil
	}
	all := make(map[string]StageDocuments, len(leaves)/2)
	for name, leaf := range leaves {
		stage, document, _ := strings.Cut(name, "/")
		docs := all[stage]
		switch document {
		case endState:
			docs.State = leaf.Entry
		case endStops:
			docs.Stops = leaf.Entry
		default:
			continue
		}
		all[stage] = docs
	}
	return all
}

// entries returns the entries of leaves, which are text and so can be read.
func entries(leaves map[string]kv.Leaf[string]) map[string]kv.Entry[string] {
	if len(leaves) == 0 {
		return nil
	}
	all := make(map[string]kv.Entry[string], len(leaves))
	for name, leaf := range leaves {
		all[name] = leaf.Entry
	}
	return all
}

// ReadableHold returns the hold of a host; one that cannot be read, for which err says
// why, holds the host.
func ReadableHold(leaf kv.Leaf[Hold]) (hold Hold, err error) {
	if leaf.Err != nil {
		return Hold{Reason: "its hold cannot be read"}, leaf.Err
	}
	return leaf.Value, nil
}

// addHosts makes the hosts of nodes from the answers. A node without a document is
// not among the hosts, unless the answers are about it.
func (s *State) addHosts(a Answers, nodes iter.Seq[string]) {
	for node := range nodes {
		member, isMember := a.Members[node]
		grants, granted := a.Grants[node]
		results, ran := a.Results[node]
		report, reported := a.Reports[node]
		if !isMember && !granted && !ran && !reported && node != a.Node {
			delete(s.Hosts, node)
			continue
		}
		known := a.Catalog[node]
		h := &Host{
			Node: node, Member: isMember, Reported: reported, Grants: grants.Entry, Results: results.Entry,
			Address: known.Info.Address, Datacenter: known.Info.Datacenter, NodeMeta: known.Info.Meta, Services: known.Tallies, Failing: known.Failing,
		}
		if isMember && member.Err != nil {
			s.Damaged[MemberKey(node)] = member.Err
		} else {
			h.Record = member.Value
		}
		if reported && report.Err != nil {
			s.Damaged[ReportKey(node)] = report.Err
		} else {
			h.Report = report.Value
		}
		h.Index = report.Index
		if s.Need&(NeedChecks|NeedInstances) != 0 {
			if known.Signals.Maintenance == "" { // it is not in the catalog
				known.Signals = Signals{Gossip: SignalNone, Agent: SignalNone, Probe: ProbeNone, Maintenance: MaintenanceNone}
			}
			h.Condition = Assess(known.Signals)
		}
		h.roles = slices.Clip(s.Leaders.rolesOf(node, h.Record.Roles))
		s.Hosts[node] = h
	}
}

// Need says which parts of a State a caller needs beside the member records and
// who leads.
type Need uint

// Each part costs at most one request, whatever the number of hosts; the
// documents of the cluster come with who leads, all parts of the catalog with
// one request, and all parts of health with another.
const (
	NeedCatalog    Need = 1 << iota // Address, NodeMeta
	NeedDatacenter                  // Datacenter
	NeedHealth                      // Condition.Health, Condition.Maintenance
	NeedAgent                       // Condition.Agent
	NeedServices                    // the names of Services
	NeedReports                     // Report
	NeedLiveness                    // Condition.Liveness; without it an unmonitored host counts as up
	NeedInstances                   // Services with their health, and all of Condition
	NeedProfile                     // Profile
	NeedControl                     // Control
	NeedVersion                     // Desired, Rollout
	NeedChanges                     // Changes

	// NeedAll is what fields of members need.
	NeedAll = NeedCatalog | NeedDatacenter | NeedHealth | NeedAgent | NeedServices | NeedReports
	// NeedState is everything.
	NeedState = NeedAll | NeedLiveness | NeedInstances | NeedProfile | NeedControl | NeedVersion

	// NeedChecks is what follows from checks, and NeedNodes what needs the nodes of the catalog.
	NeedChecks = NeedHealth | NeedAgent | NeedLiveness
	NeedNodes  = NeedCatalog | NeedDatacenter | NeedChecks
)
