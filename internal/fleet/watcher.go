package fleet

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
)

// ErrRestored: an index of Consul went backwards, because its data was restored or
// lost. What was read before may no longer hold.
var ErrRestored = errors.New("Consul's data was restored")

// Watcher keeps a State current: State reads only what has changed since the last
// call, and Run reports that something may have changed. The first read, and the
// first after an error or after an index that went backwards, is complete and
// consistent. It is safe for concurrent use.
type Watcher struct {
	cluster *Cluster
	also    []string // keys beside those of the State, or their prefixes

	seen atomic.Uint64 // changes of the State that Run saw

	mu        concurrency.Exclusive // also held during requests
	whole     bool                  // the fields below are as of the last State
	last      cluster.State
	documents *kv.Result // of the whole cluster
	answers   cluster.Answers
	changed   map[string]bool // hosts that differ from last; nil: any
	hosts     *keyTree
	reports   *keyTree
	stages    *keyTree
	runs      *keyTree
	catalog   *catalogChanges
	took      time.Duration // by the last State
	covers    uint64        // what seen was before the last State

	highest uint64 // index of the KV that Run saw

	failing map[string]*followed // by health: what the queries and the last State saw

	following   sync.Mutex // never held during a request
	subscribers []*subscriber
	indexes     map[string]uint64 // of the prefixes that are followed, as Run saw them last; nil: not known
}

// subscriber is one reader of a Watcher.
type subscriber struct {
	prefixes []string // beside those of the State
	signal   concurrency.Signal
}

// followed is what a query that blocks and the last State saw of the same data. A query
// sees nothing of a value that comes and goes between two of its answers; a State may.
type followed struct {
	run, state seen
	notified   bool // that they differ, since run's answer
}

// seen is a value as of an index of Consul.
type seen struct {
	index uint64
	value uint64
}

// outdated reports, once for each answer of the query, whether the State differs from
// it and is older.
func (f *followed) outdated() bool {
	if f.notified || f.run.index <= f.state.index || f.run.value == f.state.value {
		return false
	}
	f.notified = true
	return true
}

// watched are the parts of the state that a Watcher keeps current.
const watched = cluster.NeedState | cluster.NeedChanges

// NewWatcher returns a watcher of all parts of the State. Run also reports
// changes of the keys also, or below them; with PrefixStages among them the State has the
// documents of stages, with PrefixRuns which runs are in progress. With a cluster that Consistent
// returned, each State has all writes that were complete before it was asked for.
// NewWatcher does no I/O.
func (c *Cluster) NewWatcher(also ...string) *Watcher {
	return &Watcher{cluster: c, also: also, mu: concurrency.NewExclusive(), failing: map[string]*followed{consul.HealthCritical: {}, consul.HealthWarning: {}}}
}

// follows reports whether the State has what is below PrefixStages, or the marks below
// PrefixRuns: not each reader may read them.
func (w *Watcher) follows(prefix string) bool { return slices.Contains(w.also, prefix) }

// Changes returns a signal that Run sets at its start and after each change. Each
// caller gets its own.
func (w *Watcher) Changes() concurrency.Signal {
	changes, _ := w.Follow(w.also...) // for as long as the watcher exists
	return changes
}

// Follow returns a signal that Run sets, first at once or at its start, and then after each
// change of the State, or of the keys prefixes or below them, until end is called. Readers that share a watcher follow what each of
// them needs.
func (w *Watcher) Follow(prefixes ...string) (changes concurrency.Signal, end func()) {
	f := &subscriber{prefixes, concurrency.NewSignal()}
	w.following.Lock()
	defer w.following.Unlock()
	w.subscribers = append(w.subscribers, f)
	if w.indexes != nil { // Run has begun
		f.signal.Notify()
	}
	return f.signal, func() {
		w.following.Lock()
		defer w.following.Unlock()
		w.subscribers = slices.DeleteFunc(w.subscribers, func(o *subscriber) bool { return o == f })
	}
}

// Run waits for changes until ctx ends; then it returns ctx's error. It returns
// ErrRestored as soon as it sees an index that went backwards. It keeps one
// blocking query for all keys and three for the catalog.
func (w *Watcher) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.watchKeys(ctx) })
	for health, f := range w.failing {
		g.Go(func() error { return w.watchCatalog(ctx, w.checksIn(health), f) })
	}
	g.Go(func() error { return w.watchCatalog(ctx, w.services, &followed{}) })
	return g.Wait()
}

// Bounds of the time for which changes are gathered before Consul is asked again.
// Consul goes through all keys of a prefix to find out when it changed, so changes
// are gathered for several times as long as the last State took. The first ones after a quiet time, such as the
// start and the end of a run on a few hosts, do not wait for that.
const (
	gatherShare  = 4
	gatherCredit = 200 * time.Millisecond
	gatherLeast  = 10 * time.Millisecond
	gatherMost   = time.Second
)

