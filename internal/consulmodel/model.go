// Package consulmodel is a model of Consul for tests: what jorc uses of Consul's HTTP API, in memory and
// without sockets, goroutines or a clock of its own. A test gives it one request after the other and says
// when time has passed, so that all that a real Consul leaves to chance is the test's decision. Its
// own tests compare it with a real Consul.
//
// It has one server, which never loses its leader, no ACLs, and one datacenter.
package consulmodel

import (
	"maps"
	"slices"
	"sort"
	"strings"
	"time"
)

// Model is the state of one Consul. Its methods must not be called at the same time.
type Model struct {
	// Changed, if not nil, is called with the keys that a request has changed, before queries are answered.
	Changed func(keys []string)

	raft uint64 // index of the last entry of the Raft log
	state
	lockDelays map[string]time.Time // until when a key is not locked; only the leader knows them
	expiry     map[string]time.Time // of sessions; only the leader knows it
	created    uint64               // sessions so far
	blocked    []*Query             // in the order in which they came
	ready      []*Query             // of them those whose answer is there
	changed    changes              // by the request that is carried out now
	undo       []before             // of the transaction that is carried out now
}

// before is what was stored at a key before a transaction changed it.
type before struct {
	key          string
	entry        *entry // nil: there was none
	grave, index uint64 // of the key, and of all keys
}

// state is what a snapshot holds.
type state struct {
	entries  map[string]*entry // never changed once stored
	keys     []string          // of entries, sorted
	graves   map[string]uint64 // keys and prefixes that were deleted, and when
	kvIndex  uint64            // of the last change of a key
	sessions map[string]session
	nodes    map[string]*node
	catalog  uint64 // index of the last change of the catalog
}

// entry is one key.
type entry struct {
	key, session                               string
	value                                      []byte
	flags, lockIndex, createIndex, modifyIndex uint64
}

// same reports whether writing o over e changes nothing.
func (e *entry) same(o *entry) bool {
	return e.lockIndex == o.lockIndex && e.flags == o.flags && e.session == o.session && string(e.value) == string(o.value)
}

// changes are what a request changed.
type changes struct {
	keys    []string
	catalog bool
}

// New returns an empty Consul.
func New() *Model {
	return &Model{
		raft: 10, // those of a Consul that has just started
		state: state{
			entries: map[string]*entry{}, graves: map[string]uint64{}, sessions: map[string]session{}, nodes: map[string]*node{},
		},
		lockDelays: map[string]time.Time{}, expiry: map[string]time.Time{},
	}
}

// Index returns the index of the last entry of the Raft log.
func (m *Model) Index() uint64 { return m.raft }

// Value returns the value of a key, and its index; 0: there is no such key.
func (m *Model) Value(key string) (value []byte, index uint64) {
	if e := m.entries[key]; e != nil {
		return e.value, e.modifyIndex
	}
	return nil, 0
}

// Session returns the session that holds the lock of a key; empty: none does.
func (m *Model) Session(key string) string {
	if e := m.entries[key]; e != nil {
		return e.session
	}
	return ""
}

// Keys returns the names of all keys that begin with prefix, sorted.
func (m *Model) Keys(prefix string) []string {
	from, to := m.span(prefix)
	return m.keys[from:to:to]
}

// Snapshot is the state of a Consul at one moment.
type Snapshot struct{ state }

// Snapshot returns the present state.
func (m *Model) Snapshot() *Snapshot { return &Snapshot{m.clone()} }

func (s *state) clone() state {
	c := *s
	c.entries, c.keys, c.graves = maps.Clone(s.entries), slices.Clone(s.keys), maps.Clone(s.graves)
	c.sessions, c.nodes = maps.Clone(s.sessions), maps.Clone(s.nodes)
	return c
}

