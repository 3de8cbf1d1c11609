package consulmodel

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Query is a request that Consul has: it is carried out, or it blocks.
type Query struct {
	// Deadline is when a query that blocks is answered without news, at the earliest.
	Deadline time.Time

	path    string
	params  url.Values
	index   uint64
	missing bool // its key did not exist when it was evaluated
	answer  *Answer
}

// Answer is Consul's answer.
type Answer struct {
	Status int
	Index  uint64 // 0: the endpoint has none
	Body   []byte
}

// Answer returns the answer to the query; nil while it blocks.
func (q *Query) Answer() *Answer { return q.answer }

// Do carries out a request that arrives now. A blocking query without news is kept until a later request has
// news for it, or Expire or GiveUp ends it.
func (m *Model) Do(method, path, query string, body []byte, now time.Time) *Query {
	q := &Query{path: path}
	var err error
	if q.params, err = url.ParseQuery(query); err != nil {
		q.answer = refuse(http.StatusBadRequest, err.Error())
		return q
	}
	if method != http.MethodGet {
		q.answer = m.write(method, path, q.params, body, now)
		m.tell()
		return q
	}
	if text := q.params.Get("index"); text != "" {
		if q.index, err = strconv.ParseUint(text, 10, 64); err != nil {
			q.answer = refuse(http.StatusBadRequest, "Invalid index")
			return q
		}
	}
	answer := m.evaluate(q)
	if q.index == 0 || answer.Index == 0 || answer.Index > q.index {
		q.answer = answer
		return q
	}
	wait := 5 * time.Minute
	if text := q.params.Get("wait"); text != "" {
		if wait, err = time.ParseDuration(text); err != nil {
			q.answer = refuse(http.StatusBadRequest, "Invalid wait time")
			return q
		}
	}
	q.Deadline = now.Add(min(wait, 10*time.Minute))
	m.blocked = append(m.blocked, q)
	return q
}

// TakeReady returns the queries that blocked and have been answered since it was last called.
func (m *Model) TakeReady() []*Query {
	ready := m.ready
	m.ready = nil
	return ready
}

// Expire answers the queries whose wait has ended.
func (m *Model) Expire(now time.Time) {
	m.blocked = slices.DeleteFunc(m.blocked, func(q *Query) bool {
		if now.Before(q.Deadline) {
			return false
		}
		q.answer = m.evaluate(q)
		m.ready = append(m.ready, q)
		return true
	})
}

// GiveUp forgets a query whose client is gone.
func (m *Model) GiveUp(q *Query) {
	m.blocked = slices.DeleteFunc(m.blocked, func(o *Query) bool { return o == q })
}

// tell answers the blocked queries that the last request concerns.
func (m *Model) tell() {
	c := m.changed
	m.changed, m.undo = changes{}, m.undo[:0]
	if len(c.keys) == 0 && !c.catalog {
		return
	}
	if m.Changed != nil {
		m.Changed(c.keys)
	}
	m.blocked = slices.DeleteFunc(m.blocked, func(q *Query) bool {
		if !m.concerns(q, c) {
			return false
		}
		answer := m.evaluate(q)
		if answer.Index <= q.index {
			return false
		}
		q.answer = answer
		m.ready = append(m.ready, q)
		return true
	})
}

// concerns reports whether changes may be news for a query.
func (m *Model) concerns(q *Query, c changes) bool {
	key, ofKeys := strings.CutPrefix(q.path, "/v1/kv/")
	if !ofKeys {
		return c.catalog
	}
	if len(c.keys) == 0 {
		return false
	}
	if !q.params.Has("recurse") && !q.params.Has("keys") {
		return slices.Contains(c.keys, key)
	}
	from, to := m.span(key)
	return from == to || slices.ContainsFunc(c.keys, func(changed string) bool { return strings.HasPrefix(changed, key) || strings.HasPrefix(key, changed) })
}

// evaluate answers a read from the present state.
func (m *Model) evaluate(q *Query) *Answer {
	if key, ok := strings.CutPrefix(q.path, "/v1/kv/"); ok {
		return m.read(key, q)
	}
	return m.readCatalog(q)
}

// read answers a read of keys.
func (m *Model) read(key string, q *Query) *Answer {
	switch {
	case q.params.Has("keys"):
		from, to := m.span(key)
		answer := &Answer{Status: http.StatusOK, Index: max(m.listIndex(key), 1)}
		if from == to && key != "" {
			answer.Status = http.StatusNotFound
			return answer
		}
		answer.Body = appendNames(nil, m.keys[from:to], key, q.params.Get("separator"))
		return answer
	case q.params.Has("recurse"):
		from, to := m.span(key)
		answer := &Answer{Status: http.StatusOK, Index: max(m.listIndex(key), 1)}
		if from == to {
			answer.Status = http.StatusNotFound
			return answer
		}
		answer.Body = append(answer.Body, '[')
		for i, name := range m.keys[from:to] {
			if i > 0 {
				answer.Body = append(answer.Body, ',')
			}
			answer.Body = appendEntry(answer.Body, m.entries[name], true)
		}
		answer.Body = append(answer.Body, ']')
		return answer
	case key == "":
		return refuse(http.StatusBadRequest, "Missing key name")
	}
	e := m.entries[key]
	if e == nil {
		answer := &Answer{Status: http.StatusNotFound, Index: max(m.kvIndex, 1)}
		if q.missing { // as it was before: nothing has changed
			q.index = max(q.index, answer.Index)
		}
		q.missing = true
		return answer
	}
	return &Answer{Status: http.StatusOK, Index: e.modifyIndex, Body: append(appendEntry([]byte{'['}, e, true), ']')}
}

func refuse(status int, text string) *Answer { return &Answer{Status: status, Body: []byte(text)} }

// Answered is a request that Consul refuses without carrying it out, for example while it has no leader.
func Answered(status int, text string) *Query { return &Query{answer: refuse(status, text)} }
