package fleet

import (
	"context"
	"hash/fnv"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
)

// catalogChanges reads what the catalog says of all hosts, and afterwards only what
// has changed. The catalog of a large fleet is as long as everything else together,
// and during a rollout a check changes all the time. So it reads the checks that do
// not pass, of which Consul keeps an index, and, after a registration, the names of
// the services. It reads again the hosts of which these have changed, and everything
// after a node was registered or removed. Its reads are as consistent as the
// cluster's: what was complete before read is called is in what it returns, except a
// check that was registered alone and passes: no short answer shows it, and
// everything is read after readAllAfter in any case.
type catalogChanges struct {
	cluster *Cluster
	last    catalogDigest
	known   map[string]consul.NodeInfo // with services and checks; nil: not read yet
	hosts   map[string]cluster.CatalogHost
	readAt  time.Time       // when everything was read last
	changed map[string]bool // hosts that were assessed again by the present read
}

// catalogDigest is what a few short answers say about the catalog.
type catalogDigest struct {
	registrations uint64 // index of the last registration or removal
	checks        uint64 // index of the last change of a check
	critical      uint64 // digest of the checks in this state
	warning       uint64
	nodes         uint64                         // index of the last node that was registered or removed
	failing       map[string][]consul.CheckState // the checks that do not pass, by node
	services      map[string]uint64              // digests of the names of the services, by node
}

const (
	hostsOneByOne = 64              // more hosts are not read one by one, but all
	readAllAfter  = 5 * time.Minute // one long answer in some thirty cycles costs little
)

// read returns the hosts of the catalog, in a map that the next call changes, and
// the names of the ones that may have changed, nil for any; backwards reports that
// an index did not grow, so that everything was read again.
func (w *catalogChanges) read(ctx context.Context) (hosts map[string]cluster.CatalogHost, changed map[string]bool, backwards bool, err error) {
	now, err := w.digest(ctx)
	if err != nil {
		return nil, nil, false, err
	}
	w.changed = map[string]bool{}
	backwards = now.registrations < w.last.registrations || now.checks < w.last.checks
	registered := differing(w.last.services, now.services, func(a, b uint64) bool { return a == b })
	whole := w.known == nil || now.nodes != w.last.nodes || backwards || len(registered) > hostsOneByOne || time.Since(w.readAt) > readAllAfter
	if !whole {
		w.setChecks(differing(w.last.failing, now.failing, sameChecks), now.failing)
		whole, err = w.readHosts(ctx, registered)
	}
	if err == nil && whole {
		err = w.readAll(ctx)
	}
	if err != nil {
		return nil, nil, false, err
	}
	w.last = now // what changed since is read the next time
	return w.hosts, w.changed, backwards, nil
}

// digest reads what shows whether something has changed.
func (w *catalogChanges) digest(ctx context.Context) (catalogDigest, error) {
	q := consul.Query{Consistent: w.cluster.consistent}
	client := w.cluster.client
	d := w.last
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
	var warning []consul.CheckState
	var services []consul.ServiceHosts
	checked, registered := w.known == nil || d.checks != w.last.checks, w.known == nil || d.registrations != w.last.registrations
	g, ctx = errgroup.WithContext(ctx)
	if checked {
		g.Go(func() (err error) {
			warning, err = whole(client.ChecksInState(ctx, consul.HealthWarning, q))
			return err
		})
	}
	if registered {
		g.Go(func() (err error) { d.nodes, err = client.NodesIndex(ctx, q); return err })
		g.Go(func() (err error) { services, err = whole(client.ServiceHosts(ctx, q)); return err })
	}
	if err := g.Wait(); err != nil {
		return catalogDigest{}, err
	}
	if checked {
		d.critical, d.warning = checksDigest(critical), checksDigest(warning)
		d.failing = map[string][]consul.CheckState{}
		for _, c := range slices.Concat(critical, warning) {
			d.failing[c.Node] = append(d.failing[c.Node], c)
		}
	}
	if registered {
		d.services = map[string]uint64{}
		for _, s := range services {
			h := fnv.New64a()
			_, _ = h.Write([]byte(s.Service)) // it cannot fail
			for _, node := range s.Nodes {
				d.services[node] += h.Sum64() // in any order
			}
		}
	}
	return d, nil
}

// checksDigest is a digest of checks in any order, without their output.
func checksDigest(checks []consul.CheckState) (sum uint64) {
	for _, c := range checks {
		h := fnv.New64a()
		_, _ = h.Write([]byte(c.Node + "\x00" + c.ServiceID + "\x00" + c.CheckID + "\x00" + c.Status + "\x00" + c.Notes)) // it cannot fail
		sum += h.Sum64()
	}
	return sum
}

// differing returns the nodes whose values differ.
func differing[T any](before, now map[string]T, same func(a, b T) bool) (nodes []string) {
	for node, value := range now {
		if was, known := before[node]; !known || !same(was, value) {
			nodes = append(nodes, node)
		}
	}
	for node := range before {
		if _, still := now[node]; !still {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// sameChecks reports whether two lists hold the same checks, in any order.
func sameChecks(a, b []consul.CheckState) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(c consul.CheckState) bool { return !slices.Contains(b, c) })
}

// readAll reads everything.
func (w *catalogChanges) readAll(ctx context.Context) error {
	begin := time.Now()
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
	w.hosts, w.readAt, w.changed = cluster.CatalogOf(nodes, inventory, cluster.NeedState, catalog.PresenceID(w.cluster.name)), begin, nil
	return nil
}

// setChecks makes the checks of nodes the ones in failing; the others that are known
// pass. A check that was removed counts as one that passes until its host is read
// again, which changes nothing about the host's condition.
func (w *catalogChanges) setChecks(nodes []string, failing map[string][]consul.CheckState) {
	type id struct{ check, service string }
	idOf := func(c consul.CheckState) id { return id{c.CheckID, c.ServiceID} }
	for _, node := range nodes {
		n, known := w.known[node]
		if !known {
			continue // it was registered just now
		}
		checks, fails := slices.Clone(failing[node]), map[id]bool{}
		for _, c := range checks {
			fails[idOf(c)] = true
		}
		for _, c := range n.Checks {
			if !fails[idOf(c)] && !consul.IsMaintenance(c.CheckID) { // which exists only while it is critical
				c.Status = consul.HealthPassing
				checks = append(checks, c)
			}
		}
		n.Checks = checks
		w.known[node] = n
		w.assess(node)
	}
}

// readHosts reads some hosts. It reports whether everything has to be read, because
// one is not known.
func (w *catalogChanges) readHosts(ctx context.Context, nodes []string) (everything bool, err error) {
	found := make([]*consul.NodeInfo, len(nodes))
	q := consul.Query{Consistent: w.cluster.consistent}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readsAtATime)
	for i, node := range nodes {
		g.Go(func() (err error) { found[i], err = whole(w.cluster.client.InventoryOf(ctx, node, q)); return err })
	}
	if err := g.Wait(); err != nil {
		return false, err
	}
	for i, node := range nodes {
		if _, known := w.known[node]; !known || found[i] == nil {
			return true, nil
		}
		w.known[node] = *found[i]
		w.assess(node)
	}
	return false, nil
}

// assess makes the host of a node again.
func (w *catalogChanges) assess(node string) {
	known := w.known[node]
	h := cluster.InCatalog(w.hosts[node].Info).With(known.Services, known.Checks, catalog.PresenceID(w.cluster.name))
	w.hosts[node] = h
	if w.changed != nil {
		w.changed[node] = true
	}
}
