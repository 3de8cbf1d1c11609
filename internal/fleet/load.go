package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
)

// Load reads the state of the cluster with at most seven requests. Documents
// that cannot be read are in State.Damaged. It returns cluster.ErrLayout with NeedProfile,
// or a class of package consul; consul.ErrDenied also when the token does not see everything.
func (c *Cluster) Load(ctx context.Context, need cluster.Need) (cluster.State, error) {
	var a cluster.Answers
	var documents *kv.Result
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		pairs, err := c.store.List(ctx, cluster.PrefixHosts)
		a.HostDocuments = c.decodeHosts(pairs)
		return err
	})
	g.Go(func() (err error) { documents, err = c.get(need, "").Commit(ctx); return err })
	if need&cluster.NeedReports != 0 {
		g.Go(func() (err error) { a.Reports, err = c.reports.List(ctx); return err })
	}
	g.Go(func() (err error) { a.Catalog, err = c.readCatalog(ctx, need); return err })
	if err := g.Wait(); err != nil {
		return cluster.State{}, err
	}
	return c.state(documents, a, need, nil, nil)
}

// readCatalog reads nodes, services and checks as far as need asks for them.
func (c *Cluster) readCatalog(ctx context.Context, need cluster.Need) (map[string]cluster.CatalogHost, error) {
	var nodes, inventory []consul.NodeInfo
	var checks []consul.CheckState
	var services []consul.ServiceHosts
	q := consul.Query{Consistent: c.consistent}
	g, ctx := errgroup.WithContext(ctx)
	if need&(cluster.NeedNodes|cluster.NeedInstances) != 0 {
		g.Go(func() (err error) { nodes, err = whole(c.client.CatalogHosts(ctx, q)); return err })
	}
	// The inventory is as long as all other answers together, and Consul writes it
	// with one processor.
	switch {
	case need&cluster.NeedInstances != 0:
		g.Go(func() (err error) { inventory, err = whole(c.client.Inventory(ctx, q)); return err })
	default:
		if need&cluster.NeedServices != 0 {
			g.Go(func() (err error) { services, err = whole(c.client.ServiceHosts(ctx, q)); return err })
		}
		if need&cluster.NeedChecks != 0 {
			q := q
			q.Filter = checksFor(need, catalog.PresenceID(c.name))
			g.Go(func() (err error) { checks, err = whole(c.client.CheckStates(ctx, q)); return err })
		}
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	presence := catalog.PresenceID(c.name)
	all := cluster.CatalogOf(nodes, inventory, need, presence)
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
				h.Tallies = map[string]cluster.Tally{}
			}
			h.Tallies[service.Service] = cluster.Tally{}
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
func (c *Cluster) LoadHost(ctx context.Context, node string, need cluster.Need) (cluster.State, error) {
	a := cluster.Answers{Node: node}
	var documents *kv.Result
	q := consul.Query{Consistent: c.consistent}
	info := consul.NodeInfo{Node: node}
	var checks []consul.CheckState
	known := false
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { documents, err = c.get(need, node).Commit(ctx); return err })
	g.Go(func() error {
		pairs, err := c.store.List(ctx, cluster.HostPrefix(node))
		a.HostDocuments = c.decodeHosts(pairs)
		return err
	})
	if need&(cluster.NeedNodes|cluster.NeedServices|cluster.NeedInstances) != 0 {
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
	if need&(cluster.NeedChecks|cluster.NeedInstances) != 0 {
		g.Go(func() (err error) { checks, err = c.checksOf(ctx, node); return err })
	}
	if err := g.Wait(); err != nil {
		return cluster.State{}, err
	}
	if known {
		info.Checks = checks
		a.Catalog = cluster.CatalogOf(nil, []consul.NodeInfo{info}, cluster.NeedInstances, catalog.PresenceID(c.name))
	}
	a.Reports = map[string]kv.Leaf[cluster.Report]{}
	if need&cluster.NeedReports != 0 {
		report, err := leafOf(c.reports.At(node).From(documents))
		if err != nil {
			return cluster.State{}, err
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
func (c *Cluster) get(need cluster.Need, node string) *kv.Txn {
	t := c.store.Txn().Get(cluster.KeyLeaders)
	for _, part := range []struct {
		need cluster.Need
		keys []string
	}{{cluster.NeedProfile, []string{cluster.KeyProfile, cluster.KeyLayout}}, {cluster.NeedControl, []string{cluster.KeyControl}}, {cluster.NeedVersion, []string{cluster.KeyDesired, cluster.KeyVersion, cluster.KeyVersionState}}, {cluster.NeedChanges, []string{cluster.KeyChanges}}} {
		if need&part.need != 0 {
			for _, key := range part.keys {
				t.Get(key)
			}
		}
	}
	if node != "" && need&cluster.NeedReports != 0 {
		t.Get(cluster.ReportKey(node))
	}
	return t
}

// state puts the answers together. It returns consul.ErrDenied for a document
// that the token may not read, and cluster.ErrLayout. Documents of the whole cluster that
// are as they were in before are not decoded again; see State.Take for the hosts.
func (c *Cluster) state(documents *kv.Result, a cluster.Answers, need cluster.Need, before *cluster.State, changed map[string]bool) (cluster.State, error) {
	s := cluster.State{Cluster: c.name, Need: need, Documents: documents, Damaged: map[string]error{}, Indexes: map[string]uint64{}}
	if err := c.decode(&s, documents, need, before); err != nil {
		return cluster.State{}, err
	}
	s.Take(a, before, changed)
	return s, nil
}

// decodeHosts reads the documents below host/.
func (c *Cluster) decodeHosts(pairs consul.KVPairs) cluster.HostDocuments {
	text := kv.NewTextTree(c.store, cluster.PrefixHosts)
	return cluster.HostDocuments{
		Members: c.members.Decode(pairs), Holds: c.holds.Decode(pairs),
		Grants: text.Ending(cluster.EndGrants).Decode(pairs), Results: text.Ending(cluster.EndResults).Decode(pairs),
	}
}

// StageDocuments reads the documents of the stages, with one request. It returns a class
// of package consul.
func (c *Cluster) StageDocuments(ctx context.Context) (map[string]cluster.StageDocuments, error) {
	all, err := kv.NewTextTree(c.store, cluster.PrefixStages).List(ctx)
	return cluster.StageDocumentsOf(all), err
}

// decode reads the documents of the whole cluster.
func (c *Cluster) decode(s *cluster.State, r *kv.Result, need cluster.Need, before *cluster.State) error {
	if before == nil {
		before = &cluster.State{}
	}
	if err := document(s, r, c.leaders, &s.Leaders, before, before.Leaders); err != nil {
		return err
	}
	if need&cluster.NeedProfile != 0 {
		if err := c.layoutOf(r); err != nil {
			return err
		}
		if err := document(s, r, c.profile, &s.Profile, before, before.Profile); err != nil {
			return err
		}
		s.Exists = s.Indexes[cluster.KeyProfile] != 0
	}
	if need&cluster.NeedControl != 0 {
		if err := document(s, r, c.control, &s.Stored, before, before.Stored); err != nil {
			return err
		}
	}
	if need&cluster.NeedChanges != 0 {
		log, err := leafOf(c.changes.From(r))
		if errors.Is(err, consul.ErrDenied) { // the rest is of use without it
			log.Err, err = err, nil
		}
		if err != nil {
			return err
		}
		if s.Changes = log.Value; log.Err != nil {
			s.Changes, s.Damaged[cluster.KeyChanges] = cluster.AuditLog{}, log.Err
		}
	}
	if need&cluster.NeedVersion == 0 {
		return nil
	}
	if err := document(s, r, kv.NewText(c.store, cluster.KeyDesired), &s.Desired, before, before.Desired); err != nil {
		return err
	}
	if s.Desired = strings.TrimSpace(s.Desired); s.Desired != "" && cluster.CheckVersion(s.Desired) != nil {
		s.Desired, s.Damaged[cluster.KeyDesired] = "", fmt.Errorf("key %q: %w: not a version", c.store.Path(cluster.KeyDesired), kv.ErrDamaged)
	}
	for key, to := range map[string]*kv.Entry[string]{cluster.KeyVersion: &s.Rollout, cluster.KeyVersionState: &s.RolloutState} {
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
func document[T any](s *cluster.State, r *kv.Result, d kv.Doc[T], value *T, before *cluster.State, was T) error {
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
func checksFor(need cluster.Need, presence string) string {
	filter := "Status != " + strconv.Quote(consul.HealthPassing)
	if need&cluster.NeedAgent != 0 {
		filter += " or ServiceID == " + strconv.Quote(presence)
	}
	if need&cluster.NeedLiveness != 0 {
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
func (c *Cluster) Conditions(ctx context.Context, hosts []string) (map[string]cluster.Condition, error) {
	q := consul.Query{Consistent: c.consistent, Filter: namedFilter(hosts)}
	checksOf := q
	checksOf.Filter = checksFor(cluster.NeedChecks, catalog.PresenceID(c.name))
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
	known := cluster.CatalogOf(nodes, nil, cluster.NeedState, presence)
	for _, check := range checks {
		if h, ok := known[check.Node]; ok {
			h.Signals.Add(check, presence)
			known[check.Node] = h
		}
	}
	all := make(map[string]cluster.Condition, len(hosts))
	for _, host := range hosts {
		if h, ok := known[host]; ok {
			all[host] = cluster.Assess(h.Signals)
		} else {
			all[host] = cluster.Assess(cluster.Signals{Maintenance: cluster.MaintenanceNone})
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

// MembersOptions say which members to read and what of them.
type MembersOptions struct {
	Filter *cluster.Filter // nil: all
	Need   cluster.Need    // beside what the filter needs
	// Unreadable, if not nil, is called with documents that cannot be read, by key
	// below the cluster's: members whose records cannot be are left out then, who
	// leads counts as no member, and what nodes report as nothing; that is not an error.
	Unreadable func(key string, err error)
}

// Members reads the members that o.Filter matches, in order of their names,
// with at most six requests whatever their number. It returns kv.ErrDamaged or
// kv.ErrNewer for a document that cannot be read, if o.Unreadable is nil, or a
// class of package consul; consul.ErrDenied also when the token does not see
// everything that was asked for.
func (c *Cluster) Members(ctx context.Context, o MembersOptions) ([]cluster.Member, error) {
	need := o.Need
	if o.Filter != nil {
		need |= o.Filter.Need()
	}
	s, err := c.Load(ctx, need)
	if err != nil {
		return nil, err
	}
	if o.Unreadable != nil {
		s.Unreadable(o.Unreadable)
	} else if err := s.FirstDamaged(); err != nil {
		return nil, err
	}
	return s.Members(o.Filter), nil
}

// MemberOf reads one member as Members shows it; what is read does not grow
// with their number. It returns cluster.ErrNoMember, or what Members returns.
func (c *Cluster) MemberOf(ctx context.Context, node string, need cluster.Need) (cluster.Member, error) {
	s, err := c.LoadHost(ctx, node, need)
	if err != nil {
		return cluster.Member{}, err
	}
	if err := cmp.Or(s.FirstDamaged(), s.DamagedReport(node)); err != nil {
		return cluster.Member{}, err
	}
	h := s.Hosts[node]
	if !h.Member {
		return cluster.Member{}, fmt.Errorf("node %q in cluster %q: %w", node, c.name, cluster.ErrNoMember)
	}
	return s.MemberOf(node), nil
}

// WhyFacts reads what the ledger and the catalog know of node. It returns what
// Report and Desired return.
func (c *Cluster) WhyFacts(ctx context.Context, node string) (cluster.WhyFacts, error) {
	f := cluster.WhyFacts{Node: node}
	if err := cluster.CheckNode(node); err != nil {
		return f, err
	}
	var s cluster.State
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.maySeeNode(gctx, node) })
	g.Go(func() (err error) {
		s, err = c.LoadHost(gctx, node, cluster.NeedReports|cluster.NeedInstances|cluster.NeedVersion)
		return err
	})
	if err := g.Wait(); err != nil {
		return f, err
	}
	return s.WhyFacts(node)
}

func (c *Cluster) maySeeNode(ctx context.Context, node string) error {
	return c.authorize(ctx, []consul.Right{{Resource: "node", Access: "read", Segment: node}, {Resource: "service", Access: "read", Segment: "jorc"}})
}

// LoadReports reads what all nodes report and nothing else, with two requests: one
// asks whether the answer is whole. It returns consul.ErrDenied also when the token
// may see only a part, or consul.ErrUnreachable.
func (c *Cluster) LoadReports(ctx context.Context) (cluster.State, error) {
	g, ctx := errgroup.WithContext(ctx)
	var a cluster.Answers
	g.Go(func() error { return c.mayRead(ctx, cluster.PrefixReports) })
	g.Go(func() (err error) { a.Reports, err = c.reports.List(ctx); return err })
	if err := g.Wait(); err != nil {
		return cluster.State{}, err
	}
	s := cluster.State{Cluster: c.name, Need: cluster.NeedReports, Damaged: map[string]error{}}
	s.Take(a, nil, nil)
	return s, nil
}

// LoadReport is LoadReports of one node, with one request. It returns what Report
// returns.
func (c *Cluster) LoadReport(ctx context.Context, node string) (cluster.State, error) {
	d, exists, err := c.Report(ctx, node)
	s := cluster.State{Cluster: c.name, Need: cluster.NeedReports, Hosts: map[string]*cluster.Host{node: {Node: node, Reported: exists, Report: d}}}
	return s, err
}

// Report reads what node reports; exists is false when it never did. It
// returns text.ErrName, kv.ErrDamaged, kv.ErrNewer, consul.ErrDenied or
// consul.ErrUnreachable.
func (c *Cluster) Report(ctx context.Context, node string) (d cluster.Report, exists bool, err error) {
	if err := cluster.CheckNode(node); err != nil {
		return cluster.Report{}, false, err
	}
	e, err := c.reports.At(node).Get(ctx)
	if err != nil {
		return cluster.Report{}, false, fmt.Errorf("what node %q reports: %w", node, err)
	}
	return e.Value, e.Exists, nil
}

// UniqueVersion reads whether version is the only one that runs: with two requests
// when no other version runs, and otherwise a few. It returns text.ErrName, or what
// LoadReports returns.
func (c *Cluster) UniqueVersion(ctx context.Context, version string) (cluster.Uniqueness, error) {
	if err := cluster.CheckVersion(version); err != nil {
		return cluster.Uniqueness{}, err
	}
	s, err := c.LoadReports(ctx)
	if err != nil {
		return cluster.Uniqueness{}, err
	}
	var others []string
	for node, h := range s.Hosts {
		if v := h.Report.Version; v != "" && v != version {
			others = append(others, node)
		}
	}
	slices.Sort(others)
	conditions, err := c.conditions(ctx, others)
	for node, condition := range conditions {
		s.Hosts[node].Condition = condition
	}
	return s.Uniqueness(version, nil), err
}
