package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/slots"
	"github.com/jorc/jorc/internal/text"
)

// CheckExists returns cluster.ErrNoCluster, with the clusters that exist, unless the
// cluster has a profile or a member. The default cluster and the one without a name
// always exist. What the token may not read counts as existing.
func (c *Cluster) CheckExists(ctx context.Context) error {
	if c.name == "" || c.name == cluster.DefaultName {
		return nil
	}
	switch names, err := kv.NewTextTree(c.store, cluster.KeyProfile).Names(ctx); {
	case errors.Is(err, consul.ErrDenied):
		return nil
	case err != nil || len(names) > 0:
		return err
	}
	switch members, err := c.members.Names(ctx); {
	case errors.Is(err, consul.ErrDenied):
		return nil
	case err != nil || len(members) > 0:
		return err
	}
	if err := c.mayRead(ctx, ""); err != nil {
		return err
	}
	return c.missing(ctx)
}

// Uncreated returns how many members a cluster has that was never created; 0 for one
// that exists, or has no members. It returns a class of package consul.
func (c *Cluster) Uncreated(ctx context.Context) (members int, err error) {
	if exists, err := c.Exists(ctx); exists || err != nil {
		return 0, err
	}
	return c.CountMembers(ctx)
}

// CreationHint says how a cluster is created that does not exist.
func CreationHint(name string) string {
	return fmt.Sprintf("'jorc cluster init %s' creates it", name)
}

// missing is cluster.ErrNoCluster with its members, if it has any, or the clusters that
// exist, as far as they can be read.
func (c *Cluster) missing(ctx context.Context) error {
	if members, err := c.members.Names(ctx); err == nil && len(members) > 0 {
		return c.noCluster(fmt.Sprintf("; it has members (%d), but was never created", len(members)))
	}
	known := ""
	if all, err := List(ctx, c.client, c.prefix); err == nil && len(all) > 0 {
		names := make([]string, len(all))
		for i, s := range all {
			names[i] = s.Name
		}
		known = text.Unknown(c.name, "clusters", names)
	}
	return c.noCluster(known)
}

// noCluster is cluster.ErrNoCluster; known says what is known beside that.
func (c *Cluster) noCluster(known string) error {
	mark := ":"
	if known != "" {
		mark = ";"
	}
	return fmt.Errorf("cluster %q: %w%s%s create it with 'jorc cluster init %s'", c.name, cluster.ErrNoCluster, known, mark, c.name)
}

// CheckHost returns cluster.ErrNoHost, with hosts that exist, unless node is in the
// catalog, a member, or has reported something. What the token may not read counts as
// existing.
func (c *Cluster) CheckHost(ctx context.Context, node string) error {
	if err := cluster.CheckNode(node); err != nil {
		return err
	}
	switch exists, err := c.HasHost(ctx, node); {
	case errors.Is(err, consul.ErrDenied):
		return nil
	case err != nil || exists:
		return err
	}
	known, err := c.hostNames(ctx)
	switch {
	case errors.Is(err, consul.ErrDenied):
		return noHost(node, nil)
	case err != nil:
		return err
	}
	return noHost(node, known)
}

// HasHost reports whether node is in the catalog, a member, or has reported
// something. It returns a class of package consul.
func (c *Cluster) HasHost(ctx context.Context, node string) (bool, error) {
	s, err := c.LoadHost(ctx, node, cluster.NeedCatalog|cluster.NeedReports)
	return err == nil && (s.Hosts[node].Exists() || s.DamagedMember(node) != nil || s.DamagedReport(node) != nil), err
}

// UnknownHosts returns cluster.ErrNoHost for each of the nodes that does not exist. What is
// read does not grow with their number.
func (c *Cluster) UnknownHosts(ctx context.Context, nodes []string) ([]error, error) {
	if len(nodes) == 0 {
		return nil, nil
	}
	known, err := c.hostNames(ctx)
	switch {
	case errors.Is(err, consul.ErrDenied):
		return nil, nil
	case err != nil:
		return nil, err
	}
	var unknown []error
	for _, node := range nodes {
		if !slices.Contains(known, node) {
			unknown = append(unknown, noHost(node, known))
		}
	}
	return unknown, nil
}

