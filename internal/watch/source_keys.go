package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	dep "github.com/hashicorp/consul-template/dependency"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
)

// A group whose prefix holds far more than is wanted of it is wide: its values
// are not read whole, only what is wanted is.
const (
	wideFactor = 4
	wideFloor  = 256
)

// keyWithin bounds the pauses of a query on keys that do not exist, which Consul answers
// after each write of any key.
const keyWithin = 300 * time.Millisecond

// noKeys is the content of an answer without keys, whose index is that of all keys.
const noKeys = 1

// txnReads is Consul's limit on the operations of one transaction.
const txnReads = 64

// watchGroup follows a group of keys and prefixes with one blocking query. most is what
// its templates may read together, in bytes.
func (s *sources) watchGroup(ctx context.Context, g *group, most int) {
	w := &groupWatcher{sources: s, group: g, most: most, seen: map[string]uint64{}}
	q := g.scope.query()
	q.MaxPause = keyWithin
	if g.exact() {
		s.follow(ctx, q, w.readKey, w.handle(ctx))
		return
	}
	narrow, tooWide := context.WithCancel(ctx)
	defer tooWide()
	w.tooWide = tooWide
	s.follow(narrow, q, w.readPrefix, w.handle(ctx))
	w.setEmpty(false)
	if ctx.Err() == nil {
		s.follow(ctx, q, w.readWanted, w.handle(ctx))
	}
}

type groupWatcher struct {
	*sources
	group    *group
	most     int
	wanted   []*dependency    // of the group, those whose names Consul takes; nil: not asked yet
	refused  map[string]error // name → why Consul refuses it
	prefix   string           // of the query; all wanted names begin with it
	tooWide  context.CancelFunc
	filtered bool // the last answer lacked keys that the token may not see, but none that is wanted
	empty    bool // the last answer had no key, and the token may see them
	waited   bool // since the last answer, only the family's query knew that the group is empty
	tracker  tracker
	seen     map[string]uint64 // dependency id → index of what was sent; see fingerprint
	took     time.Duration
}

// pairsByKey is what a group's query brought: the pairs in order of keys.
type pairsByKey struct {
	list   consul.KVPairs
	by     map[string]*consul.KVPair
	denied map[string]error // dependency id → what the token may not see
	// lists are the pairs of prefixes that were read by themselves; tooMuch is what was
	// not read to its end. By dependency id.
	lists   map[string]consul.KVPairs
	tooMuch map[string]error
	size    int // of what was read alone
}

// below returns the pairs that may belong to the prefix d.
func (p *pairsByKey) below(d *dependency) consul.KVPairs {
	if list, ok := p.lists[d.id]; ok {
		return list
	}
	return p.list
}

// readable is the group's prefix, or its directory where Consul may refuse the prefix
// although it takes the names themselves.
func (g *group) readable() string {
	if g.deps[0].name == g.prefix { // it is wanted itself
		return g.prefix
	}
	return readable(g.prefix)
}

// readable is a prefix, or its directory where it ends within a segment in a way that Consul
// refuses: "app/.", or "app/b " of "app/b 1".
func readable(prefix string) string {
	dir := prefix[:strings.LastIndexByte(prefix, '/')+1]
	last := prefix[len(dir):]
	if last == "." || last == ".." || strings.HasSuffix(last, " ") || !utf8.ValidString(last) {
		return dir
	}
	return prefix
}

// askNames finds out which names of the group Consul refuses. They concern only the
// templates that use them: the query is about the others.
func (w *groupWatcher) askNames(ctx context.Context) error {
	if w.wanted != nil {
		return nil
	}
	names := make([]string, len(w.group.deps))
	for i, d := range w.group.deps {
		names[i] = d.name
	}
	refused, err := w.client.RefusedKeys(ctx, names...)
	if err != nil {
		return err
	}
	w.refused = refused
	wanted := slices.DeleteFunc(slices.Clone(w.group.deps), func(d *dependency) bool { return refused[d.name] != nil })
	if len(wanted) == 0 {
		return refused[names[0]]
	}
	w.wanted, w.prefix = wanted, (&group{prefix: shared(wanted), deps: wanted}).readable()
	return nil
}

func newPairs(list consul.KVPairs) *pairsByKey {
	p := &pairsByKey{list: list, by: make(map[string]*consul.KVPair, len(list)), denied: map[string]error{}, lists: map[string]consul.KVPairs{}, tooMuch: map[string]error{}}
	for _, pair := range list {
		p.by[pair.Key] = pair
	}
	return p
}

