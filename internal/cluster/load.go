package cluster

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
)

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
	needChanges                     // Changes

	// NeedAll is what fields of members need.
	NeedAll = NeedCatalog | NeedDatacenter | NeedHealth | NeedAgent | NeedServices | NeedReports
	// NeedState is everything.
	NeedState = NeedAll | NeedLiveness | NeedInstances | NeedProfile | NeedControl | NeedVersion

	needChecks = NeedHealth | NeedAgent | NeedLiveness
	needNodes  = NeedCatalog | NeedDatacenter | needChecks
)

// answers are what Consul said, decoded.
type answers struct {
	node      string     // the only one that the answers are about; empty: all
	documents *kv.Result // those of the whole cluster
	hostDocuments
	stages  map[string]kv.Leaf[string] // the documents of stages, by their names below PrefixStages
	runs    map[string]kv.Leaf[string] // the marks of runs in progress, by id
	reports map[string]kv.Leaf[Report]
	catalog map[string]catalogHost // nodes of the catalog, by name
}

// hostDocuments are the documents below host/, by node.
type hostDocuments struct {
	members map[string]kv.Leaf[Record]
	holds   map[string]kv.Leaf[Hold]
	grants  map[string]kv.Leaf[string]
	results map[string]kv.Leaf[string]
}

// catalogHost is what the catalog and the health checks say about one node.
type catalogHost struct {
	consul.NodeInfo
	services map[string]Tally
	failing  []consul.CheckState
	signals  Signals
}

// Load reads the state of the cluster with at most seven requests. Documents
// that cannot be read are in State.Damaged. It returns ErrLayout with NeedProfile,
// or a class of package consul; consul.ErrDenied also when the token does not see everything.
func (c *Cluster) Load(ctx context.Context, need Need) (State, error) {
	var a answers
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		pairs, err := c.store.List(ctx, PrefixHosts)
		a.hostDocuments = c.decodeHosts(pairs)
		return err
	})
	g.Go(func() (err error) { a.documents, err = c.get(need, "").Commit(ctx); return err })
	if need&NeedReports != 0 {
		g.Go(func() (err error) { a.reports, err = c.reports.List(ctx); return err })
	}
	g.Go(func() (err error) { a.catalog, err = c.readCatalog(ctx, need); return err })
	if err := g.Wait(); err != nil {
		return State{}, err
	}
	return c.state(a, need, nil, nil)
}

