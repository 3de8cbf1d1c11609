package kv

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jorc/jorc/internal/consul"
)

// Result is what a transaction that was carried out left behind.
type Result struct {
	index map[string]uint64
	read  map[string]*consul.KVPair
}

// Index returns key's index after the transaction; 0 when it did not write or
// read key, or when there is no such key now.
func (r *Result) Index(key string) uint64 { return r.index[key] }

// pair returns what a Get read, nil when there is no such key.
func (r *Result) pair(s *Store, key string) (*consul.KVPair, error) {
	p := r.read[key]
	if p == nil {
		return nil, &consul.Error{Op: "read key", Name: s.Path(key), Class: consul.ErrDenied, Err: errFiltered}
	}
	if p.ModifyIndex == 0 {
		return nil, nil
	}
	return p, nil
}

var errFiltered = errors.New("left out of the answer")

// Commit carries out all operations or none. It returns ErrConflict (as a
// *ConflictError that says which operation did not hold), ErrLockLost when the
// store's lock was, consul.ErrTooLarge, ErrBadKey (nothing was sent),
// consul.ErrDenied, consul.ErrUnreachable or consul.ErrOutcomeUnknown.
func (t *Txn) Commit(ctx context.Context) (*Result, error) {
	if err := t.valid(); err != nil {
		return nil, err
	}
	if len(t.ops) == 0 {
		return &Result{}, nil
	}
	resp, err := t.send(ctx)
	if err != nil {
		return nil, err
	}
	if len(resp.Errors) > 0 {
		return nil, t.failure(resp.Errors)
	}
	r := t.result(resp)
	t.tellShared(r)
	return r, nil
}

// tellShared notes the writes to keys that are kept current.
func (t *Txn) tellShared(r *Result) {
	if len(t.store.shared) == 0 {
		return
	}
	for i, op := range t.ops {
		switch op.KV.Verb {
		case consul.KVSet, consul.KVCAS, consul.KVLock, consul.KVUnlock:
			if h := t.store.sharedFor(t.names[i]); h != nil {
				h.wrote(r.index[t.names[i]])
			}
		}
	}
}

// valid checks what can be checked before anything is sent.
func (t *Txn) valid() error {
	if t.err != nil {
		return t.err
	}
	if n := len(t.ops); n > MaxOps {
		return tooLarge("transaction on", t.name(), "%d operations, %d more than the limit of %d", n, n-MaxOps, MaxOps)
	}
	for i, op := range t.ops {
		if n := len(op.KV.Value); n > MaxValue {
			return tooLarge("transaction on", t.name(), "the value of %q has %d bytes, %d more than the limit of %d",
				t.names[i], n, n-MaxValue, MaxValue)
		}
	}
	if n := t.Size(); n > MaxBody {
		return tooLarge("transaction on", t.name(), "%d bytes as JSON, %d more than the limit of %d", n, n-MaxBody, MaxBody)
	}
	if t.store.held != nil {
		return t.store.held.Err()
	}
	return nil
}

// name is what errors call the transaction.
func (t *Txn) name() string {
	names := t.ops[t.fenced:]
	switch len(names) {
	case 0:
		return ""
	case 1:
		return names[0].KV.Key
	}
	return fmt.Sprintf("%s and %d more", names[0].KV.Key, len(names)-1)
}

func (t *Txn) send(ctx context.Context) (*consul.TxnResponse, error) {
	if !t.writes() {
		return t.store.client.TxnRead(ctx, t.name(), t.ops)
	}
	ok, resp, err := t.store.client.Txn(ctx, t.name(), t.ops)
	if err == nil && !ok && len(resp.Errors) == 0 {
		err = &consul.Error{Op: "transaction on", Name: t.name(), Class: consul.ErrRefused, Err: errRolledBack}
	}
	return resp, err
}

var errRolledBack = errors.New("rolled back without a reason")

func (t *Txn) writes() bool {
	for _, op := range t.ops {
		switch op.KV.Verb {
		case consul.KVCheckIndex, consul.KVCheckNotExists, consul.KVCheckSession, consul.KVGetOrEmpty:
		default:
			return true
		}
	}
	return false
}

// failure turns Consul's list of operations that did not hold into an error.
func (t *Txn) failure(errs []*consul.TxnError) error {
	var c ConflictError
	for _, e := range errs {
		if e.OpIndex < 0 || e.OpIndex >= len(t.ops) {
			return &consul.Error{Op: "transaction on", Name: t.name(), Class: consul.ErrRefused, Err: errors.New(e.What)}
		}
		op := t.ops[e.OpIndex].KV
		switch {
		case strings.Contains(e.What, "Permission denied"):
			return &consul.Error{Op: string(op.Verb) + " key", Name: op.Key, Class: consul.ErrDenied, Err: errors.New(e.What)}
		case e.OpIndex < t.fenced:
			return t.store.held.lose(errors.New(e.What))
		}
		c.Failures = append(c.Failures, Failure{Op: string(op.Verb), Key: t.names[e.OpIndex], Reason: e.What})
	}
	return &c
}

// result sorts the answers to their operations, of which they have the order.
// Deletions have none, and those that the token may not read are left out.
func (t *Txn) result(resp *consul.TxnResponse) *Result {
	r := &Result{index: map[string]uint64{}, read: map[string]*consul.KVPair{}}
	rest := resp.Results
	for i, op := range t.ops {
		if op.KV.Verb == consul.KVDelete || op.KV.Verb == consul.KVDeleteCAS {
			delete(r.index, t.names[i])
			continue
		}
		if len(rest) == 0 || rest[0].KV == nil || rest[0].KV.Key != op.KV.Key {
			continue
		}
		r.index[t.names[i]] = rest[0].KV.ModifyIndex
		if op.KV.Verb == consul.KVGetOrEmpty {
			r.read[t.names[i]] = rest[0].KV
		}
		rest = rest[1:]
	}
	return r
}
