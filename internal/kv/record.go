package kv

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/jorc/jorc/internal/consul"
)

// Recorder records who makes a change, in the transaction of the change.
type Recorder interface {
	// Record adds the record of writes to t, a transaction of s that already has
	// them, or nothing. It returns what reading keys of s returns.
	Record(ctx context.Context, s *Store, t *Txn, writes []Write) error
}

// Write is one key that a transaction writes or deletes.
type Write struct {
	Key    string
	Digest string // of the value; empty: the key is deleted
}

type recorderKey struct{}

// WithRecorder returns a context whose transactions r records, or none for nil: a command's context
// has one, the context of an agent has none. Locks and releases are not recorded.
//
// A change that the token may make but not record is made without a record. One
// that does not fit into a transaction with its record is recorded after it.
func WithRecorder(ctx context.Context, r Recorder) context.Context {
	return context.WithValue(ctx, recorderKey{}, r)
}

func recorderOf(ctx context.Context) Recorder {
	r, _ := ctx.Value(recorderKey{}).(Recorder)
	return r
}

// Room that a batch leaves in each transaction for its record.
const (
	recordOps  = 1
	recordBody = 48 << 10 // bytes
)

// writtenKeys are the keys that t writes or deletes.
func (t *Txn) writtenKeys() []Write {
	var all []Write
	for i, op := range t.ops {
		switch op.KV.Verb {
		case consul.KVSet, consul.KVCAS:
			all = append(all, Write{t.names[i], digest(op.KV.Value)})
		case consul.KVDelete, consul.KVDeleteCAS:
			all = append(all, Write{Key: t.names[i]})
		}
	}
	return all
}

// commitRecorded is Commit together with the record of r.
func (t *Txn) commitRecorded(ctx context.Context, r Recorder, writes []Write) (result *Result, err error) {
	var final error // of t itself
	err = RetryConflicts(ctx, func() error {
		both := t.store.Txn()
		both.merge(t)
		err := r.Record(ctx, t.store, both, writes)
		switch {
		case errors.Is(err, consul.ErrDenied):
			result, final = t.carryOut(ctx)
			return nil
		case err != nil:
			return err
		}
		if errors.Is(both.valid(), consul.ErrTooLarge) {
			if result, final = t.carryOut(ctx); final == nil {
				final = t.store.record(ctx, r, writes)
			}
			return nil
		}
		result, final = both.carryOut(ctx)
		var conflict *ConflictError
		switch {
		case errors.Is(final, consul.ErrDenied): // the token may lack the right to the record alone
			result, final = t.carryOut(ctx)
		case errors.As(final, &conflict) && conflict.only(both.names[len(t.names):]):
			return final
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return result, final
}

// only reports whether nothing but operations on keys failed.
func (e *ConflictError) only(keys []string) bool {
	for _, f := range e.Failures {
		found := false
		for _, key := range keys {
			found = found || f.Key == key
		}
		if !found {
			return false
		}
	}
	return true
}

// record writes the record of a change that was made without one, unless the token
// may not.
func (s *Store) record(ctx context.Context, r Recorder, writes []Write) error {
	err := RetryConflicts(ctx, func() error {
		t := s.Txn()
		if err := r.Record(ctx, s, t, writes); err != nil {
			return err
		}
		_, err := t.carryOut(ctx)
		return err
	})
	if err != nil && !errors.Is(err, consul.ErrDenied) {
		return fmt.Errorf("key %q is written, but who wrote it is not recorded: %w", s.Path(writes[0].Key), err)
	}
	return nil
}

// Digest returns the digest, as Write has it, of the value that a Get read; empty:
// the key does not exist, or was not read.
func (r *Result) Digest(key string) string {
	if p := r.read[key]; p != nil && p.ModifyIndex != 0 {
		return digest(p.Value)
	}
	return ""
}

func digest(value []byte) string {
	sum := sha256.Sum256(value)
	return hex.EncodeToString(sum[:8])
}