func noHost(node string, known []string) error {
	return fmt.Errorf("host %q: %w%s", node, cluster.ErrNoHost, text.Unknown(node, "hosts", known))
}

// hostNames returns the names of all hosts that exist.
func (c *Cluster) hostNames(ctx context.Context) ([]string, error) {
	s, err := c.Load(ctx, cluster.NeedReports)
	if err != nil {
		return nil, err
	}
	known := slices.Collect(maps.Keys(s.Hosts))
	nodes, err := whole(c.client.CatalogHosts(ctx, consul.Query{Consistent: c.consistent}))
	for _, n := range nodes {
		known = append(known, n.Node)
	}
	return known, err
}

// CheckScope is CheckHost or CheckRole for what a hold names.
func (c *Cluster) CheckScope(ctx context.Context, s cluster.Scope) error {
	switch {
	case s.Node != "":
		return c.CheckHost(ctx, s.Node)
	case s.Role != "":
		return c.CheckRole(ctx, s.Role)
	}
	return nil
}

// CheckHeld is CheckScope, but a node that is held need not exist: it may have been
// held in advance.
func (c *Cluster) CheckHeld(ctx context.Context, s cluster.Scope) error {
	if s.Node != "" {
		control, err := c.ControlOf(ctx, s.Node)
		if _, held := control.Nodes[s.Node]; err != nil || held {
			return err
		}
	}
	return c.CheckScope(ctx, s)
}

// CheckRole returns cluster.ErrNoRole, with the roles that exist, unless a member has the
// role, the profile has params for it, or it is held.
func (c *Cluster) CheckRole(ctx context.Context, role string) error {
	known, err := c.RoleNames(ctx)
	switch {
	case errors.Is(err, consul.ErrDenied):
		return nil
	case err != nil:
		return err
	}
	if slices.Contains(known, role) {
		return nil
	}
	return fmt.Errorf("role %q: %w in cluster %q%s", role, cluster.ErrNoRole, c.name, text.Unknown(role, "roles", known))
}

// CheckDeparted returns cluster.ErrAlive for a host that gossip hears, and otherwise nil,
// consul.ErrDenied or consul.ErrUnreachable.
func (c *Cluster) CheckDeparted(ctx context.Context, node string) error {
	if err := cluster.CheckNode(node); err != nil {
		return err
	}
	lives, err := c.conditions(ctx, []string{node})
	if err == nil && lives[node].Liveness == cluster.LivenessUp {
		err = fmt.Errorf("node %q: %w", node, cluster.ErrAlive)
	}
	return err
}

// Decommissioned is what DecommissionHost removed.
type Decommissioned struct {
	Host   string   `json:"host"`
	Member bool     `json:"member"`
	Hold   bool     `json:"hold"` // it was held; a new host of its name is not
	Keys   []string `json:"keys"`
	Slots  []string `json:"slots"`
	// Catalog: it was removed from Consul's catalog.
	Catalog bool `json:"catalog"`
	// CatalogErr is why it was not; Consul removes a dead host itself after three days.
	CatalogErr error `json:"-"`
}

// DecommissionHost removes a host from the cluster: its membership, hold, reports and
// slots, and from Consul's catalog if it is dead. It returns cluster.ErrAlive for one that is
// alive, unless force is set. Repeating it is not a failure.
func (c *Cluster) DecommissionHost(ctx context.Context, host string, force bool) (d Decommissioned, err error) {
	d.Host = host
	if err := cluster.CheckNode(host); err != nil {
		return d, err
	}
	if !force {
		if err := c.CheckDeparted(ctx, host); err != nil {
			return d, err
		}
	}
	if d.Member, err = c.Leave(ctx, host, force); err != nil {
		return d, err
	}
	if d.Hold, err = c.ForgetHold(ctx, host); err != nil {
		return d, err
	}
	keys, claims, err := c.Decommission(ctx, host)
	if err != nil {
		return d, err
	}
	d.Keys, d.Slots = append([]string{}, keys...), append([]string{}, claims...)
	d.Catalog, d.CatalogErr = c.deregisterDead(ctx, host)
	return d, nil
}