// readCatalog reads nodes, services and checks as far as need asks for them.
func (c *Cluster) readCatalog(ctx context.Context, need Need) (map[string]catalogHost, error) {
	var nodes, inventory []consul.NodeInfo
	var checks []consul.CheckState
	var services []consul.ServiceHosts
	q := consul.Query{Consistent: c.consistent}
	g, ctx := errgroup.WithContext(ctx)
	if need&(needNodes|NeedInstances) != 0 {
		g.Go(func() (err error) { nodes, err = whole(c.client.CatalogHosts(ctx, q)); return err })
	}
	// The inventory is as long as all other answers together, and Consul writes it
	// with one processor.
	switch {
	case need&NeedInstances != 0:
		g.Go(func() (err error) { inventory, err = whole(c.client.Inventory(ctx, q)); return err })
	default:
		if need&NeedServices != 0 {
			g.Go(func() (err error) { services, err = whole(c.client.ServiceHosts(ctx, q)); return err })
		}
		if need&needChecks != 0 {
			q := q
			q.Filter = checksFor(need, catalog.PresenceID(c.name))
			g.Go(func() (err error) { checks, err = whole(c.client.CheckStates(ctx, q)); return err })
		}
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	all := c.catalogHosts(nodes, inventory, need)
	for _, check := range checks {
		if h, ok := all[check.Node]; ok {
			h.signals.add(check, catalog.PresenceID(c.name))
			all[check.Node] = h
		}
	}
	for _, service := range services {
		for _, node := range service.Nodes {
			h := all[node]
			if h.services == nil {
				h.services = map[string]Tally{}
			}
			h.services[service.Service] = Tally{}
			all[node] = h
		}
	}
	return all, nil
}

// catalogHosts puts the answers about nodes together.
func (c *Cluster) catalogHosts(nodes, inventory []consul.NodeInfo, need Need) map[string]catalogHost {
	all := make(map[string]catalogHost, max(len(nodes), len(inventory)))
	for _, n := range nodes {
		h := catalogHost{NodeInfo: n, signals: observed()}
		if need&(NeedLiveness|NeedInstances) == 0 {
			h.signals.Gossip = SignalPassing // a failing check would be in the answer
		}
		all[n.Node] = h
	}
	for _, n := range inventory {
		h, known := all[n.Node]
		if !known { // it was registered between the two answers
			h = catalogHost{NodeInfo: n, signals: observed()}
		}
		h.add(n, catalog.PresenceID(c.name))
		all[n.Node] = h
	}
	return all
}

// add counts the services and the checks of n; presence is the id of jorc's own
// service in the cluster.
func (h *catalogHost) add(n consul.NodeInfo, presence string) {
	for _, check := range n.Checks {
		h.signals.add(check, presence)
	}
	h.services, h.failing = tally(n.Services, n.Checks), failing(n.Checks)
	h.NodeInfo.Services, h.NodeInfo.Checks = nil, nil
}

// checksOf reads the checks of one node.
func (c *Cluster) checksOf(ctx context.Context, node string) ([]consul.CheckState, error) {
	all, err := whole(c.client.HealthNode(ctx, node, consul.Query{Consistent: c.consistent}))
	checks := make([]consul.CheckState, 0, len(all))
	for _, h := range all {
		checks = append(checks, consul.CheckState{
			Node: node, CheckID: h.CheckID, Status: h.Status, Notes: h.Notes, ServiceID: h.ServiceID, ServiceName: h.ServiceName,
		})
	}
	return checks, err
}

// LoadHost reads the state as Load does, but of one host: what is read does not
// grow with their number. A node that does not exist at all is a host that is
// absent.
func (c *Cluster) LoadHost(ctx context.Context, node string, need Need) (State, error) {
	a := answers{node: node}
	q := consul.Query{Consistent: c.consistent}
	info := consul.NodeInfo{Node: node}
	var checks []consul.CheckState
	known := false
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { a.documents, err = c.get(need, node).Commit(ctx); return err })
	g.Go(func() error {
		pairs, err := c.store.List(ctx, HostPrefix(node))
		a.hostDocuments = c.decodeHosts(pairs)
		return err
	})
	if need&(needNodes|NeedServices|NeedInstances) != 0 {
		g.Go(func() error {
			n, err := whole(c.client.CatalogNode(ctx, node, q))
			if err != nil || n == nil || n.Node == nil {
				return err
			}
			known = true
			info.Address, info.Datacenter, info.Meta = n.Node.Address, n.Node.Datacenter, n.Node.Meta
			for _, service := range n.Services {
				info.Services = append(info.Services, consul.Instance{ID: service.ID, Service: service.Service})
			}
			return nil
		})
	}
	if need&(needChecks|NeedInstances) != 0 {
		g.Go(func() (err error) { checks, err = c.checksOf(ctx, node); return err })
	}
	if err := g.Wait(); err != nil {
		return State{}, err
	}
	if known {
		info.Checks = checks
		a.catalog = c.catalogHosts(nil, []consul.NodeInfo{info}, NeedInstances)
	}
	a.reports = map[string]kv.Leaf[Report]{}
	if need&NeedReports != 0 {
		report, err := leafOf(c.reports.At(node).From(a.documents))
		if err != nil {
			return State{}, err
		}
		if report.Exists {
			a.reports[node] = report
		}
	}
	return c.state(a, need, nil, nil)
}

// leafOf turns a document that cannot be read into a leaf that says so.
func leafOf[T any](e kv.Entry[T], err error) (kv.Leaf[T], error) {
	if unreadable(err) {
		return kv.Leaf[T]{Entry: e, Err: err}, nil
	}
	return kv.Leaf[T]{Entry: e}, err
}

// get reads the documents of the whole cluster, and those of node unless it is
// empty, at one moment.
func (c *Cluster) get(need Need, node string) *kv.Txn {
	t := c.store.Txn().Get(KeyLeaders)
	for _, part := range []struct {
		need Need
		keys []string
	}{{NeedProfile, []string{KeyProfile, KeyLayout}}, {NeedControl, []string{KeyControl}}, {NeedVersion, []string{KeyDesired, KeyVersion, KeyVersionState}}, {needChanges, []string{KeyChanges}}} {
		if need&part.need != 0 {
			for _, key := range part.keys {
				t.Get(key)
			}
		}
	}
	if node != "" && need&NeedReports != 0 {
		t.Get(ReportKey(node))
	}
	return t
}

