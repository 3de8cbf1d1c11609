package consulmodel

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// write carries out a request that may change something.
func (m *Model) write(method, path string, params url.Values, body []byte, now time.Time) *Answer {
	switch {
	case path == "/v1/txn":
		return m.transaction(body, now)
	case strings.HasPrefix(path, "/v1/kv/"):
		return m.writeKey(method, strings.TrimPrefix(path, "/v1/kv/"), params, body, now)
	case strings.HasPrefix(path, "/v1/session/"):
		return m.writeSession(strings.TrimPrefix(path, "/v1/session/"), body, now)
	case strings.HasPrefix(path, "/v1/catalog/"):
		return m.writeCatalog(strings.TrimPrefix(path, "/v1/catalog/"), body)
	case path == "/v1/internal/acl/authorize":
		return refuse(http.StatusUnauthorized, "ACL support disabled")
	}
	return refuse(http.StatusNotFound, "the model has no "+method+" "+path)
}

// writeKey carries out a PUT or DELETE of a key.
func (m *Model) writeKey(method, key string, params url.Values, body []byte, now time.Time) *Answer {
	if key == "" && !params.Has("recurse") {
		return refuse(http.StatusBadRequest, "Missing key name")
	}
	number := func(name string) uint64 {
		n, _ := strconv.ParseUint(params.Get(name), 10, 64) // jorc's own client writes it
		return n
	}
	op := operation{Key: key, Value: body, Flags: number("flags"), Index: number("cas")}
	switch {
	case method == http.MethodDelete && params.Has("recurse"):
		op.Verb = "delete-tree"
	case method == http.MethodDelete && params.Has("cas"):
		op.Verb = "delete-cas"
	case method == http.MethodDelete:
		op.Verb = "delete"
	case params.Has("cas"):
		op.Verb = "cas"
	case params.Has("acquire"):
		op.Verb, op.Session = "lock", params.Get("acquire")
	case params.Has("release"):
		op.Verb, op.Session = "unlock", params.Get("release")
	default:
		op.Verb = "set"
	}
	if op.Verb == "lock" && now.Before(m.lockDelays[key]) {
		return said(false)
	}
	m.raft++
	_, ok, err := m.carryOut(&op, m.raft)
	if err != nil {
		return refuse(http.StatusInternalServerError, "raft apply failed: "+err.Error())
	}
	return said(ok)
}

func said(ok bool) *Answer { return &Answer{Status: http.StatusOK, Body: strconv.AppendBool(nil, ok)} }

// operation is one of a transaction.
type operation struct {
	Verb, Key, Session string
	Value              []byte
	Flags, Index       uint64
}

// writes reports whether the operation may change something.
func (o *operation) writes() bool {
	switch o.Verb {
	case "set", "cas", "lock", "unlock", "delete", "delete-cas", "delete-tree":
		return true
	}
	return false
}

// failure is why an operation did not hold.
type failure struct {
	OpIndex int
	What    string
}

// transaction carries out all operations or none.
func (m *Model) transaction(body []byte, now time.Time) *Answer {
	const mostOps = 128
	var parsed []struct{ KV *operation }
	if err := json.Unmarshal(body, &parsed); err != nil {
		return refuse(http.StatusBadRequest, fmt.Sprintf("Failed to parse body: %v", err))
	}
	if len(parsed) > mostOps {
		return refuse(http.StatusRequestEntityTooLarge, fmt.Sprintf("Transaction contains too many operations (%d > %d)", len(parsed), mostOps))
	}
	var failures []failure
	writes := false
	for i, p := range parsed {
		switch {
		case p.KV == nil:
			return refuse(http.StatusBadRequest, "the model has transactions on keys only")
		case p.KV.Key == "" && p.KV.Verb != "delete-tree":
			failures = append(failures, failure{i, "Must provide key"})
		case p.KV.Verb == "lock" && now.Before(m.lockDelays[p.KV.Key]):
			failures = append(failures, failure{i, fmt.Sprintf("failed to lock key %q due to lock delay", p.KV.Key)})
		}
		writes = writes || p.KV.writes()
	}
	if len(failures) > 0 {
		return conflict(failures)
	}
	index := m.raft
	if writes {
		m.raft++
		index = m.raft
	}
	results := []byte(`{"Results":[`)
	for i, p := range parsed {
		e, ok, err := m.carryOut(p.KV, index)
		switch {
		case err != nil:
			failures = append(failures, failure{i, err.Error()})
		case !ok:
			failures = append(failures, failure{i, p.KV.stale()})
		}
		if e == nil || len(failures) > 0 {
			continue
		}
		if results[len(results)-1] != '[' {
			results = append(results, ',')
		}
		results = append(results, `{"KV":`...)
		results = appendEntry(results, e, p.KV.Verb == "get" || p.KV.Verb == "get-or-empty")
		results = append(results, '}')
	}
	if len(failures) > 0 {
		m.rollBack()
		return conflict(failures)
	}
	return &Answer{Status: http.StatusOK, Body: append(results, `],"Errors":null}`...)}
}

