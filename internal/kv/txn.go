package kv

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/consul"
)

// Limits of one transaction. Consul of late takes more operations; older ones
// do not. The body is what goes over the wire: JSON, values in base64.
const (
	MaxOps  = 64
	MaxBody = 512 << 10 // bytes
)

// Txn is a list of operations of which Consul carries out all or none. Its
// methods add operations and return it; Commit returns the first error of an
// addition. In the store of a lease it begins with a check that the lock is
// still held.
type Txn struct {
	store  *Store
	ops    consul.TxnOps
	names  []string // the operations' keys, without the store's prefix
	size   int      // of the operations in JSON, in bytes
	fenced int      // operations in front that came with the store
	err    error    // the first that went wrong while adding
}

// Txn returns an empty transaction.
func (s *Store) Txn() *Txn {
	t := &Txn{store: s}
	if s.held != nil {
		s.held.fence(t)
		t.fenced = len(t.ops)
	}
	return t
}

// Set writes key whatever it holds. Consul makes no write of a value that is
// there already.
func (t *Txn) Set(key string, value []byte) *Txn {
	return t.add(consul.KVSet, key, consul.KVTxnOp{Value: value})
}

// CAS writes key if its index is index; 0 means that there is no such key.
func (t *Txn) CAS(key string, value []byte, index uint64) *Txn {
	return t.add(consul.KVCAS, key, consul.KVTxnOp{Value: value, Index: index})
}

// CheckIndex holds if key's index is index; 0 means that there is no such key.
func (t *Txn) CheckIndex(key string, index uint64) *Txn {
	if index == 0 {
		return t.CheckNotExists(key)
	}
	return t.add(consul.KVCheckIndex, key, consul.KVTxnOp{Index: index})
}

// CheckNotExists holds if there is no such key.
func (t *Txn) CheckNotExists(key string) *Txn {
	return t.add(consul.KVCheckNotExists, key, consul.KVTxnOp{})
}

// CheckSession holds if key is locked by session.
func (t *Txn) CheckSession(key, session string) *Txn {
	return t.add(consul.KVCheckSession, key, consul.KVTxnOp{Session: session})
}

// Delete deletes key if there is one.
func (t *Txn) Delete(key string) *Txn {
	return t.add(consul.KVDelete, key, consul.KVTxnOp{})
}

// DeleteCAS deletes key if its index is index. Consul lets it hold also when
// the key is gone already; add CheckIndex where that matters.
func (t *Txn) DeleteCAS(key string, index uint64) *Txn {
	return t.add(consul.KVDeleteCAS, key, consul.KVTxnOp{Index: index})
}

// Get reads key into the transaction's result, as it is after the operations
// in front of it.
func (t *Txn) Get(key string) *Txn {
	return t.add(consul.KVGetOrEmpty, key, consul.KVTxnOp{})
}

// Len returns the number of operations, the check of a lease included.
func (t *Txn) Len() int { return len(t.ops) }

// Size returns the size of the request's body in bytes.
func (t *Txn) Size() int {
	const brackets, newline = 2, 1
	return brackets + newline + t.size + max(0, len(t.ops)-1)
}

func (t *Txn) failed(err error) error {
	if t.err == nil {
		t.err = err
	}
	return err
}

func (t *Txn) add(verb consul.KVOp, key string, op consul.KVTxnOp) *Txn {
	check := t.store.check
	if verb == consul.KVSet || verb == consul.KVCAS || verb == consul.KVLock {
		check = t.store.checkWritable
	}
	if t.failed(check(key)) != nil {
		return t
	}
	op.Verb, op.Key = verb, t.store.Path(key)
	size, err := opSize(op)
	if t.failed(err) != nil {
		return t
	}
	t.ops = append(t.ops, &consul.TxnOp{KV: &op})
	t.names = append(t.names, key)
	t.size += size
	return t
}

// Append adds what o adds, which must be of the same store.
func (t *Txn) Append(o *Txn) *Txn {
	if o.store.prefix != t.store.prefix || o.store.held != t.store.held {
		_ = t.failed(fmt.Errorf("a transaction of another store is appended: %w", consul.ErrRefused))
		return t
	}
	t.merge(o)
	return t
}

// merge adds o's own operations behind those of t.
func (t *Txn) merge(o *Txn) {
	t.ops = slices.Concat(t.ops, o.ops[o.fenced:])
	t.names = slices.Concat(t.names, o.names[o.fenced:])
	t.size += o.ownSize()
	_ = t.failed(o.err)
}

// ownSize is the size in JSON of the operations that did not come with the store.
func (t *Txn) ownSize() int {
	n := t.size
	for _, op := range t.ops[:t.fenced] {
		size, _ := opSize(*op.KV) // it was encoded before
		n -= size
	}
	return n
}

