package kv

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jorc/jorc/internal/consul"
)

// Limits of one transaction. Consul of late takes more operations; older ones
// do not. The body is what goes over the wire: JSON, values in base64.
const (
	MaxOps  = 64
	MaxBody = 512 << 10 // bytes
)

// Txn is a list of operations that are carried out all or not at all. Its
// methods add operations and return it; what was wrong with one is told by
// Commit. In the store of a held lock it begins with a check that the lock is
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

// Len returns the number of operations, the check of a held lock included.
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
	if t.failed(t.store.check(key)) != nil {
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