func conflict(failures []failure) *Answer {
	body, err := json.Marshal(struct{ Results, Errors any }{nil, failures})
	if err != nil {
		return refuse(http.StatusInternalServerError, err.Error())
	}
	return &Answer{Status: http.StatusConflict, Body: body}
}

// stale is why an operation did not hold that has no error.
func (o *operation) stale() string {
	switch o.Verb {
	case "cas":
		return fmt.Sprintf("failed to set key %q, index is stale", o.Key)
	case "delete-cas":
		return fmt.Sprintf("failed to delete key %q, index is stale", o.Key)
	case "lock":
		return fmt.Sprintf("failed to lock key %q, lock is already held", o.Key)
	}
	return fmt.Sprintf("failed to unlock key %q, lock isn't held, or is held by another session", o.Key)
}

// carryOut carries out one operation, and returns the entry that a transaction answers with; nil: none.
func (m *Model) carryOut(o *operation, index uint64) (e *entry, ok bool, err error) {
	old := m.entries[o.Key]
	e = &entry{key: o.Key, value: o.Value, flags: o.Flags, session: o.Session}
	switch o.Verb {
	case "set":
		m.set(e, index, false)
		return e, true, nil
	case "cas":
		if (o.Index == 0) != (old == nil) || old != nil && o.Index != old.modifyIndex {
			return nil, false, nil
		}
		m.set(e, index, false)
		return e, true, nil
	case "lock":
		return m.lock(e, old, index)
	case "unlock":
		if o.Session == "" {
			return nil, false, fmt.Errorf("missing session")
		}
		if old == nil || old.session != o.Session {
			return nil, false, nil
		}
		e.session, e.lockIndex = "", old.lockIndex
		m.set(e, index, true)
		return e, true, nil
	case "delete":
		m.remove(o.Key, index)
		return nil, true, nil
	case "delete-cas":
		if old != nil && old.modifyIndex == o.Index {
			m.remove(o.Key, index)
			return nil, true, nil
		}
		return nil, old == nil, nil
	case "delete-tree":
		m.removeTree(o.Key, index)
		return nil, true, nil
	}
	e, err = m.look(o, old)
	return e, true, err
}

// lock is Consul's kvsLockTxn.
func (m *Model) lock(e, old *entry, index uint64) (*entry, bool, error) {
	if e.session == "" {
		return nil, false, fmt.Errorf("missing session")
	}
	if _, there := m.sessions[e.session]; !there {
		return nil, false, fmt.Errorf("invalid session %#v", e.session)
	}
	e.lockIndex = 1
	if old != nil {
		switch old.session {
		case e.session:
			e.lockIndex = old.lockIndex
		case "":
			e.lockIndex = old.lockIndex + 1
		default:
			return nil, false, nil
		}
	}
	m.set(e, index, true)
	return e, true, nil
}

// look carries out an operation that reads or checks.
func (m *Model) look(o *operation, old *entry) (*entry, error) {
	switch o.Verb {
	case "get":
		if old == nil {
			return nil, fmt.Errorf("key %q doesn't exist", o.Key)
		}
	case "get-or-empty":
		if old == nil {
			return &entry{key: o.Key, flags: o.Flags, session: o.Session, modifyIndex: o.Index}, nil
		}
	case "check-session":
		if old == nil {
			return nil, fmt.Errorf("failed to check session, key %q doesn't exist", o.Key)
		}
		if old.session != o.Session {
			return nil, fmt.Errorf("failed session check for key %q, current session %q != %q", o.Key, old.session, o.Session)
		}
	case "check-index":
		if old == nil {
			return nil, fmt.Errorf("failed to check index, key %q doesn't exist", o.Key)
		}
		if old.modifyIndex != o.Index {
			return nil, fmt.Errorf("failed index check for key %q, current modify index %d != %d", o.Key, old.modifyIndex, o.Index)
		}
	case "check-not-exists":
		if old != nil {
			return nil, fmt.Errorf("key %q exists", o.Key)
		}
	default:
		return nil, fmt.Errorf("unknown KV operation: %s", o.Verb)
	}
	return old, nil
}
