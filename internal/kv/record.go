package kv

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

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

// WithRecorder returns a context whose transactions r alone records, or none for nil: a command's
// context has one, the context of an agent has none. Locks and releases are not recorded.
//
// A change that the token may make but not record is made without that record. One
// that does not fit into a transaction with its records is recorded after it.
func WithRecorder(ctx context.Context, r Recorder) context.Context {
	if r == nil {
		return context.WithValue(ctx, recorderKey{}, []Recorder(nil))
	}
	return context.WithValue(ctx, recorderKey{}, []Recorder{r})
}

// AddRecorder is WithRecorder that keeps the recorders of ctx. They record before r does.
func AddRecorder(ctx context.Context, r Recorder) context.Context {
	return context.WithValue(ctx, recorderKey{}, append(slices.Clip(recordersOf(ctx)), r))
}

func recordersOf(ctx context.Context) []Recorder {
	all, _ := ctx.Value(recorderKey{}).([]Recorder)
	return all
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

// commitRecorded is Commit together with the records of all.
func (t *Txn) commitRecorded(ctx context.Context, all []Recorder, writes []Write) (result *Result, err error) {
	var final error // of t itself
	err = RetryConflicts(ctx, func() error {
		both, ends, err := t.recorded(ctx, all, writes)
		if err != nil {
			return err
		}
		if errors.Is(both.valid(), consul.ErrTooLarge) {
			if result, final = t.carryOut(ctx); final == nil {
				final = t.store.record(ctx, all, writes)
			}
			return nil
		}
		result, final = both.carryOut(ctx)
		var conflict *ConflictError
		switch {
		case errors.Is(final, consul.ErrDenied): // the token may lack the right to one record alone
			i := both.deniedRecord(final, len(t.ops), ends)
			if i < 0 {
				result, final = t.carryOut(ctx)
				return nil
			}
			all = slices.Delete(slices.Clone(all), i, i+1)
			return ErrConflict // again, without that record
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

// recorded returns t together with the records of all, and for each where its operations
// end. What the token may not read is not recorded.
func (t *Txn) recorded(ctx context.Context, all []Recorder, writes []Write) (both *Txn, ends []int, err error) {
	both = t.store.Txn()
	both.merge(t)
	for _, r := range all {
		if err := r.Record(ctx, t.store, both, writes); err != nil && !errors.Is(err, consul.ErrDenied) {
			return nil, nil, err
		}
		ends = append(ends, len(both.ops))
	}
	return both, ends, nil
}

// deniedRecord returns which record a token may not write by the error of the transaction;
// -1: another of its operations, or none that is known. The records begin at operation begin.
func (t *Txn) deniedRecord(err error, begin int, ends []int) int {
	var denied *consul.Error
	if !errors.As(err, &denied) {
		return -1
	}
	for i, end := range ends {
		for _, op := range t.ops[begin:end] {
			if op.KV.Key == denied.Name {
				return i
			}
		}
		begin = end
	}
	return -1
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

// record writes the records of a change that was made without them, except the ones that
// the token may not write.
func (s *Store) record(ctx context.Context, all []Recorder, writes []Write) error {
	for _, r := range all {
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
