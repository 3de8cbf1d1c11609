package fleet

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/text"
)

// indexPlace is the place of a state's index keys: running_version/<name>/ has no
// category. Index keys are a projection of the documents for foreign readers.
// jorc never reads them to learn about a node.
type indexPlace struct{ category, name string }

func (s indexPlace) key(node string) string {
	if s.category == "" {
		return runningKey(s.name, node)
	}
	return statusKey(s.category, s.name, node)
}

func (s indexPlace) compare(o indexPlace) int {
	return cmp.Or(cmp.Compare(s.category, o.category), cmp.Compare(s.name, o.name))
}

// parseIndexKey reads the name of an index key; ok is false for other keys.
func parseIndexKey(key string) (s indexPlace, node string, ok bool) {
	if rest, running := strings.CutPrefix(key, cluster.PrefixRunning); running {
		s.name, node, _ = strings.Cut(rest, "/")
		return s, node, s.name != "" && cluster.CheckNode(node) == nil
	}
	rest, status := strings.CutPrefix(key, cluster.PrefixStatus)
	s.category, rest, _ = strings.Cut(rest, "/")
	s.name, node, _ = strings.Cut(rest, "/")
	return s, node, status && s.category != "" && s.name != "" && cluster.CheckNode(node) == nil
}

// indexWrite is one write to an index key.
type indexWrite struct {
	key    string
	value  []byte
	remove bool
}

// add adds the operation to t.
func (o indexWrite) add(t *kv.Txn) {
	if o.remove {
		t.Delete(o.key)
		return
	}
	t.Set(o.key, o.value)
}

// indexOf is the index keys that follow from a document.
func indexOf(d cluster.Report) map[indexPlace]string {
	want := make(map[indexPlace]string, 1+len(d.States))
	if d.Version != "" {
		want[indexPlace{"", d.Version}] = d.Since.Format(time.RFC3339)
	}
	for category, s := range d.States {
		want[indexPlace{category, s.State}] = string(indexValue(s))
	}
	return want
}

// indexWrites returns the writes that make node's index keys want, where they
// are have.
func indexWrites(node string, have, want map[indexPlace]string) []indexWrite {
	var ops []indexWrite
	all := maps.Clone(want)
	maps.Copy(all, have)
	for _, s := range slices.SortedFunc(maps.Keys(all), indexPlace.compare) {
		value, wanted := want[s]
		if old, there := have[s]; there == wanted && old == value {
			continue
		}
		ops = append(ops, indexWrite{key: s.key(node), value: []byte(value), remove: !wanted})
	}
	return ops
}

// deniedProjection reports whether err says that the token may not write an index
// key.
func (c *Cluster) deniedProjection(err error) bool {
	var denied *consul.Error
	if !errors.As(err, &denied) || !errors.Is(err, consul.ErrDenied) {
		return false
	}
	_, _, index := parseIndexKey(strings.TrimPrefix(denied.Name, c.store.Path("")))
	return index
}

// Projector keeps the index keys of all nodes in step with their documents, for
// the holder of a lock. It is used by one goroutine at a time.
type Projector struct {
	ledger *Cluster
	have   map[string]map[indexPlace]string // by node; nil: not read yet
}

// NewProjector returns a projector that writes to s, the store of a held lock.
func (c *Cluster) NewProjector(s *kv.Store) *Projector { return &Projector{ledger: c.In(s)} }