func (w *groupWatcher) readKey(ctx context.Context, q consul.Query) (any, consul.Meta, error) {
	pair, meta, err := w.client.KVGet(ctx, w.group.prefix, w.in(q))
	if err != nil || pair == nil {
		return newPairs(nil), meta, err
	}
	pairs := newPairs(nil)
	pairs.by[w.group.prefix] = pair // in JSON, a key that is not UTF-8 has another name
	return pairs, meta, nil
}

// readPrefix reads all of the group's prefix.
func (w *groupWatcher) readPrefix(ctx context.Context, q consul.Query) (any, consul.Meta, error) {
	if err := w.askNames(ctx); err != nil {
		return nil, consul.Meta{}, err
	}
	found := false
	if w.empty && q.Index > 0 {
		ok, err := w.awaitName(ctx, &q)
		if !ok {
			return newPairs(nil), consul.Meta{Index: q.Index, Content: noKeys}, err
		}
		found = q.Index == 0
	}
	w.waited = false
	list, meta, err := w.client.KVList(ctx, w.prefix, w.in(q))
	tooLong := errors.Is(err, consul.ErrTooLong)
	if err != nil && !tooLong {
		return nil, meta, err
	}
	if tooLong || w.wide(len(list)) {
		w.tooWide()
		return nil, meta, context.Canceled
	}
	if len(list) == 0 && !found {
		meta.Content = noKeys
	}
	pairs := newPairs(list)
	err = w.confirm(ctx, pairs, meta.Filtered)
	// The answer may be that of a token which has been exchanged since, the rights those of the new one.
	again := meta.Filtered && !w.filtered
	w.filtered = meta.Filtered && len(pairs.denied) == 0
	meta.Partial = len(pairs.denied) > 0 || again
	w.setEmpty(err == nil && len(list) == 0 && !meta.Partial)
	return pairs, meta, err
}

// awaitName waits in place of q while the group is empty; see emptyGroups. ok: q is to be sent.
// After a wait it has no index, because Consul may have lost the state that the index is of.
func (w *groupWatcher) awaitName(ctx context.Context, q *consul.Query) (ok bool, err error) {
	e := w.emptyGroupsOf(w.group.scope, w.prefix)
	if e == nil {
		ok = true
	} else {
		e.note(w.prefix, true)
		var waited bool
		ok, waited, err = e.await(ctx, w.prefix, q.Wait)
		w.waited = w.waited || waited
	}
	if ok && w.waited {
		q.Index, q.Wait, q.Consistent = 0, 0, true
	}
	return ok, err
}

// setEmpty notes whether the group is empty, for its family.
func (w *groupWatcher) setEmpty(empty bool) {
	if w.empty && !empty {
		if e := w.emptyGroupsOf(w.group.scope, w.prefix); e != nil {
			e.note(w.prefix, false)
		}
	}
	w.empty = empty
}

// wide reports whether most of what the prefix holds is not wanted.
func (w *groupWatcher) wide(found int) bool {
	if w.group.scope.datacenter != "" {
		return false // transactions read in the own datacenter
	}
	for _, d := range w.group.deps {
		if d.kind == kindPrefix {
			return false // all below it is wanted, and it may be all there is
		}
	}
	return found > wideFactor*len(w.group.deps)+wideFloor
}

// readWanted blocks on the names below a prefix that is wide, or whose pairs are too
// much, cut at the next slash, and then reads what is wanted alone: one dependency that is
// too large does not trouble the others.
func (w *groupWatcher) readWanted(ctx context.Context, q consul.Query) (any, consul.Meta, error) {
	if err := concurrency.Sleep(ctx, min(4*w.took, time.Second)); err != nil {
		return nil, consul.Meta{}, err
	}
	if err := w.askNames(ctx); err != nil {
		return nil, consul.Meta{}, err
	}
	_, meta, err := w.client.KVKeys(ctx, w.prefix, "/", w.in(q))
	if err != nil {
		return nil, meta, err
	}
	start := time.Now()
	pairs := newPairs(nil)
	var keys []*dependency
	for _, d := range w.wanted {
		if d.kind == kindKey && w.group.scope.datacenter == "" {
			pairs.by[d.name] = nil
			keys = append(keys, d)
			continue
		}
		if err := w.readOne(ctx, pairs, d); err != nil {
			return nil, meta, err
		}
	}
	for some := range slices.Chunk(keys, txnReads) {
		if err := w.readSome(ctx, pairs, some); err != nil {
			return nil, meta, err
		}
	}
	w.took = time.Since(start)
	meta.Partial = len(pairs.denied) > 0
	return pairs, meta, nil
}