// Restore replaces the state by that of a snapshot: the sessions return with it, and live as if they had
// just been renewed; no key has a lock delay. Queries that block are answered with what they saw last. Later
// writes have higher indexes than all before.
func (m *Model) Restore(s *Snapshot, now time.Time) {
	for _, q := range m.blocked {
		q.answer = m.evaluate(q)
		m.ready = append(m.ready, q)
	}
	m.blocked = nil
	m.raft++
	m.state = s.clone()
	m.expiry, m.lockDelays = map[string]time.Time{}, map[string]time.Time{}
	for id, session := range m.sessions {
		m.expiry[id] = now.Add(2 * session.ttl)
	}
}

// ReapTombstones forgets what was deleted up to now, as Consul does after 15 minutes.
func (m *Model) ReapTombstones() {
	m.raft++
	clear(m.graves)
}

// span returns where in keys those with prefix are.
func (m *Model) span(prefix string) (from, to int) {
	from = sort.SearchStrings(m.keys, prefix)
	to = from
	for to < len(m.keys) && strings.HasPrefix(m.keys[to], prefix) {
		to++
	}
	return from, to
}

// note remembers what a key holds before it changes.
func (m *Model) note(key string) {
	m.undo = append(m.undo, before{key, m.entries[key], m.graves[key], m.kvIndex})
	m.changed.keys = append(m.changed.keys, key)
}

// rollBack undoes what was noted.
func (m *Model) rollBack() {
	for _, b := range slices.Backward(m.undo) {
		at, there := slices.BinarySearch(m.keys, b.key)
		switch {
		case b.entry != nil && !there:
			m.keys = slices.Insert(m.keys, at, b.key)
		case b.entry == nil && there:
			m.keys = slices.Delete(m.keys, at, at+1)
		}
		if m.entries[b.key] = b.entry; b.entry == nil {
			delete(m.entries, b.key)
		}
		if m.graves[b.key] = b.grave; b.grave == 0 {
			delete(m.graves, b.key)
		}
		m.kvIndex = b.index
	}
	m.undo, m.changed = m.undo[:0], changes{}
}

// store puts e in place.
func (m *Model) store(e *entry) {
	m.note(e.key)
	if m.entries[e.key] == nil {
		at, _ := slices.BinarySearch(m.keys, e.key)
		m.keys = slices.Insert(m.keys, at, e.key)
	}
	m.entries[e.key] = e
	m.kvIndex = e.modifyIndex
}

// set is Consul's kvsSetTxn: e is stored under index unless nothing changes.
func (m *Model) set(e *entry, index uint64, withSession bool) {
	old := m.entries[e.key]
	e.createIndex = index
	if old != nil {
		e.createIndex = old.createIndex
	}
	if !withSession {
		e.session = ""
		if old != nil {
			e.session = old.session
		}
	}
	if old != nil && old.same(e) {
		e.modifyIndex = old.modifyIndex
		return
	}
	e.modifyIndex = index
	m.store(e)
}

// remove deletes one key.
func (m *Model) remove(key string, index uint64) {
	if m.entries[key] == nil {
		return
	}
	m.note(key)
	m.graves[key] = index
	delete(m.entries, key)
	at, _ := slices.BinarySearch(m.keys, key)
	m.keys = slices.Delete(m.keys, at, at+1)
	m.kvIndex = index
}

// removeTree deletes all keys with a prefix.
func (m *Model) removeTree(prefix string, index uint64) {
	from, to := m.span(prefix)
	if from == to {
		return
	}
	for _, key := range m.keys[from:to] {
		m.note(key)
		delete(m.entries, key)
	}
	m.keys = slices.Delete(m.keys, from, to)
	if prefix != "" {
		m.note(prefix)
		m.graves[prefix] = index
	}
	m.kvIndex = index
}

// listIndex is the index of a list of keys: that of the last change below prefix, or of all keys where none
// is known.
func (m *Model) listIndex(prefix string) uint64 {
	if prefix == "" {
		return m.kvIndex
	}
	var index uint64
	from, to := m.span(prefix)
	for _, key := range m.keys[from:to] {
		index = max(index, m.entries[key].modifyIndex)
	}
	for key, at := range m.graves {
		if strings.HasPrefix(key, prefix) {
			index = max(index, at)
		}
	}
	if index == 0 {
		return m.kvIndex
	}
	return index
}
