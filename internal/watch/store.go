package watch

import (
	"reflect"
	"sync"
	"time"

	dep "github.com/hashicorp/consul-template/dependency"
)

// How long losses are doubted: after an answer whose index went backwards
// (Consul was restored or restarted empty), and after any failure.
const (
	doubtReset   = 30 * time.Second
	doubtFailure = 5 * time.Second
)

// change is one dependency's news: a value, or why there is none.
type change struct {
	id    string
	value any
	doubt time.Duration // above zero: what is missing in value may come back that soon
	err   error
	at    time.Time // when it reached this host
}

// datum is what is known of one dependency.
type datum struct {
	value any
	known bool
	at    time.Time

	pending  any // newer, with losses, not believed before until
	doubtful bool
	until    time.Time

	err   error // why there is no news; nil while there is
	since time.Time
}

// store holds the last good data of all dependencies. Values are never
// changed once they are in it.
type store struct {
	mu   sync.RWMutex
	data map[string]*datum
}

func newStore() *store { return &store{data: map[string]*datum{}} }

// get returns a copy of what is known.
func (s *store) get(id string) datum {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if d, ok := s.data[id]; ok {
		return *d
	}
	return datum{}
}

// put takes in a change. changed tells whether templates would see other data;
// settle is when a doubted value may be believed, zero if there is none.
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
		d.err = c.err
		return false, time.Time{}
	}
	d.err, d.since = nil, time.Time{}
	if !d.known {
		d.value, d.known, d.at = c.value, true, c.at
		return true, time.Time{}
	}
	if (c.doubt > 0 || d.doubtful) && lost(d.value, c.value) {
		if !d.doubtful {
			d.doubtful, d.until = true, c.at.Add(c.doubt)
		}
		d.pending = c.value
		return false, d.until
	}
	d.doubtful, d.pending = false, nil
	return d.take(c.value, c.at), time.Time{}
}

// settle believes the doubted value of id when its time has come.
func (s *store) settle(id string, now time.Time) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.data[id]
	if d == nil || !d.doubtful || now.Before(d.until) {
		return false
	}
	value := d.pending
	d.doubtful, d.pending = false, nil
	return d.take(value, now)
}

func (d *datum) take(value any, at time.Time) (changed bool) {
	if reflect.DeepEqual(d.value, value) {
		return false
	}
	d.value, d.at = value, at
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

// all returns the values that wanted names, but no secrets.
func (s *store) all(wanted map[string]*dependency) map[string]any {
	s.mu.RLock()
	defer s.mu.RUnlock()
	values := make(map[string]any, len(s.data))
	for id, d := range s.data {
		if w := wanted[id]; w != nil && d.known && d.value != nil && !w.vault && w.kind != kindFile {
			values[id] = d.value
		}
	}
	return values
}

// lost tells whether something that old holds is missing in value.
func lost(old, value any) bool {
	switch old := old.(type) {
	case string:
		return value == nil
	case []*dep.KeyPair:
		now, _ := value.([]*dep.KeyPair)
		return missing(old, now, func(p *dep.KeyPair) string { return p.Path })
	case []*dep.HealthService:
		now, _ := value.([]*dep.HealthService)
		return missing(old, now, instanceKey)
	case []*dep.CatalogSnippet:
		now, _ := value.([]*dep.CatalogSnippet)
		return missing(old, now, func(s *dep.CatalogSnippet) string { return s.Name })
	case []*dep.Node:
		now, _ := value.([]*dep.Node)
		return missing(old, now, func(n *dep.Node) string { return n.Node })
	case *dep.CatalogNode:
		now, _ := value.(*dep.CatalogNode)
		return old != nil && old.Node != nil && (now == nil || now.Node == nil || len(now.Services) < len(old.Services))
	}
	return false
}

func instanceKey(s *dep.HealthService) string { return s.Node + "/" + s.ID }

func missing[T any](old, now []T, key func(T) string) bool {
	there := make(map[string]bool, len(now))
	for _, v := range now {
		there[key(v)] = true
	}
	for _, v := range old {
		if !there[key(v)] {
			return true
		}
	}
	return false
}