// readOne reads a prefix, or a key of another datacenter, where no transaction reads.
func (w *groupWatcher) readOne(ctx context.Context, pairs *pairsByKey, d *dependency) error {
	if w.full(pairs, d) {
		return nil
	}
	q := w.in(consul.Query{Consistent: true})
	if d.kind == kindKey {
		pair, _, err := w.client.KVGet(ctx, d.name, q)
		if pairs.by[d.name] = pair; pair != nil {
			pairs.size += len(pair.Value)
		}
		return err
	}
	list, meta, err := w.client.KVList(ctx, d.name, q)
	if errors.Is(err, consul.ErrTooLong) {
		pairs.tooMuch[d.id] = err
		return nil
	}
	if err != nil {
		return err
	}
	pairs.lists[d.id] = list
	for _, p := range list {
		pairs.size += len(p.Value)
	}
	err = w.rights.verify(ctx, d, meta.Filtered, len(list) == 0)
	if errors.Is(err, consul.ErrDenied) {
		pairs.denied[d.id] = err
		return nil
	}
	return err
}

// full reports whether the group's templates have read as much as they may together;
// then nothing more is read for them.
func (w *groupWatcher) full(pairs *pairsByKey, deps ...*dependency) bool {
	if pairs.size <= w.most {
		return false
	}
	for _, d := range deps {
		pairs.tooMuch[d.id] = fmt.Errorf("%w: what was read before it has %d bytes", consul.ErrTooLong, pairs.size)
	}
	return true
}

// readSome reads keys in one transaction.
func (w *groupWatcher) readSome(ctx context.Context, pairs *pairsByKey, deps []*dependency) error {
	if w.full(pairs, deps...) {
		return nil
	}
	ops := make(consul.TxnOps, len(deps))
	for i, d := range deps {
		ops[i] = &consul.TxnOp{KV: &consul.KVTxnOp{
			Verb: consul.KVGetOrEmpty, Key: d.name, Namespace: d.scope.namespace, Partition: d.scope.partition,
		}}
	}
	// Unlike the query that blocked, it could be answered from an older state.
	resp, err := w.client.TxnRead(ctx, deps[0].name, ops, consul.Query{Consistent: true})
	if err != nil {
		return err
	}
	if len(resp.Errors) > 0 {
		return &consul.Error{Op: "read key", Name: deps[resp.Errors[0].OpIndex].name, Class: consul.ErrDenied, Err: errors.New(resp.Errors[0].What)}
	}
	answered := make(map[string]bool, len(deps))
	for _, r := range resp.Results {
		if r.KV == nil {
			continue
		}
		answered[r.KV.Key] = true
		if r.KV.ModifyIndex > 0 {
			pairs.by[r.KV.Key] = r.KV
			pairs.size += len(r.KV.Value)
		}
	}
	for _, d := range deps {
		if !answered[d.name] { // even a key that does not exist has an answer
			pairs.denied[d.id] = denied(d, rightFor(d), "Consul left out what the token may not see")
		}
	}
	return nil
}

func (w *groupWatcher) in(q consul.Query) consul.Query {
	scoped := w.group.scope.query()
	scoped.Index, scoped.Wait, scoped.Consistent = q.Index, q.Wait, q.Consistent
	scoped.MaxBytes = answerOf(w.maxData)
	return scoped
}

// handle sends what has changed since the last answer, and nothing else: the
// cost of a change does not follow the size of its group.
func (w *groupWatcher) handle(ctx context.Context) func(consul.Update[any]) {
	return func(u consul.Update[any]) {
		if u.Err != nil {
			w.send(ctx, w.failed(u))
			clear(w.seen)
			w.setEmpty(false)
			w.wanted = nil // another Consul may refuse other names
			return
		}
		if u.Reset {
			clear(w.seen) // an index may belong to another value now
		}
		pairs := u.Value.(*pairsByKey)
		doubt := w.tracker.doubt(u.Reset)
		w.tracker.failed = false
		now := time.Now()
		var changes []change
		for _, d := range w.group.deps {
			if err := cmp.Or(pairs.denied[d.id], pairs.tooMuch[d.id], w.refused[d.name]); err != nil {
				delete(w.seen, d.id)
				changes = append(changes, change{id: d.id, err: err, at: now})
				continue
			}
			mark := fingerprint(d, pairs)
			if seen, ok := w.seen[d.id]; ok && seen == mark {
				continue
			}
			w.seen[d.id] = mark
			changes = append(changes, change{id: d.id, value: w.value(d, pairs), index: u.Meta.Index, doubt: doubt, at: now})
		}
		w.send(ctx, changes)
	}
}