// notify sets all signals.
func (w *Watcher) notify() {
	w.following.Lock()
	defer w.following.Unlock()
	w.notifyAll()
}

// notifyAll sets all signals after a change of the State. Its caller holds following.
func (w *Watcher) notifyAll() {
	w.seen.Add(1)
	for _, s := range w.subscribers {
		s.signal.Notify()
	}
}

// gathering returns the pause of one loop before its next query.
func (w *Watcher) gathering() func(ctx context.Context) {
	rest := concurrency.Rest{Share: gatherShare, Credit: gatherCredit, Least: gatherLeast}
	return func(ctx context.Context) {
		w.mu.Lock()
		took := min(w.took, gatherMost/gatherShare) // what a long one leaves to rest must not outlast it
		w.mu.Unlock()
		_ = concurrency.Sleep(ctx, rest.After(took, time.Now())) // ends with ctx
	}
}

// watchCatalog sets the signals when source's value changes, or is no longer what the
// last State saw of it.
func (w *Watcher) watchCatalog(ctx context.Context, source consul.Source[uint64], f *followed) error {
	gather := w.gathering()
	return consul.Watch(ctx, w.cluster.client, consul.Query{}, source, func(u consul.Update[uint64]) {
		if u.Err == nil {
			w.mu.Lock()
			changed := u.Value != f.run.value
			f.run, f.notified = seen{u.Meta.Index, u.Value}, false
			changed = f.outdated() || changed
			w.mu.Unlock()
			if changed {
				w.notify()
			}
		}
		gather(ctx)
	})
}

// saw compares what State read of the checks with what Run saw of them.
func (w *Watcher) saw(d catalogDigest) {
	w.failing[consul.HealthCritical].state = seen{d.checks, d.critical}
	w.failing[consul.HealthWarning].state = seen{d.checks, d.warning}
	for _, f := range w.failing {
		if f.outdated() {
			w.notify()
		}
	}
}

// watchKeys sets the signals when a key of the State changes. One query blocks on
// all keys of the cluster. With the slash as separator all keys of a directory are
// one name, so no answer has more than a few.
func (w *Watcher) watchKeys(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	all := func(ctx context.Context, q consul.Query) ([]string, consul.Meta, error) {
		return w.cluster.client.KVKeys(ctx, w.cluster.store.Path(""), "/", q)
	}
	gather := w.gathering()
	_ = consul.Watch(ctx, w.cluster.client, consul.Query{}, all, func(u consul.Update[[]string]) {
		if u.Err != nil {
			return
		}
		if u.Reset && w.restored(ctx, u.Meta.Index) {
			cancel(ErrRestored)
			return
		}
		w.mu.Lock()
		w.highest = max(w.highest, u.Meta.Index)
		w.mu.Unlock()
		w.compare(w.keyIndexes(ctx))
		gather(ctx)
	}) // ends with ctx
	return context.Cause(ctx)
}

// compare sets the signals of the readers that follow a key that changed since the last
// answer; where that is not known, all of them.
func (w *Watcher) compare(indexes map[string]uint64, err error) {
	w.following.Lock()
	defer w.following.Unlock()
	last := w.indexes
	if w.indexes = indexes; err != nil {
		w.indexes = nil
	}
	differs := func(prefix string) bool {
		before, known := last[prefix]
		return !known || w.indexes == nil || before != indexes[prefix]
	}
	if slices.ContainsFunc(statePrefixes, differs) {
		w.notifyAll()
		return
	}
	for _, s := range w.subscribers {
		if slices.ContainsFunc(s.prefixes, differs) {
			s.signal.Notify()
		}
	}
}

// Index returns when the keys below prefix, one that is followed, last changed: what is
// read after it is at least as new. known is false while that is not known.
func (w *Watcher) Index(prefix string) (index uint64, known bool) {
	w.following.Lock()
	defer w.following.Unlock()
	index, known = w.indexes[prefix]
	return index, known
}

// statePrefixes are the keys of the State.
var statePrefixes = []string{cluster.PrefixCurrent, cluster.PrefixHosts, cluster.PrefixReports, cluster.PrefixChanges, cluster.KeyProfile}