// opSize is the size of one operation in JSON, as encoding/json writes it,
// without encoding the value.
func opSize(op consul.KVTxnOp) (int, error) {
	value := op.Value
	op.Value = nil
	data, err := json.Marshal(&consul.TxnOp{KV: &op})
	if err != nil || value == nil {
		return len(data), err
	}
	return len(data) - len(`null`) + len(`""`) + base64.StdEncoding.EncodedLen(len(value)), nil
}

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
// consul.ErrDenied, consul.ErrUnreachable or consul.ErrOutcomeUnknown; for a command
// consul.ErrRefused, when it would write a key that this Consul does not read.
func (t *Txn) Commit(ctx context.Context) (*Result, error) {
	if err := t.valid(); err != nil {
		return nil, err
	}
	if all := recordersOf(ctx); len(all) > 0 {
		if writes := t.writtenKeys(); len(writes) > 0 {
			if err := t.checkNames(ctx, writes); err != nil {
				return nil, err
			}
			return t.commitRecorded(ctx, all, writes)
		}
	}
	return t.carryOut(ctx)
}

// checkNames is Store.CheckNames for the keys of writes that are not deleted.
func (t *Txn) checkNames(ctx context.Context, writes []Write) error {
	var keys []string
	for _, w := range writes {
		if w.Digest != "" {
			keys = append(keys, w.Key)
		}
	}
	return t.store.CheckNames(ctx, keys...)
}

// carryOut is Commit without a record.
func (t *Txn) carryOut(ctx context.Context) (*Result, error) {
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
	t.notifyShared(r)
	return r, nil
}

// notifyShared notes the writes to keys that a Shared keeps current.
func (t *Txn) notifyShared(r *Result) {
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
		return t.store.client.TxnRead(ctx, t.name(), t.ops, t.store.query())
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
			return t.store.held.lose(fmt.Errorf("%w (%s)", ErrTaken, e.What))
		}
		c.Failures = append(c.Failures, Failure{Op: string(op.Verb), Key: t.names[e.OpIndex], Reason: e.What})
	}
	return &c
}

// result sorts the answers to their operations, of which they have the order.
// Deletions have none, and operations on keys that the token may not read are left out.
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

// NonAtomicBatch is a list of groups of operations. Each group is carried out
// all or not at all; the batch as a whole is not: when one transaction fails,
// those in front of it stay. Groups keep their order, and as many as fit go
// into one transaction.
type NonAtomicBatch struct {
	store  *Store
	groups []*Txn
}

// NonAtomicBatch returns an empty batch.
func (s *Store) NonAtomicBatch() *NonAtomicBatch { return &NonAtomicBatch{store: s} }

// Add adds the operations of t as one group.
func (b *NonAtomicBatch) Add(t *Txn) { b.groups = append(b.groups, t) }

// BatchError says how far a batch came.
type BatchError struct {
	Written int // groups that were carried out: the first of the batch
	Failed  int // groups behind them, in the transaction that failed
	Groups  int // all of them
	Err     error
}

func (e *BatchError) Error() string {
	return fmt.Sprintf("batch of %d groups: %d written, then %d failed together: %v", e.Groups, e.Written, e.Failed, e.Err)
}

// Unwrap returns why the transaction failed.
func (e *BatchError) Unwrap() error { return e.Err }

// Commit carries out the groups in order and stops at the first transaction
// that fails, with a *BatchError around what Txn.Commit returns; the groups of
// that transaction share its outcome. consul.ErrTooLarge for a single group is
// returned before anything is sent.
func (b *NonAtomicBatch) Commit(ctx context.Context) error {
	maxOps, maxBody := MaxOps, MaxBody
	if len(recordersOf(ctx)) > 0 {
		maxOps, maxBody = MaxOps-recordOps, MaxBody-recordBody
	}
	parts, err := b.split(maxOps, maxBody)
	if err != nil {
		return err
	}
	written := 0
	for _, p := range parts {
		if _, err := p.txn.Commit(ctx); err != nil {
			return &BatchError{Written: written, Failed: p.groups, Groups: len(b.groups), Err: err}
		}
		written += p.groups
	}
	return nil
}

// part is one transaction of a batch.
type part struct {
	txn    *Txn
	groups int
}

// split packs the groups into transactions within both limits. A group that is
// beyond them alone has a transaction of its own.
func (b *NonAtomicBatch) split(maxOps, maxBody int) ([]part, error) {
	var parts []part
	for i, g := range b.groups {
		if g.store.prefix != b.store.prefix || g.store.held != b.store.held {
			return nil, fmt.Errorf("group %d of the batch is of another store: %w", i, consul.ErrRefused)
		}
		if n := len(parts); n > 0 && fits(parts[n-1].txn, g, maxOps, maxBody) {
			parts[n-1].txn.merge(g)
			parts[n-1].groups++
			continue
		}
		next := b.store.Txn()
		next.merge(g)
		if err := next.valid(); err != nil {
			return nil, fmt.Errorf("group %d of the batch: %w", i, err)
		}
		parts = append(parts, part{txn: next, groups: 1})
	}
	return parts, nil
}

// fits reports whether t still respects both limits with g behind it.
func fits(t, g *Txn, maxOps, maxBody int) bool {
	if g.err != nil {
		return false // split returns the error
	}
	own := len(g.ops) - g.fenced
	return len(t.ops)+own <= maxOps && t.Size()+g.ownSize()+own <= maxBody
}