// failed is what the failure of a query means: to names that Consul refuses, only that.
func (w *groupWatcher) failed(u consul.Update[any]) []change {
	changes := w.tracker.changes(u, w.group.deps...)
	for i, d := range w.group.deps {
		if err := w.refused[d.name]; err != nil {
			changes[i].err = err
		}
	}
	return changes
}

// fingerprint changes when the data of d may have: for a key its index, for a
// prefix the sum of all its pairs' (mixed with their names, since a deletion
// leaves the other indexes alone).
func fingerprint(d *dependency, pairs *pairsByKey) uint64 {
	if d.kind == kindKey {
		if p := pairs.by[d.name]; p != nil {
			return p.ModifyIndex
		}
		return 0
	}
	var sum uint64 = 1
	for _, p := range pairs.below(d) {
		if !strings.HasPrefix(p.Key, d.name) {
			continue
		}
		sum = sum*1099511628211 ^ p.ModifyIndex
		for i := range len(p.Key) {
			sum = sum*1099511628211 ^ uint64(p.Key[i])
		}
	}
	return sum
}

// value is what templates see of d: a string, nil for a key that does not
// exist, or consul-template's pairs of a prefix.
func (w *groupWatcher) value(d *dependency, pairs *pairsByKey) any {
	if d.kind == kindKey {
		if p := pairs.by[d.name]; p != nil {
			return string(p.Value)
		}
		return nil
	}
	list := []*dep.KeyPair{}
	for _, p := range pairs.below(d) {
		if !strings.HasPrefix(p.Key, d.name) {
			continue
		}
		key := strings.Clone(p.Key) // pairs share their memory
		list = append(list, &dep.KeyPair{
			Path: key, Key: strings.TrimLeft(key[len(d.name):], "/"), Value: string(p.Value),
			CreateIndex: p.CreateIndex, ModifyIndex: p.ModifyIndex, LockIndex: p.LockIndex,
			Flags: p.Flags, Session: p.Session,
		})
	}
	return list
}

// confirm finds out whether what a list did not bring is not there or may not
// be seen. What may not be seen concerns only the templates that use it.
func (w *groupWatcher) confirm(ctx context.Context, pairs *pairsByKey, filtered bool) error {
	var absent []*dependency
	for _, d := range w.wanted {
		if d.kind == kindPrefix {
			if err := w.confirmPrefix(ctx, pairs, d, filtered); err != nil {
				return err
			}
			continue
		}
		if mark, ok := w.seen[d.id]; pairs.by[d.name] == nil && (!ok || mark != 0 || filtered) {
			absent = append(absent, d)
		}
	}
	for len(absent) > 0 {
		some := absent[:min(len(absent), rightsAtOnce)]
		absent = absent[len(some):]
		if err := w.rights.confirm(ctx, some, pairs.denied); err != nil {
			return err
		}
	}
	return nil
}

func (w *groupWatcher) confirmPrefix(ctx context.Context, pairs *pairsByKey, d *dependency, filtered bool) error {
	empty := true
	for _, p := range pairs.list {
		if strings.HasPrefix(p.Key, d.name) {
			empty = false
			break
		}
	}
	if filtered && d.name != w.prefix { // was it something outside of d?
		_, meta, err := w.client.KVList(ctx, d.name, d.scope.query())
		if err != nil {
			return err
		}
		filtered = meta.Filtered
	}
	err := w.rights.verify(ctx, d, filtered, empty)
	if errors.Is(err, consul.ErrDenied) {
		pairs.denied[d.id] = err
		return nil
	}
	return err
}

// mostNames bounds the answer of a family's query, in bytes. Consul makes the whole list for
// it, so one that is longer is asked for again only after longRest. One that Consul refuses
// costs less.
const (
	mostNames   = 32 << 10
	longRest    = 15 * time.Minute
	refusedRest = time.Minute
)