// prefixes are the keys that Run compares.
func (w *Watcher) prefixes() []string {
	all := slices.Clone(statePrefixes)
	w.following.Lock()
	defer w.following.Unlock()
	for _, f := range w.subscribers {
		all = append(all, f.prefixes...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// keyIndexes reads when the keys that Run compares last changed, by prefix; 0: a prefix
// has no key.
func (w *Watcher) keyIndexes(ctx context.Context) (map[string]uint64, error) {
	indexes := map[string]uint64{}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	for _, prefix := range w.prefixes() {
		g.Go(func() error {
			path := w.cluster.store.Path(strings.TrimSuffix(prefix, "/"))
			names, meta, err := w.cluster.client.KVKeys(ctx, path, "/", consul.Query{})
			if len(names) == 0 {
				meta.Index = 0
			}
			mu.Lock()
			defer mu.Unlock()
			indexes[prefix] = meta.Index
			return err
		})
	}
	return indexes, g.Wait()
}

// restored reports whether Consul's data was restored or lost, after the index of
// the cluster's keys went back to index. That alone proves nothing: Consul forgets
// deletions after a while. It is one if a key that was read has a later index, or
// if the index of the whole KV is lower than one that was seen.
func (w *Watcher) restored(ctx context.Context, index uint64) bool {
	w.mu.Lock()
	a, highest := w.answers, w.highest
	read := max(latest(a.Members), latest(a.Holds), latest(a.Grants), latest(a.Results), latest(a.Reports), latest(a.Stages), latest(a.Runs))
	for _, i := range w.last.Indexes {
		read = max(read, i)
	}
	w.mu.Unlock()
	if index < read {
		return true
	}
	// The index of a key that does not exist is that of the whole KV.
	_, meta, err := w.cluster.client.KVGet(ctx, w.cluster.store.Path(cluster.PrefixCurrent+"/none"), consul.Query{Consistent: true})
	return err == nil && meta.Index < highest
}

func latest[T any](leaves map[string]kv.Leaf[T]) (index uint64) {
	for _, leaf := range leaves {
		index = max(index, leaf.Index)
	}
	return index
}

// services is when an instance of a service was registered or deregistered last.
func (w *Watcher) services(ctx context.Context, q consul.Query) (uint64, consul.Meta, error) {
	meta, err := w.cluster.client.ServicesIndex(ctx, q)
	return meta.Index, meta, err
}

// checksIn is a digest of the checks in a state. Consul has an index of the states, so
// checks that pass cost nothing.
func (w *Watcher) checksIn(state string) consul.Source[uint64] {
	return func(ctx context.Context, q consul.Query) (uint64, consul.Meta, error) {
		checks, meta, err := w.cluster.client.ChecksInState(ctx, state, q)
		return checksDigest(checks), meta, err
	}
}

// Reset makes the next State read everything again.
func (w *Watcher) Reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.whole = false
}

// State returns the state of the cluster as it is now. Its errors are those of
// Load.
func (w *Watcher) State(ctx context.Context) (cluster.State, error) {
	if err := w.mu.LockContext(ctx); err != nil {
		return cluster.State{}, err
	}
	defer w.mu.Unlock()
	return w.read(ctx)
}

// Recent returns the last State if Run has seen no change since it was asked for, and
// State otherwise. So readers that share a watcher cost Consul what one costs.
func (w *Watcher) Recent(ctx context.Context) (cluster.State, error) {
	if err := w.mu.LockContext(ctx); err != nil {
		return cluster.State{}, err
	}
	defer w.mu.Unlock()
	if w.whole && w.covers == w.seen.Load() {
		s := w.last
		s.Control = s.Stored.At(time.Now())
		return s, nil
	}
	return w.read(ctx)
}

// read is State. Its caller holds mu.
func (w *Watcher) read(ctx context.Context) (cluster.State, error) {
	begin, covers := time.Now(), w.seen.Load()
	defer func() { w.took = time.Since(begin) }()
	backwards := false
	if w.whole {
		w.whole = false // an error makes it stay so
		var err error
		if backwards, err = w.update(ctx); err != nil {
			return cluster.State{}, err
		}
	} else {
		backwards = true
	}
	if backwards {
		if err := w.readAll(ctx); err != nil {
			return cluster.State{}, err
		}
	}
	s, err := w.cluster.state(w.documents, w.answers, watched, &w.last, w.changed)
	if err != nil {
		return cluster.State{}, err
	}
	w.last, w.whole, w.covers = s, true, covers
	w.saw(w.catalog.last)
	return s, nil
}

// readAll reads everything, consistently. The indexes are read first: what
// changes in between is read again the next time.
func (w *Watcher) readAll(ctx context.Context) error {
	c := w.cluster.Consistent()
	w.last, w.changed = cluster.State{}, nil
	w.hosts, w.reports, w.catalog = newKeyTree(c, cluster.PrefixHosts), newKeyTree(c, cluster.PrefixReports), &catalogChanges{cluster: c}
	w.stages, w.runs = newKeyTree(c, cluster.PrefixStages), newKeyTree(c, cluster.PrefixActiveRuns)
	var err error
	if w.documents, err = c.get(watched, "").Commit(ctx); err != nil { // first, see voids
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		all, err := w.hosts.readAll(ctx, 0)
		w.answers.HostDocuments = c.decodeHosts(all.pairs)
		return err
	})
	g.Go(func() error {
		all, err := w.reports.readAll(ctx, 0)
		w.answers.Reports = c.reports.Decode(all.pairs)
		return err
	})
	for _, texts := range []struct {
		prefix string
		tree   *keyTree
		all    *map[string]kv.Leaf[string]
	}{{cluster.PrefixStages, w.stages, &w.answers.Stages}, {cluster.PrefixRuns, w.runs, &w.answers.Runs}} {
		if !w.follows(texts.prefix) {
			continue
		}
		g.Go(func() error {
			all, err := texts.tree.readAll(ctx, 0)
			*texts.all = kv.NewTextTree(c.store, texts.tree.prefix).Decode(all.pairs)
			return err
		})
	}
	g.Go(func() (err error) { w.answers.Catalog, _, _, err = w.catalog.read(ctx); return err })
	return g.Wait()
}

// update reads what has changed; backwards reports that an index did not grow,
// so that everything has to be read.
func (w *Watcher) update(outer context.Context) (backwards bool, err error) {
	c := w.cluster
	var documents *kv.Result
	var hosts, reports, stages, runs changedKeys
	var nodes map[string]cluster.CatalogHost
	var seen map[string]bool
	g, ctx := errgroup.WithContext(outer)
	g.Go(func() (err error) { documents, err = c.get(watched, "").Commit(ctx); return err })
	g.Go(func() (err error) { hosts, err = w.hosts.changed(ctx); return err })
	g.Go(func() (err error) { reports, err = w.reports.changed(ctx); return err })
	if w.follows(cluster.PrefixStages) {
		g.Go(func() (err error) { stages, err = w.stages.changed(ctx); return err })
	}
	if w.follows(cluster.PrefixRuns) {
		g.Go(func() (err error) { runs, err = w.runs.changed(ctx); return err })
	}
	g.Go(func() (err error) { nodes, seen, backwards, err = w.catalog.read(ctx); return err })
	if err := g.Wait(); err != nil {
		return false, err
	}
	if hosts.backwards || reports.backwards || stages.backwards || runs.backwards || backwards {
		return true, nil
	}
	var late changedKeys
	if w.voids(documents) {
		if late, err = w.reports.changed(outer); err != nil || late.backwards {
			return late.backwards, err
		}
	}
	w.documents, w.answers.Catalog = documents, nodes
	fresh, text := c.decodeHosts(hosts.pairs), kv.NewTextTree(c.store, cluster.PrefixHosts)
	update(w.answers.Members, c.members, fresh.Members, hosts.gone)
	update(w.answers.Holds, c.holds, fresh.Holds, hosts.gone)
	update(w.answers.Grants, text.Ending(cluster.EndGrants), fresh.Grants, hosts.gone)
	update(w.answers.Results, text.Ending(cluster.EndResults), fresh.Results, hosts.gone)
	for _, read := range []changedKeys{reports, late} {
		update(w.answers.Reports, c.reports, c.reports.Decode(read.pairs), read.gone)
	}
	tree, marks := kv.NewTextTree(c.store, cluster.PrefixStages), kv.NewTextTree(c.store, cluster.PrefixActiveRuns)
	update(w.answers.Stages, tree, tree.Decode(stages.pairs), stages.gone)
	update(w.answers.Runs, marks, marks.Decode(runs.pairs), runs.gone)
	if w.changed = seen; seen != nil {
		hosts.names(c, seen)
		reports.names(c, seen)
		late.names(c, seen)
	}
	return false, nil
}

// voids reports whether documents differ from the ones before in what voids offers. A report that is older than them may
// lack an acceptance that came before that, so reports are read again: otherwise the place of the host would count
// as free.
func (w *Watcher) voids(documents *kv.Result) bool {
	before := w.documents
	return slices.ContainsFunc([]string{cluster.KeyControl, cluster.KeyDesired, cluster.KeyVersion}, func(key string) bool { return documents.Index(key) != before.Index(key) })
}

// names adds the nodes of the keys to all.
func (k changedKeys) names(c *Cluster, all map[string]bool) {
	add := func(path string) {
		if node, ok := cluster.NodeOf(strings.TrimPrefix(path, c.store.Path(""))); ok {
			all[node] = true
		}
	}
	for _, p := range k.pairs {
		add(p.Key)
	}
	for _, path := range k.gone {
		add(path)
	}
}

// update puts the documents of tree that were written into known, and removes the
// ones that were deleted.
func update[T any](known map[string]kv.Leaf[T], tree kv.Tree[T], written map[string]kv.Leaf[T], gone []string) {
	for _, path := range gone {
		if name, ok := tree.Name(path); ok {
			delete(known, name)
		}
	}
	maps.Copy(known, written)
}