// Project writes what of the index keys is not what documents say, as many at a
// time as a transaction takes. The first time it reads all index keys, and
// deletes the ones that name a node with a document and do not follow from it. A
// document that cannot be read leaves its node's keys as they are. It returns
// kv.ErrLockLost or a class of package consul.
func (p *Projector) Project(ctx context.Context, documents map[string]kv.Leaf[cluster.Report]) error {
	if p.have == nil {
		have, err := p.ledger.indexKeys(ctx)
		if err != nil {
			return err
		}
		p.have = map[string]map[indexPlace]string{}
		for node, keys := range have {
			if _, reports := documents[node]; reports {
				p.have[node] = keys
			}
		}
	}
	t, pending := p.ledger.store.Txn(), map[string]map[indexPlace]string{}
	commit := func() error {
		if len(pending) == 0 {
			return nil
		}
		if _, err := t.Commit(ctx); err != nil {
			p.have = nil // what was written is not known
			return err
		}
		maps.Copy(p.have, pending)
		t, pending = p.ledger.store.Txn(), map[string]map[indexPlace]string{}
		return nil
	}
	nodes := maps.Clone(documents)
	for node := range p.have {
		if _, reports := nodes[node]; !reports {
			nodes[node] = kv.Leaf[cluster.Report]{} // it was decommissioned
		}
	}
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		leaf := nodes[node]
		if leaf.Err != nil || cluster.CheckNode(node) != nil {
			continue
		}
		want := indexOf(leaf.Value)
		ops := indexWrites(node, p.have[node], want)
		if len(ops) == 0 {
			continue
		}
		if t.Len()+len(ops) > kv.MaxOps || t.Size() > kv.MaxBody/2 {
			if err := commit(); err != nil {
				return err
			}
		}
		for _, o := range ops[:min(len(ops), kv.MaxOps-t.Len())] {
			o.add(t)
		}
		pending[node] = want
	}
	return commit()
}

// indexKeys reads all index keys, by node; what has no meaning is left out.
func (c *Cluster) indexKeys(ctx context.Context) (map[string]map[indexPlace]string, error) {
	all := map[string]map[indexPlace]string{}
	for _, prefix := range []string{cluster.PrefixRunning, cluster.PrefixStatus} {
		tree, err := kv.NewTextTree(c.store, prefix).List(ctx)
		if err != nil {
			return nil, err
		}
		for name, leaf := range tree {
			s, node, ok := parseIndexKey(prefix + name)
			if !ok {
				continue
			}
			if all[node] == nil {
				all[node] = map[indexPlace]string{}
			}
			all[node][s] = leaf.Value
		}
	}
	return all, nil
}

// reportFromIndex is what index keys tell of a node whose document is damaged.
func reportFromIndex(index map[indexPlace]string) cluster.Report {
	var d cluster.Report
	for _, s := range slices.SortedFunc(maps.Keys(index), indexPlace.compare) {
		switch {
		case !s.usable():
		case s.category == "":
			d.Version, d.Since = s.name, parseTime(index[s])
		default:
			if d.States == nil {
				d.States = map[string]cluster.CategoryState{}
			}
			d.States[s.category] = stateOf(s.name, index[s])
		}
	}
	return d
}

// usable reports whether a document can hold the slot.
func (s indexPlace) usable() bool {
	if s.category == "" {
		return cluster.CheckVersion(s.name) == nil
	}
	return cluster.CheckCategory(s.category) == nil && slices.Contains(cluster.States(), s.name)
}

// stateOf reads a state from its index key; scripts write other values than
// jorc does.
func stateOf(state, value string) cluster.CategoryState {
	var s cluster.CategoryState
	if trimmed := bytes.TrimSpace([]byte(value)); len(trimmed) > 0 && trimmed[0] == '{' {
		if err := s.UnmarshalJSON(trimmed); err != nil {
			s = cluster.CategoryState{}
		}
	}
	if s.Since.IsZero() {
		s.Since = parseTime(value)
	}
	return cluster.CategoryState{State: state, Since: s.Since, Detail: text.Tail(s.Detail, cluster.MaxDetail), Version: s.Version, LogURL: s.LogURL}
}

// parseTime reads RFC 3339; the zero time means anything else.
func parseTime(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Second)
}

func runningKey(version, node string) string { return cluster.PrefixRunning + version + "/" + node }

func statusKey(category, state, node string) string {
	return cluster.PrefixStatus + category + "/" + state + "/" + node
}

// indexValue is the value of a state's index key.
func indexValue(s cluster.CategoryState) []byte {
	value, err := cluster.Encode(struct {
		Since   time.Time `json:"since,omitzero"`
		Detail  string    `json:"detail,omitempty"`
		Version string    `json:"version,omitempty"`
		LogURL  string    `json:"log_url,omitempty"`
	}{s.Since, s.Detail, s.Version, s.LogURL})
	if err != nil {
		return []byte("{}") // a time beyond the year 9999
	}
	return value
}

