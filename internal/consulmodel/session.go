package consulmodel

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// session is one session. It has a TTL and no checks, as all of jorc's.
type session struct {
	id, name   string
	ttl, delay time.Duration
	deletes    bool // its keys, when it ends; otherwise it releases them
	index      uint64
}

const (
	leastTTL  = 10 * time.Second
	mostTTL   = 24 * time.Hour
	mostDelay = time.Minute
)

// writeSession carries out a PUT below /v1/session/.
func (m *Model) writeSession(path string, body []byte, now time.Time) *Answer {
	verb, id, _ := strings.Cut(path, "/")
	switch verb {
	case "create":
		return m.createSession(body, now)
	case "renew":
		s, there := m.sessions[id]
		if !there {
			return refuse(http.StatusNotFound, fmt.Sprintf("Session id '%s' not found", id))
		}
		m.expiry[id] = now.Add(2 * s.ttl)
		return s.answer()
	case "destroy":
		m.raft++
		m.endSession(id, now)
		return said(true)
	}
	return refuse(http.StatusNotFound, "the model has no session/"+verb)
}

func (m *Model) createSession(body []byte, now time.Time) *Answer {
	var asked struct {
		Name, TTL, LockDelay, Behavior string
	}
	if err := json.Unmarshal(body, &asked); err != nil {
		return refuse(http.StatusBadRequest, fmt.Sprintf("Request decode failed: %v", err))
	}
	ttl, err := time.ParseDuration(asked.TTL)
	if err != nil || ttl < leastTTL || ttl > mostTTL {
		return refuse(http.StatusInternalServerError, fmt.Sprintf("rpc error making call: Invalid Session TTL '%s', must be between [10s=24h0m0s]", asked.TTL))
	}
	s := session{name: asked.Name, ttl: ttl, delay: 15 * time.Second, deletes: asked.Behavior == "delete"}
	if asked.LockDelay != "" {
		if s.delay, err = time.ParseDuration(asked.LockDelay); err != nil {
			return refuse(http.StatusBadRequest, fmt.Sprintf("Request decode failed: %v", err))
		}
	}
	m.created++
	m.raft++
	s.id, s.index = fmt.Sprintf("%08x-0000-4000-8000-000000000000", m.created), m.raft // grants are named after the beginning
	m.sessions[s.id] = s
	m.expiry[s.id] = now.Add(2 * ttl)
	return &Answer{Status: http.StatusOK, Body: fmt.Appendf(nil, `{"ID":%q}`, s.id)}
}

func (s session) answer() *Answer {
	behavior := "release"
	if s.deletes {
		behavior = "delete"
	}
	body, err := json.Marshal([]any{map[string]any{
		"ID": s.id, "Name": s.name, "Node": "model", "LockDelay": s.delay, "Behavior": behavior, "TTL": s.ttl.String(),
		"NodeChecks": []string{}, "ServiceChecks": nil, "CreateIndex": s.index, "ModifyIndex": s.index,
	}})
	if err != nil {
		return refuse(http.StatusInternalServerError, err.Error())
	}
	return &Answer{Status: http.StatusOK, Body: body}
}

// endSession ends a session, and with it its locks.
func (m *Model) endSession(id string, now time.Time) {
	s, there := m.sessions[id]
	if !there {
		return
	}
	delete(m.sessions, id)
	delete(m.expiry, id)
	for _, key := range slices.Clone(m.keys) {
		e := m.entries[key]
		if e.session != id {
			continue
		}
		if s.deletes {
			m.remove(key, m.raft)
		} else {
			released := *e
			released.session = ""
			m.set(&released, m.raft, true)
		}
		if s.delay > 0 {
			m.lockDelays[key] = now.Add(min(s.delay, mostDelay))
		}
	}
}

// Sessions returns the ids of all sessions, sorted, with the time at which each ends unless it is renewed.
func (m *Model) Sessions() (ids []string, ends map[string]time.Time) {
	return slices.Sorted(maps.Keys(m.sessions)), m.expiry
}

// ExpireSessions ends the sessions that were not renewed in time.
func (m *Model) ExpireSessions(now time.Time) {
	for _, id := range slices.Sorted(maps.Keys(m.expiry)) {
		if now.After(m.expiry[id]) {
			m.EndSession(id, now)
		}
	}
}

// EndSession ends a session, as an operator or its TTL does.
func (m *Model) EndSession(id string, now time.Time) {
	m.raft++
	m.endSession(id, now)
	m.tell()
}
