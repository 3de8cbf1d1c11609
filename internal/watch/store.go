package watch

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"sort"
	"sync"
	"time"

	dep "github.com/hashicorp/consul-template/dependency"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/profile"
)

// doubt is why what is missing in an answer may come back. The greater lasts longer.
type doubt int

const (
	noDoubt      doubt = iota
	afterFailure       // the query failed before
	afterReset         // the index went backwards: Consul was restored, or restarted empty
)

// How long losses are doubted.
const (
	doubtFailure = 5 * time.Second
	doubtReset   = 30 * time.Second
)

// change is one dependency's news: a value, or why it cannot be read.
type change struct {
	id    string
	value any
	index uint64 // Consul's, of the answer; 0 if it has no index
	doubt doubt
	err   error
	at    time.Time // when it reached this host
}

// datum is what is known of one dependency.
type datum struct {
	value any
	known bool
	at    time.Time
	index uint64 // of the last answer

	pending  any // the last answer, without what value keeps of it until then
	doubtful bool
	until    time.Time

	size int // of value, as it was counted

	err   error // why there is no news; nil while there is
	since time.Time
}

// store holds the last good data of all dependencies. Values are never
// changed once they are in it.
type store struct {
	doubts [afterReset + 1]time.Duration // how long each lasts

	mu   sync.RWMutex
	data map[string]*datum
	past map[string]any // of an earlier process, while it may be of use
	seen map[string]uint64
}

// newStore returns an empty store that doubts losses after a reset for that time.
func newStore(reset time.Duration) *store {
	return &store{doubts: [...]time.Duration{afterFailure: doubtFailure, afterReset: reset}, data: map[string]*datum{}}
}

// remember takes in the data of an earlier process and its indexes: what is
// missing in the first answers of a Consul that was reset is doubted too.
func (s *store) remember(data map[string]any, indexes map[string]uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.past, s.seen = data, indexes
}

// get returns a copy of what is known.
func (s *store) get(id string) datum {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if d, ok := s.data[id]; ok {
		return *d
	}
	return datum{}
}

// refused returns the first id of missing, in order, that Consul refuses, and why.
func (s *store) refused(missing map[string]string) (first string, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for id := range missing {
		if d := s.data[id]; d != nil && consul.IsPermanent(d.err) && (err == nil || id < first) {
			first, err = id, d.err
		}
	}
	return first, err
}

// put takes in a change. changed reports whether templates would see other data, or
// would begin or cease to fail; settle is when a doubted value may be believed, zero if no value is doubted.
func (s *store) put(c change) (changed bool, settle time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.data[c.id]
	if d == nil {
		d = &datum{}
		s.data[c.id] = d
	}
	if c.err != nil {
		if d.err == nil {
			d.since = c.at
		}
		// What is too much holds files, and templates fail for what Consul refuses and has never
		// answered. Other trouble leaves them as they are.
		changed = errors.Is(c.err, consul.ErrTooLong) != errors.Is(d.err, consul.ErrTooLong) || consul.IsPermanent(c.err) != consul.IsPermanent(d.err)
		d.err = c.err
		return changed, time.Time{}
	}
	was := errors.Is(d.err, consul.ErrTooLong) || consul.IsPermanent(d.err)
	old, index := d.value, d.index
	if !d.known {
		old, index = s.past[c.id], max(d.index, s.seen[c.id])
	}
	why := c.doubt
	if d.err != nil {
		why = max(why, afterFailure)
	}
	if c.index > 0 && c.index < index {
		why = afterReset
	}
	doubt := s.doubts[why]
	d.err, d.since, d.index = nil, time.Time{}, c.index
	if (doubt > 0 || d.doubtful) && lost(old, c.value) {
		if until := c.at.Add(doubt); !d.doubtful || until.After(d.until) && doubt > 0 {
			d.until = until
		}
		d.doubtful, d.pending = true, c.value
		kept := union(old, c.value)
		if !d.known && reflect.DeepEqual(kept, old) {
			return was, d.until
		}
		return d.replace(kept, c.at) || was, d.until
	}
	d.doubtful, d.pending = false, nil
	return d.replace(c.value, c.at) || was, time.Time{}
}

// size is how many bytes the value of id has, as recount has found.
func (s *store) size(id string) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if d := s.data[id]; d != nil {
		return d.size
	}
	return 0
}

// recount counts the value of id and returns how many bytes it has more than before.
func (s *store) recount(id string) (added int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.data[id]
	if d == nil {
		return 0
	}
	before := d.size
	d.size = sizeOf(d.value)
	return d.size - before
}

// settle believes the doubted value of id when its time has come. While Consul does not answer nothing
// could come back, so it is doubted on, and after the next answer, too.
func (s *store) settle(id string, now time.Time) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.data[id]
	if d == nil || !d.doubtful || d.err != nil || now.Before(d.until) {
		return false
	}
	value := d.pending
	d.doubtful, d.pending = false, nil
	return d.replace(value, now)
}

func (d *datum) replace(value any, at time.Time) (changed bool) {
	if d.known && reflect.DeepEqual(d.value, value) {
		return false
	}
	d.value, d.known, d.at = value, true, at
	return true
}

