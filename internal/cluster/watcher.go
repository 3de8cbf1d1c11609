package cluster

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/consul"
)

// Watcher keeps a State current: each State reads only what has changed since
// the one before. Its first read, and the first after an error or after an index
// that went backwards, is complete and consistent. It is safe for concurrent use.
type Watcher struct {
	cluster *Cluster
	need    Need

	mu      sync.Mutex
	whole   bool // what follows is as it was at the last State
	last    State
	answers answers
	hosts   *keyTree
	reports *keyTree
	catalog uint64 // index of nodes, services and checks
}

// NewWatcher returns a watcher of the parts that need names, reports included.
// It does no I/O.
func (c *Cluster) NewWatcher(need Need) *Watcher {
	return &Watcher{cluster: c, need: need | NeedReports}
}

// Reset makes the next State read everything again.
func (w *Watcher) Reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.whole = false
}

// State returns the state of the cluster as it is now. Its errors are those of
// Load.
func (w *Watcher) State(ctx context.Context) (State, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	backwards := false
	if w.whole {
		w.whole = false // an error makes it stay so
		var err error
		if backwards, err = w.update(ctx); err != nil {
			return State{}, err
		}
	} else {
		backwards = true
	}
	if backwards {
		if err := w.readAll(ctx); err != nil {
			return State{}, err
		}
	}
	s, err := w.cluster.state(w.answers, w.need, &w.last)
	if err != nil {
		return State{}, err
	}
	w.last, w.whole = s, true
	return s, nil
}

// readAll reads everything, consistently. The indexes are read first: what
// changes in between is read again the next time.
func (w *Watcher) readAll(ctx context.Context) error {
	c := w.cluster.Consistent()
	w.last = State{}
	w.hosts, w.reports = newKeyTree(c, PrefixHosts), newKeyTree(c, PrefixReports)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { w.answers.documents, err = c.get(w.need, "").Commit(ctx); return err })
	g.Go(func() (err error) {
		pairs, err := w.hosts.readAll(ctx)
		w.answers.hostDocuments = c.decodeHosts(pairs)
		return err
	})
	g.Go(func() error {
		pairs, err := w.reports.readAll(ctx)
		w.answers.reports = c.reports.Decode(pairs)
		return err
	})
	g.Go(func() (err error) {
		if w.catalog, err = c.catalogIndex(ctx, w.need); err == nil {
			w.answers.catalog, err = c.readCatalog(ctx, w.need)
		}
		return err
	})
	return g.Wait()
}

// update reads what has changed; backwards reports that an index did not grow,
// so that everything has to be read.
func (w *Watcher) update(ctx context.Context) (backwards bool, err error) {
	c := w.cluster
	var documents answers
	var hosts, reports changedKeys
	var nodes map[string]catalogHost
	index := w.catalog
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { documents.documents, err = c.get(w.need, "").Commit(ctx); return err })
	g.Go(func() (err error) { hosts, err = w.hosts.changed(ctx); return err })
	g.Go(func() (err error) { reports, err = w.reports.changed(ctx); return err })
	g.Go(func() (err error) {
		if index, err = c.catalogIndex(ctx, w.need); err == nil && index != w.catalog {
			nodes, err = c.readCatalog(ctx, w.need)
		}
		return err
	})
	if err := g.Wait(); err != nil {
		return false, err
	}
	if hosts.backwards || reports.backwards || index < w.catalog {
		return true, nil
	}
	w.answers.documents = documents.documents
	fresh := c.decodeHosts(hosts.pairs)
	replace(w.answers.members, fresh.members, hosts)
	replace(w.answers.holds, fresh.holds, hosts)
	replace(w.answers.grants, fresh.grants, hosts)
	replace(w.answers.queues, fresh.queues, hosts)
	replace(w.answers.reports, c.reports.Decode(reports.pairs), reports)
	if w.catalog = index; nodes != nil {
		w.answers.catalog = nodes
	}
	return false, nil
}

// replace puts fresh in the place of what known has below the changed prefixes.
func replace[T any](known, fresh map[string]T, changed changedKeys) {
	if len(changed.prefixes)+len(changed.gone) == 0 {
		return
	}
	for node := range known {
		if changed.covers(node) {
			delete(known, node)
		}
	}
	for node, leaf := range fresh {
		known[node] = leaf
	}
}

// catalogIndex returns the index of all nodes, services and checks, without
// reading them: no node has an empty name.
func (c *Cluster) catalogIndex(ctx context.Context, need Need) (uint64, error) {
	if need&(needNodes|NeedServices|NeedInstances) == 0 {
		return 0, nil
	}
	_, meta, err := c.client.Inventory(ctx, consul.Query{Consistent: c.consistent, Filter: `Node == ""`})
	if err != nil {
		return 0, err
	}
	return meta.Index, nil
}
