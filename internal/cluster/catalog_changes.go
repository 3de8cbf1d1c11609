package cluster

import (
	"context"
	"hash/fnv"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/consul"
)

// catalogChanges reads what the catalog says of all hosts, and afterwards only what
// has changed. The catalog of a large fleet is as long as everything else together,
// and during a rollout a check changes all the time. So it compares the checks that
// do not pass, of which Consul keeps an index, reads again the hosts of which these
// have changed, and reads everything again only after a node or a service was
// registered or removed. Its reads are consistent: what was complete before read is
// called is in what it returns.
type catalogChanges struct {
	cluster *Cluster
	last    catalogDigest
	known   map[string]consul.NodeInfo // with services and checks; nil: not read yet
	hosts   map[string]catalogHost     // never changed, only replaced
}

// catalogDigest is what three short answers say about the catalog.
type catalogDigest struct {
	registrations uint64            // index of the last one, or of the last removal
	checks        uint64            // index of the last change of a check
	failing       map[string]uint64 // digests of the checks that do not pass, by node
}

// hostsOneByOne is how many hosts are read one by one; for more, everything is read.
const hostsOneByOne = 32

// read returns the hosts of the catalog; backwards reports that an index did not
// grow, so that everything was read again.
func (w *catalogChanges) read(ctx context.Context) (hosts map[string]catalogHost, backwards bool, err error) {
	now, err := w.digest(ctx)
	if err != nil {
		return nil, false, err
	}
	backwards = now.registrations < w.last.registrations || now.checks < w.last.checks
	changed := differing(w.last.failing, now.failing)
	whole := w.known == nil || now.registrations != w.last.registrations || backwards || len(changed) > hostsOneByOne
	if !whole && len(changed) > 0 {
		whole, err = w.readHosts(ctx, changed)
	}
	if err == nil && whole {
		err = w.readAll(ctx)
	}
	if err != nil {
		return nil, false, err
	}
	w.last = now // what changed since is read the next time
	return w.hosts, backwards, nil
}

// digest reads what shows whether something has changed.
func (w *catalogChanges) digest(ctx context.Context) (catalogDigest, error) {
	q := consul.Query{Consistent: w.cluster.consistent}
	client := w.cluster.client
	var d catalogDigest
	var critical []consul.CheckState
	g, both := errgroup.WithContext(ctx)
	g.Go(func() (err error) { d.registrations, err = client.RegistrationsIndex(both, q); return err })
	g.Go(func() error {
		checks, meta, err := client.ChecksInState(both, consul.HealthCritical, q)
		critical, err = whole(checks, meta, err)
		d.checks = meta.Index // that of the checks in all states
		return err
	})
	if err := g.Wait(); err != nil {
		return catalogDigest{}, err
	}
	if w.last.failing != nil && d.checks == w.last.checks {
		d.failing = w.last.failing
		return d, nil
	}
	warning, err := whole(client.ChecksInState(ctx, consul.HealthWarning, q))
	if err != nil {
		return catalogDigest{}, err
	}
	d.failing = map[string]uint64{}
	for _, c := range slices.Concat(critical, warning) {
		h := fnv.New64a()
		_, _ = h.Write([]byte(c.CheckID + "\x00" + c.ServiceID + "\x00" + c.Status + "\x00" + c.Notes)) // it cannot fail
		d.failing[c.Node] += h.Sum64()                                                                  // in any order
	}
	return d, nil
}

// differing returns the keys whose values differ.
func differing(before, now map[string]uint64) []string {
	var all []string
	for node, digest := range now {
		if before[node] != digest {
			all = append(all, node)
		}
	}
	for node := range before {
		if _, still := now[node]; !still {
			all = append(all, node)
		}
	}
	return all
}

// readAll reads everything.
func (w *catalogChanges) readAll(ctx context.Context) error {
	var nodes, inventory []consul.NodeInfo
	q := consul.Query{Consistent: w.cluster.consistent}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { nodes, err = whole(w.cluster.client.CatalogHosts(ctx, q)); return err })
	g.Go(func() (err error) { inventory, err = whole(w.cluster.client.Inventory(ctx, q)); return err })
	if err := g.Wait(); err != nil {
		return err
	}
	w.known = make(map[string]consul.NodeInfo, len(inventory))
	for _, n := range inventory {
		w.known[n.Node] = n
	}
	w.hosts = w.cluster.catalogHosts(nodes, inventory, NeedState)
	return nil
}

// readHosts reads the checks of some hosts. It reports whether everything has to
// be read: a node or a service was registered or removed, and the checks alone would
// show one that is gone as one that passes.
func (w *catalogChanges) readHosts(ctx context.Context, nodes []string) (whole bool, err error) {
	found := make([][]consul.CheckState, len(nodes))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readsAtATime)
	for i, node := range nodes {
		g.Go(func() (err error) { found[i], err = w.cluster.checksOf(ctx, node); return err })
	}
	if err := g.Wait(); err != nil {
		return false, err
	}
	hosts := maps.Clone(w.hosts)
	for i, node := range nodes {
		n, known := w.known[node]
		if !known || removed(n.Checks, found[i]) {
			return true, nil
		}
		n.Checks = found[i]
		w.known[node] = n
		h := catalogHost{NodeInfo: hosts[node].NodeInfo, signals: observed()}
		h.add(n, catalog.PresenceID(w.cluster.name))
		hosts[node] = h
	}
	w.hosts = hosts
	return false, nil
}

// removed reports whether a node's gossip check or a check of a service is in
// before and not in now.
func removed(before, now []consul.CheckState) bool {
	type id struct{ check, service string }
	has := map[id]bool{}
	for _, c := range now {
		has[id{c.CheckID, c.ServiceID}] = true
	}
	for _, c := range before {
		if !has[id{c.CheckID, c.ServiceID}] && (c.ServiceID != "" && !consul.IsMaintenance(c.CheckID) || c.CheckID == consul.GossipCheck) {
			return true
		}
	}
	return false
}