// state puts the answers together. It returns consul.ErrDenied for a document
// that the token may not read, and ErrLayout. Documents of the whole cluster that
// are as they were in before are not decoded again, and hosts that are not among
// changed are those of before; nil: everything is new.
func (c *Cluster) state(a answers, need Need, before *State, changed map[string]bool) (State, error) {
	s := State{Cluster: c.name, need: need, documents: a.documents, Damaged: map[string]error{}, Indexes: map[string]uint64{}}
	if err := c.decode(&s, a.documents, need, before); err != nil {
		return State{}, err
	}
	s.addHolds(a)
	s.Stages, s.ActiveRuns = stageDocuments(a.stages), entries(a.runs)
	if before == nil || changed == nil || !s.Leaders.Equal(before.Leaders) {
		s.Hosts = make(map[string]*Host, len(a.members))
		s.addHosts(a, slices.Values(a.nodes()))
		return s, nil
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
	return s, nil
}

// decodeHosts reads the documents below host/.
func (c *Cluster) decodeHosts(pairs consul.KVPairs) hostDocuments {
	text := kv.NewTextTree(c.store, PrefixHosts)
	return hostDocuments{
		members: c.members.Decode(pairs), holds: c.holds.Decode(pairs),
		grants: text.Ending(EndGrants).Decode(pairs), results: text.Ending(EndResults).Decode(pairs),
	}
}

// nodes returns the names of all hosts that have a document, and of the one that
// the answers are about.
func (a answers) nodes() []string {
	all := make(map[string]bool, len(a.members))
	add := func(node string) { all[node] = true }
	eachKey(a.members, add)
	eachKey(a.grants, add)
	eachKey(a.results, add)
	eachKey(a.reports, add)
	if a.node != "" {
		add(a.node)
	}
	return slices.Collect(maps.Keys(all))
}

func eachKey[T any](leaves map[string]kv.Leaf[T], do func(string)) {
	for name := range leaves {
		do(name)
	}
}

// addHolds takes the holds of hosts into the control.
func (s *State) addHolds(a answers) {
	s.stored.Nodes = nil
	for node, leaf := range a.holds {
		hold, err := readableHold(leaf)
		if err != nil {
			s.Damaged[HoldKey(node)] = err
		}
		if s.stored.Nodes == nil {
			s.stored.Nodes = make(map[string]Hold, len(a.holds))
		}
		s.stored.Nodes[node] = hold
	}
	s.Control = s.stored.At(time.Now())
}

// StageDocuments reads the documents of the stages, with one request. It returns a class
// of package consul.
func (c *Cluster) StageDocuments(ctx context.Context) (map[string]StageDocuments, error) {
	all, err := kv.NewTextTree(c.store, PrefixStages).List(ctx)
	return stageDocuments(all), err
}

// stageDocuments puts the documents of each stage together.
func stageDocuments(leaves map[string]kv.Leaf[string]) map[string]StageDocuments {
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

// readableHold returns the hold of a host; one that cannot be read, for which err says
// why, holds the host.
func readableHold(leaf kv.Leaf[Hold]) (hold Hold, err error) {
	if leaf.Err != nil {
		return Hold{Reason: "its hold cannot be read"}, leaf.Err
	}
	return leaf.Value, nil
}

// addHosts makes the hosts of nodes from the answers. A node without a document is
// not among the hosts, unless the answers are about it.
func (s *State) addHosts(a answers, nodes iter.Seq[string]) {
	for node := range nodes {
		member, isMember := a.members[node]
		grants, granted := a.grants[node]
		results, ran := a.results[node]
		report, reported := a.reports[node]
		if !isMember && !granted && !ran && !reported && node != a.node {
			delete(s.Hosts, node)
			continue
		}
		known := a.catalog[node]
		h := &Host{
			Node: node, Member: isMember, Reported: reported, Grants: grants.Entry, Results: results.Entry,
			Address: known.Address, Datacenter: known.Datacenter, NodeMeta: known.Meta, Services: known.services, Failing: known.failing,
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
		if s.need&(needChecks|NeedInstances) != 0 {
			if known.signals.Maintenance == "" { // it is not in the catalog
				known.signals = Signals{Gossip: SignalNone, Agent: SignalNone, Probe: ProbeNone, Maintenance: MaintenanceNone}
			}
			h.Condition = Assess(known.signals)
		}
		h.roles = slices.Clip(s.Leaders.rolesOf(node, h.Record.Roles))
		s.Hosts[node] = h
	}
}

// decode reads the documents of the whole cluster.
func (c *Cluster) decode(s *State, r *kv.Result, need Need, before *State) error {
	if before == nil {
		before = &State{}
	}
	if err := document(s, r, c.leaders, &s.Leaders, before, before.Leaders); err != nil {
		return err
	}
	if need&NeedProfile != 0 {
		if err := c.layoutOf(r); err != nil {
			return err
		}
		if err := document(s, r, c.profile, &s.Profile, before, before.Profile); err != nil {
			return err
		}
		s.Exists = s.Indexes[KeyProfile] != 0
	}
	if need&NeedControl != 0 {
		if err := document(s, r, c.control, &s.stored, before, before.stored); err != nil {
			return err
		}
	}
	if need&needChanges != 0 {
		log, err := leafOf(c.changes.From(r))
		if errors.Is(err, consul.ErrDenied) { // the rest is of use without it
			log.Err, err = err, nil
		}
		if err != nil {
			return err
		}
		if s.Changes = log.Value; log.Err != nil {
			s.Changes, s.Damaged[KeyChanges] = AuditLog{}, log.Err
		}
	}
	if need&NeedVersion == 0 {
		return nil
	}
	if err := document(s, r, kv.NewText(c.store, KeyDesired), &s.Desired, before, before.Desired); err != nil {
		return err
	}
	if s.Desired = strings.TrimSpace(s.Desired); s.Desired != "" && CheckVersion(s.Desired) != nil {
		s.Desired, s.Damaged[KeyDesired] = "", fmt.Errorf("key %q: %w: not a version", c.store.Path(KeyDesired), kv.ErrDamaged)
	}
	for key, to := range map[string]*kv.Entry[string]{KeyVersion: &s.Rollout, KeyVersionState: &s.RolloutState} {
		e, err := kv.NewText(c.store, key).From(r)
		if err != nil {
			return err
		}
		*to, s.Indexes[key] = e, e.Index
	}
	return nil
}

// document reads one document into value; was is its value in before, where it
// still counts if the index is the same.
func document[T any](s *State, r *kv.Result, d kv.Doc[T], value *T, before *State, was T) error {
	if index := r.Index(d.Key()); index != 0 && index == before.Indexes[d.Key()] && before.Damaged[d.Key()] == nil {
		s.Indexes[d.Key()], *value = index, was
		return nil
	}
	leaf, err := leafOf(d.From(r))
	if err != nil {
		return err
	}
	if leaf.Exists {
		s.Indexes[d.Key()] = leaf.Index
	}
	if leaf.Err != nil {
		s.Damaged[d.Key()] = leaf.Err
		return nil
	}
	*value = leaf.Value
	return nil
}

// checksFor is the filter, in Consul's own language, for the checks that can
// make a difference: the ones that do not pass, and the ones that an agent's state or
// a host's liveness follow from. In large clusters that is far less than all.
func checksFor(need Need, presence string) string {
	filter := "Status != " + strconv.Quote(consul.HealthPassing)
	if need&NeedAgent != 0 {
		filter += " or ServiceID == " + strconv.Quote(presence)
	}
	if need&NeedLiveness != 0 {
		filter += " or CheckID == " + strconv.Quote(consul.GossipCheck)
	}
	return filter
}

// whole turns an answer that ACLs made smaller into a failure: what is missing
// must not look as if it did not exist.
func whole[T any](v T, meta consul.Meta, err error) (T, error) {
	if err == nil && meta.Filtered {
		err = fmt.Errorf("read the catalog: the token does not see all of it (it needs node:read and service:read on every node and service): %w", consul.ErrDenied)
	}
	return v, err
}

// unreadable reports whether err is about what a document holds.
func unreadable(err error) bool { return errors.Is(err, kv.ErrDamaged) || errors.Is(err, kv.ErrNewer) }

// maxFilterNames is how many hosts a filter names; for more all are read.
const maxFilterNames = 32

// Conditions reads the conditions of hosts, whether they are members or not, with
// two requests whatever their number. It returns a class of package consul.
func (c *Cluster) Conditions(ctx context.Context, hosts []string) (map[string]Condition, error) {
	q := consul.Query{Consistent: c.consistent, Filter: namedFilter(hosts)}
	checksOf := q
	checksOf.Filter = checksFor(needChecks, catalog.PresenceID(c.name))
	if q.Filter != "" {
		checksOf.Filter = "(" + checksOf.Filter + ") and (" + q.Filter + ")"
	}
	var nodes []consul.NodeInfo
	var checks []consul.CheckState
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { nodes, err = whole(c.client.CatalogHosts(ctx, q)); return err })
	g.Go(func() (err error) { checks, err = whole(c.client.CheckStates(ctx, checksOf)); return err })
	if err := g.Wait(); err != nil {
		return nil, err
	}
	known := c.catalogHosts(nodes, nil, NeedState)
	for _, check := range checks {
		if h, ok := known[check.Node]; ok {
			h.signals.add(check, catalog.PresenceID(c.name))
			known[check.Node] = h
		}
	}
	all := make(map[string]Condition, len(hosts))
	for _, host := range hosts {
		if h, ok := known[host]; ok {
			all[host] = Assess(h.signals)
		} else {
			all[host] = Assess(Signals{Maintenance: MaintenanceNone})
		}
	}
	return all, nil
}

// namedFilter is a filter for these hosts; empty when there are too many, or
// when one has a name that a filter cannot hold as it is.
func namedFilter(hosts []string) string {
	if len(hosts) > maxFilterNames {
		return ""
	}
	parts := make([]string, len(hosts))
	for i, h := range hosts {
		if strings.ContainsFunc(h, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' || r == '_')
		}) {
			return ""
		}
		parts[i] = fmt.Sprintf("Node == %q", h)
	}
	return strings.Join(parts, " or ")
}