// Repaired is what a pass over all nodes found and did.
type Repaired struct {
	Nodes   int      `json:"nodes"`   // with a document
	Fixed   []string `json:"fixed"`   // nodes whose index keys or document were not right
	Orphans []string `json:"orphans"` // nodes with index keys and no document: left alone
	Strange []string `json:"strange"` // keys that have no meaning: left alone
}

// Repair puts right what another process wrote past the documents: three reads
// of all there is, and a few for each node that it fixes. Only writes that
// change something are made. It returns what ReportWriter.Change returns.
func (c *Cluster) Repair(ctx context.Context) (Repaired, error) {
	r := Repaired{Fixed: []string{}, Orphans: []string{}, Strange: []string{}}
	documents, index, err := c.readAllReports(ctx, &r)
	if err != nil {
		return r, err
	}
	r.Nodes = len(documents)
	for _, node := range slices.Sorted(maps.Keys(index)) {
		if _, ok := documents[node]; !ok {
			r.Orphans = append(r.Orphans, node)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(documents)) {
		leaf := documents[node]
		if errors.Is(leaf.Err, kv.ErrNewer) || cluster.CheckNode(node) != nil {
			r.Strange = append(r.Strange, cluster.PrefixReports+node)
			continue
		}
		want, d := indexOf(leaf.Value), leaf.Value
		if leaf.Err != nil {
			d = reportFromIndex(index[node])
			want = indexOf(d)
		}
		ops := indexWrites(node, index[node], want)
		if leaf.Err == nil && len(ops) == 0 {
			continue
		}
		if err := c.repairIndex(ctx, node, leaf, d, ops); err != nil {
			return r, err
		}
		r.Fixed = append(r.Fixed, node)
	}
	return r, nil
}

// repairIndex carries out ops, as long as node's document stays as it was read; one
// that is damaged becomes d. What changed meanwhile is left to the next pass.
func (c *Cluster) repairIndex(ctx context.Context, node string, leaf kv.Leaf[cluster.Report], d cluster.Report, ops []indexWrite) error {
	doc := c.reports.At(node)
	t, index := c.store.Txn(), leaf.Index
	if leaf.Err != nil {
		doc.SwapIn(t, leaf.Entry, d)
	} else {
		t.CheckIndex(doc.Key(), index)
	}
	for {
		n := min(len(ops), kv.MaxOps-t.Len())
		for _, o := range ops[:n] {
			o.add(t)
		}
		ops = ops[n:]
		r, err := t.Commit(ctx)
		if errors.Is(err, kv.ErrConflict) {
			return nil // the node has just reported
		}
		if err != nil || len(ops) == 0 {
			return err
		}
		if now := r.Index(doc.Key()); now != 0 {
			index = now
		}
		t = c.store.Txn().CheckIndex(doc.Key(), index)
	}
}

// readAllReports reads all documents, and all index keys by node.
func (c *Cluster) readAllReports(ctx context.Context, r *Repaired) (map[string]kv.Leaf[cluster.Report], map[string]map[indexPlace]string, error) {
	var documents map[string]kv.Leaf[cluster.Report]
	var running, status map[string]kv.Leaf[string]
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { documents, err = c.reports.List(ctx); return err })
	g.Go(func() (err error) {
		running, err = kv.NewTextTree(c.store, cluster.PrefixRunning).List(ctx)
		return err
	})
	g.Go(func() (err error) { status, err = kv.NewTextTree(c.store, cluster.PrefixStatus).List(ctx); return err })
	g.Go(func() error {
		return c.mayRead(ctx, cluster.PrefixReports, cluster.PrefixRunning, cluster.PrefixStatus)
	})
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	index := map[string]map[indexPlace]string{}
	for prefix, tree := range map[string]map[string]kv.Leaf[string]{cluster.PrefixRunning: running, cluster.PrefixStatus: status} {
		for name, leaf := range tree {
			s, node, ok := parseIndexKey(prefix + name)
			if !ok {
				r.Strange = append(r.Strange, prefix+name)
				continue
			}
			if index[node] == nil {
				index[node] = map[indexPlace]string{}
			}
			index[node][s] = leaf.Value
		}
	}
	slices.Sort(r.Strange)
	return documents, index, nil
}