// deregisterDead removes a dead host from Consul's catalog, which otherwise keeps it
// for three days. A living one would only come back.
func (c *Cluster) deregisterDead(ctx context.Context, host string) (bool, error) {
	if err := c.CheckDeparted(ctx, host); errors.Is(err, cluster.ErrAlive) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	registered, _, err := c.client.CatalogNode(ctx, host, consul.Query{})
	if err != nil || registered == nil {
		return false, err
	}
	return true, c.client.CatalogDeregister(ctx, &consul.CatalogDeregister{Node: host})
}

// Decommission removes all that node reported and frees its slots. It returns
// the keys that were removed: the node's document, the index keys that name it,
// also the ones that another process wrote, and what it says of jobs; and, as <group>/<id>, the claims.
// Repeating it is not a failure. Its errors are those of
// ReportWriter.Change.
func (c *Cluster) Decommission(ctx context.Context, node string) (removed, freed []string, err error) {
	if err := cluster.CheckNode(node); err != nil {
		return nil, nil, err
	}
	if freed, err = slots.New(c.store, slots.Options{}).RemoveNode(ctx, node); err != nil {
		return nil, freed, err
	}
	err = kv.RetryConflicts(ctx, func() error {
		keys, err := c.removeReport(ctx, node)
		removed = append(removed, keys...)
		if err == nil {
			keys, err = c.deleteOrders(ctx, node)
			removed = append(removed, keys...)
		}
		return err
	})
	return removed, freed, err
}

// deleteOrders deletes the grants of node, and what it says of its jobs.
func (c *Cluster) deleteOrders(ctx context.Context, node string) (deleted []string, err error) {
	for _, key := range []string{cluster.ResultsKey(node), cluster.GrantsKey(node), cluster.OrderKey(node)} {
		doc := kv.NewText(c.store, key)
		e, err := doc.Get(ctx)
		if err == nil && e.Exists {
			err = doc.Delete(ctx, e.Index)
			deleted = append(deleted, key)
		}
		if err != nil {
			return deleted, err
		}
	}
	return deleted, nil
}

// removeReport deletes the document together with its index keys, and then other index
// keys that name the node, as long as no new document appears.
func (c *Cluster) removeReport(ctx context.Context, node string) ([]string, error) {
	doc := c.reports.At(node)
	old, err := doc.Get(ctx)
	if err != nil && !errors.Is(err, kv.ErrDamaged) {
		return nil, err
	}
	index, err := c.indexNames(ctx, node)
	if err != nil {
		return nil, err
	}
	own := indexOf(old.Value)
	places := slices.SortedFunc(maps.Keys(own), indexPlace.compare)
	places = slices.DeleteFunc(places, func(s indexPlace) bool { return !slices.Contains(index, s) })
	for _, s := range index {
		if _, ok := own[s]; !ok {
			places = append(places, s)
		}
	}
	txn := c.store.Txn().CheckIndex(doc.Key(), old.Index)
	var removed, pending []string
	if old.Exists {
		txn.Delete(doc.Key())
		pending = append(pending, doc.Key())
	}
	for {
		n := min(len(places), kv.MaxOps-txn.Len())
		for _, s := range places[:n] {
			txn.Delete(s.key(node))
			pending = append(pending, s.key(node))
		}
		places = places[n:]
		if len(pending) == 0 {
			return removed, nil
		}
		if _, err := txn.Commit(ctx); err != nil {
			return removed, err
		}
		removed, pending = append(removed, pending...), nil
		txn = c.store.Txn().CheckNotExists(doc.Key())
	}
}

// indexNames reads which index keys name node, in order.
func (c *Cluster) indexNames(ctx context.Context, node string) ([]indexPlace, error) {
	var found []indexPlace
	for _, prefix := range []string{cluster.PrefixRunning, cluster.PrefixStatus} {
		names, err := kv.NewTextTree(c.store, prefix).Names(ctx)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if s, of, ok := parseIndexKey(prefix + name); ok && of == node {
				found = append(found, s)
			}
		}
	}
	slices.SortFunc(found, indexPlace.compare)
	return found, nil
}