// emptyGroups follows, with one blocking query, the names of the keys below the prefix of a
// family for those of its groups that hold no key. Consul answers a query on a prefix without
// keys after each write of any key, since its index is that of all keys. A group that is
// empty waits for a name of its own here and asks Consul nothing.
type emptyGroups struct {
	*sources
	family *family
	found  concurrency.Latest[foundNames]
	more   concurrency.Signal // another group is empty
	end    context.CancelFunc // of the query
	rest   time.Duration      // after it

	mu    sync.Mutex
	empty map[string]bool // prefixes of groups
}

// foundNames is the last answer of a family's query.
type foundNames struct {
	known bool
	names []string // in order
	err   error
}

func newEmptyGroups(s *sources, f *family) *emptyGroups {
	return &emptyGroups{sources: s, family: f, more: concurrency.NewSignal(), empty: map[string]bool{}}
}

// run asks Consul while enough groups are empty, until ctx ends.
func (e *emptyGroups) run(ctx context.Context) {
	for ctx.Err() == nil {
		if !e.enough() {
			_ = e.more.Wait(ctx) // the loop ends with ctx
			continue
		}
		var asking context.Context
		asking, e.end = context.WithCancel(ctx)
		e.rest = 0
		q := e.family.scope.query()
		q.MaxPause = keyWithin
		e.follow(asking, q, e.read, e.handle)
		e.end()
		e.found.Set(foundNames{}) // the groups ask themselves
		_ = concurrency.Sleep(ctx, e.rest)
	}
}

func (e *emptyGroups) read(ctx context.Context, q consul.Query) (any, consul.Meta, error) {
	if !e.enough() {
		e.end()
		return nil, consul.Meta{}, context.Canceled
	}
	scoped := e.family.scope.query()
	scoped.Index, scoped.Wait, scoped.Consistent, scoped.MaxBytes = q.Index, q.Wait, q.Consistent, mostNames
	names, meta, err := e.client.KVKeys(ctx, e.family.prefix, "", scoped)
	meta.Partial = meta.Filtered // a right that is granted later ends no query
	odd := func(name string) bool { return strings.ContainsRune(name, utf8.RuneError) }
	switch {
	case errors.Is(err, consul.ErrTooLong), slices.ContainsFunc(names, odd): // in JSON, a key that is not UTF-8 has another name
		e.rest = longRest
	case errors.Is(err, consul.ErrDenied), consul.IsPermanent(err):
		e.rest = refusedRest
	case err == nil && !e.concerns(names):
		meta.Content = noKeys
	}
	if e.rest > 0 {
		e.end()
		return nil, meta, context.Canceled
	}
	return names, meta, err
}

func (e *emptyGroups) handle(u consul.Update[any]) {
	names, _ := u.Value.([]string) // nil with an error
	e.found.Set(foundNames{known: true, names: names, err: u.Err})
}

// enough reports whether so many groups are empty that one query is worth its cost.
func (e *emptyGroups) enough() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.empty) >= max(2, e.family.groups/4)
}

// concerns reports whether one of the names belongs to a group that was empty.
func (e *emptyGroups) concerns(names []string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for prefix := range e.empty {
		if anyBelow(names, prefix) {
			return true
		}
	}
	return false
}

// anyBelow reports whether one of the sorted names begins with prefix.
func anyBelow(names []string, prefix string) bool {
	i, _ := slices.BinarySearch(names, prefix)
	return i < len(names) && strings.HasPrefix(names[i], prefix)
}

// note remembers whether the group of a prefix is empty.
func (e *emptyGroups) note(prefix string, empty bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !empty {
		delete(e.empty, prefix)
		return
	}
	e.empty[prefix] = true
	e.more.Notify()
}

// await returns when the group of a prefix, which was empty, has to ask Consul itself: a key
// may be there, or the family knows nothing. ok is false if it is still empty after most.
// waited: it was empty for a time that only the family knows about.
func (e *emptyGroups) await(ctx context.Context, prefix string, most time.Duration) (ok, waited bool, err error) {
	ask := func(f foundNames) bool {
		return !f.known || f.err != nil || anyBelow(f.names, prefix)
	}
	if first, _ := e.found.Get(); ask(first) {
		return true, false, nil
	}
	within, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	last, err := e.found.Wait(within, ask)
	switch {
	case ctx.Err() != nil:
		return false, true, ctx.Err()
	case err != nil:
		return false, true, nil
	case errors.Is(last.err, consul.ErrUnreachable), errors.Is(last.err, consul.ErrRateLimited):
		return false, true, last.err // asking again would meet the same
	}
	return true, true, nil
}
