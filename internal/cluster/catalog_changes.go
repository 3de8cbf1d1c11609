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
// do not pass, of which Consul keeps an index, and the names of the services, reads
// again the hosts of which these have changed, and reads everything again after a
// node was registered or removed. Its reads are as consistent as the cluster's:
// what was complete before read is called is in what it returns.
type catalogChanges struct {
	cluster *Cluster
	last    catalogDigest
	hosts   map[string]catalogHost // never changed, only replaced; nil: not read yet
}

// catalogDigest is what a few short answers say about the catalog.
type catalogDigest struct {
	registrations uint64            // index of the last registration or removal
	checks        uint64            // index of the last change of a check
	nodes         uint64            // index of the last node that was registered or removed
	failing       map[string]uint64 // digests of the checks that do not pass, by node
	services      map[string]uint64 // digests of the names of the services, by node
}

// hostsOneByOne is how many hosts are read one by one; for more, everything is read.
const hostsOneByOne = 64

// read returns the hosts of the catalog; backwards reports that an index did not
// grow, so that everything was read again.
func (w *catalogChanges) read(ctx context.Context) (hosts map[string]catalogHost, backwards bool, err error) {
	now, err := w.digest(ctx)
	if err != nil {
		return nil, false, err
	}
	backwards = now.registrations < w.last.registrations || now.checks < w.last.checks
	changed := differing(w.last.failing, now.failing)
	maps.Copy(changed, differing(w.last.services, now.services))
	whole := w.hosts == nil || now.nodes != w.last.nodes || backwards || len(changed) > hostsOneByOne
	if !whole && len(changed) > 0 {
		whole, err = w.readHosts(ctx, slices.Collect(maps.Keys(changed)))
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
	checked, registered := w.hosts == nil || d.checks != w.last.checks, w.hosts == nil || d.registrations != w.last.registrations
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
		d.failing = map[string]uint64{}
		for _, c := range slices.Concat(critical, warning) {
			d.failing[c.Node] += digestOf(c.CheckID, c.ServiceID, c.Status, c.Notes)
		}
	}
	if registered {
		d.services = map[string]uint64{}
		for _, s := range services {
			digest := digestOf(s.Service)
			for _, node := range s.Nodes {
				d.services[node] += digest
			}
		}
	}
	return d, nil
}

// digestOf returns a hash of texts; the sum of several does not depend on their order.
func digestOf(texts ...string) uint64 {
	h := fnv.New64a()
	for _, text := range texts {
		_, _ = h.Write([]byte(text + "\x00")) // it cannot fail
	}
	return h.Sum64()
}

// differing returns the keys whose values differ.
func differing(before, now map[string]uint64) map[string]bool {
	all := map[string]bool{}
	for node, digest := range now {
		if before[node] != digest {
			all[node] = true
		}
	}
	for node := range before {
		if _, still := now[node]; !still {
			all[node] = true
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
	w.hosts = w.cluster.catalogHosts(nodes, inventory, NeedState)
	return nil
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
	hosts := maps.Clone(w.hosts)
	for i, node := range nodes {
		h, known := hosts[node]
		if !known || found[i] == nil {
			return true, nil
		}
		h = catalogHost{NodeInfo: h.NodeInfo, signals: observed()}
		h.add(*found[i], catalog.PresenceID(w.cluster.name))
		hosts[node] = h
	}
	w.hosts = hosts
	return false, nil
}