// keep forgets all but the ids that wanted names.
func (s *store) keep(wanted map[string]*dependency) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.data {
		if wanted[id] == nil {
			delete(s.data, id)
		}
	}
}

// all returns the values that wanted names, but no secrets, with their indexes,
// and what is remembered and not known yet.
func (s *store) all(wanted map[string]*dependency) (values map[string]any, indexes map[string]uint64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	values, indexes = make(map[string]any, len(s.data)), make(map[string]uint64, len(s.data))
	for id, value := range s.past {
		values[id], indexes[id] = value, s.seen[id]
	}
	for id, d := range s.data {
		if !d.known {
			continue
		}
		delete(values, id)
		delete(indexes, id)
		if w := wanted[id]; w != nil && d.value != nil && !w.vault && w.kind != kindFile && w.kind != kindForeign {
			values[id], indexes[id] = d.value, d.index
		}
	}
	return values, indexes
}

// lost reports whether something that old holds is missing in value.
func lost(old, value any) bool {
	switch old := old.(type) {
	case string:
		return value == nil
	case []*dep.KeyPair:
		now, _ := value.([]*dep.KeyPair)
		return len(missing(old, now, keyOfPair)) > 0
	case []*dep.HealthService:
		now, _ := value.([]*dep.HealthService)
		return len(missing(old, now, instanceKey)) > 0
	case []*dep.CatalogSnippet:
		now, _ := value.([]*dep.CatalogSnippet)
		return len(missing(old, now, keyOfName)) > 0
	case profile.Params:
		now, _ := value.(profile.Params)
		for name := range old {
			if _, ok := now[name]; !ok {
				return true
			}
		}
	case []*dep.Node:
		now, _ := value.([]*dep.Node)
		return len(missing(old, now, keyOfNode)) > 0
	case *dep.CatalogNode:
		now, _ := value.(*dep.CatalogNode)
		return old != nil && old.Node != nil && (now == nil || now.Node == nil || len(missing(old.Services, now.Services, keyOfNodeService)) > 0)
	}
	return false
}

// union is value with what old holds and value lacks, in the order in which
// Consul's answers come.
func union(old, value any) any {
	switch old := old.(type) {
	case []*dep.KeyPair:
		now, _ := value.([]*dep.KeyPair)
		return merge(old, now, keyOfPair, func(list []*dep.KeyPair) sort.Interface { return pairsByPath(list) })
	case []*dep.HealthService:
		now, _ := value.([]*dep.HealthService)
		return merge(old, now, instanceKey, func(list []*dep.HealthService) sort.Interface { return dep.ByNodeThenID(list) })
	case []*dep.CatalogSnippet:
		now, _ := value.([]*dep.CatalogSnippet)
		return merge(old, now, keyOfName, func(list []*dep.CatalogSnippet) sort.Interface { return dep.ByName(list) })
	case []*dep.Node:
		now, _ := value.([]*dep.Node)
		return merge(old, now, keyOfNode, func(list []*dep.Node) sort.Interface { return dep.ByNode(list) })
	case profile.Params:
		now, _ := value.(profile.Params)
		all := maps.Clone(old)
		maps.Copy(all, now)
		return all
	case *dep.CatalogNode:
		now, _ := value.(*dep.CatalogNode)
		if now == nil || now.Node == nil {
			return old
		}
		services := merge(old.Services, now.Services, keyOfNodeService, func(list []*dep.CatalogNodeService) sort.Interface { return dep.ByService(list) })
		return &dep.CatalogNode{Node: now.Node, Services: services}
	}
	return old // a key that is missing
}

// merge adds to now what is missing of old. Lists in the order of by stay so; the
// others, sorted by distance, get the additions at their end.
func merge[T any](old, now []T, key func(T) string, by func([]T) sort.Interface) []T {
	ordered := sort.IsSorted(by(now)) && sort.IsSorted(by(old))
	all := append(slices.Clone(now), missing(old, now, key)...)
	if ordered {
		sort.Stable(by(all))
	}
	return all
}

// pairsByPath implements sort.Interface.
type pairsByPath []*dep.KeyPair

func (p pairsByPath) Len() int           { return len(p) }
func (p pairsByPath) Less(i, j int) bool { return p[i].Path < p[j].Path }
func (p pairsByPath) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }

func keyOfPair(p *dep.KeyPair) string                   { return p.Path }
func keyOfName(s *dep.CatalogSnippet) string            { return s.Name }
func keyOfNode(n *dep.Node) string                      { return n.Node }
func keyOfNodeService(s *dep.CatalogNodeService) string { return s.ID }
func instanceKey(s *dep.HealthService) string           { return s.Node + "/" + s.ID }

// missing returns what old holds and now lacks.
func missing[T any](old, now []T, key func(T) string) (gone []T) {
	there := make(map[string]bool, len(now))
	for _, v := range now {
		there[key(v)] = true
	}
	for _, v := range old {
		if !there[key(v)] {
			gone = append(gone, v)
		}
	}
	return gone
}
