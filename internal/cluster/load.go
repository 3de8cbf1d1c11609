package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

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
	NeedChanges                     // Changes

	// NeedAll is what fields of members need.
	NeedAll = NeedCatalog | NeedDatacenter | NeedHealth | NeedAgent | NeedServices | NeedReports
	// NeedState is everything.
	NeedState = NeedAll | NeedLiveness | NeedInstances | NeedProfile | NeedControl | NeedVersion

	// NeedChecks is what follows from checks, and NeedNodes what needs the nodes of the catalog.
	NeedChecks = NeedHealth | NeedAgent | NeedLiveness
	NeedNodes  = NeedCatalog | NeedDatacenter | NeedChecks
)

// Load reads the state of the cluster with at most seven requests. Documents
// that cannot be read are in State.Damaged. It returns ErrLayout with NeedProfile,
// or a class of package consul; consul.ErrDenied also when the token does not see everything.
func (c *Cluster) Load(ctx context.Context, need Need) (State, error) {
	var a Answers
	var documents *kv.Result
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		pairs, err := c.store.List(ctx, PrefixHosts)
		a.HostDocuments = c.decodeHosts(pairs)
		return err
	})
	g.Go(func() (err error) { documents, err = c.get(need, "").Commit(ctx); return err })
	if need&NeedReports != 0 {
		g.Go(func() (err error) { a.Reports, err = c.reports.List(ctx); return err })
	}
	g.Go(func() (err error) { a.Catalog, err = c.readCatalog(ctx, need); return err })
	if err := g.Wait(); err != nil {
		return State{}, err
	}
	return c.state(documents, a, need, nil, nil)
}

// readCatalog reads nodes, services and checks as far as need asks for them.
func (c *Cluster) readCatalog(ctx context.Context, need Need) (map[string]CatalogHost, error) {
	var nodes, inventory []consul.NodeInfo
	var checks []consul.CheckState
	var services []consul.ServiceHosts
	q := consul.Query{Consistent: c.consistent}
	g, ctx := errgroup.WithContext(ctx)
	if need&(NeedNodes|NeedInstances) != 0 {
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
		if need&NeedChecks != 0 {
			q := q
			q.Filter = checksFor(need, catalog.PresenceID(c.name))
			g.Go(func() (err error) { checks, err = whole(c.client.CheckStates(ctx, q)); return err })
		}
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	presence := catalog.PresenceID(c.name)
	all := CatalogOf(nodes, inventory, need, presence)
	for _, check := range checks {
		if h, ok := all[check.Node]; ok {
			h.Signals.Add(check, presence)
			all[check.Node] = h
		}
	}
	for _, service := range services {
		for _, node := range service.Nodes {
			h := all[node]
			if h.Tallies == nil {
				h.Tallies = map[string]Tally{}
			}
			h.Tallies[service.Service] = Tally{}
			all[node] = h
		}
	}
	return all, nil
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
	a := Answers{Node: node}
	var documents *kv.Result
	q := consul.Query{Consistent: c.consistent}
	info := consul.NodeInfo{Node: node}
	var checks []consul.CheckState
	known := false
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { documents, err = c.get(need, node).Commit(ctx); return err })
	g.Go(func() error {
		pairs, err := c.store.List(ctx, HostPrefix(node))
		a.HostDocuments = c.decodeHosts(pairs)
		return err
	})
	if need&(NeedNodes|NeedServices|NeedInstances) != 0 {
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
	if need&(NeedChecks|NeedInstances) != 0 {
		g.Go(func() (err error) { checks, err = c.checksOf(ctx, node); return err })
	}
	if err := g.Wait(); err != nil {
		return State{}, err
	}
	if known {
		info.Checks = checks
		a.Catalog = CatalogOf(nil, []consul.NodeInfo{info}, NeedInstances, catalog.PresenceID(c.name))
	}
	a.Reports = map[string]kv.Leaf[Report]{}
	if need&NeedReports != 0 {
		report, err := leafOf(c.reports.At(node).From(documents))
		if err != nil {
			return State{}, err
		}
		if report.Exists {
			a.Reports[node] = report
		}
	}
	return c.state(documents, a, need, nil, nil)
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
	}{{NeedProfile, []string{KeyProfile, KeyLayout}}, {NeedControl, []string{KeyControl}}, {NeedVersion, []string{KeyDesired, KeyVersion, KeyVersionState}}, {NeedChanges, []string{KeyChanges}}} {
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
// are as they were in before are not decoded again; see State.Take for the hosts.
func (c *Cluster) state(documents *kv.Result, a Answers, need Need, before *State, changed map[string]bool) (State, error) {
	s := State{Cluster: c.name, Need: need, Documents: documents, Damaged: map[string]error{}, Indexes: map[string]uint64{}}
	if err := c.decode(&s, documents, need, before); err != nil {
		return State{}, err
	}
	s.Take(a, before, changed)
	return s, nil
}

// decodeHosts reads the documents below host/.
func (c *Cluster) decodeHosts(pairs consul.KVPairs) HostDocuments {
	text := kv.NewTextTree(c.store, PrefixHosts)
	return HostDocuments{
		Members: c.members.Decode(pairs), Holds: c.holds.Decode(pairs),
		Grants: text.Ending(EndGrants).Decode(pairs), Results: text.Ending(EndResults).Decode(pairs),
	}
}

// StageDocuments reads the documents of the stages, with one request. It returns a class
// of package consul.
func (c *Cluster) StageDocuments(ctx context.Context) (map[string]StageDocuments, error) {
	all, err := kv.NewTextTree(c.store, PrefixStages).List(ctx)
	return StageDocumentsOf(all), err
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
		if err := document(s, r, c.control, &s.Stored, before, before.Stored); err != nil {
			return err
		}
	}
	if need&NeedChanges != 0 {
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
	checksOf.Filter = checksFor(NeedChecks, catalog.PresenceID(c.name))
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
	presence := catalog.PresenceID(c.name)
	known := CatalogOf(nodes, nil, NeedState, presence)
	for _, check := range checks {
		if h, ok := known[check.Node]; ok {
			h.Signals.Add(check, presence)
			known[check.Node] = h
		}
	}
	all := make(map[string]Condition, len(hosts))
	for _, host := range hosts {
		if h, ok := known[host]; ok {
			all[host] = Assess(h.Signals)
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
