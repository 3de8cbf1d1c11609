// Package kv keeps jorc's shared state in Consul's KV: typed documents changed
// by compare-and-swap, transactions that respect Consul's limits, watches, and
// session locks that fence what their holder writes.
//
// Every failure is one of this package's sentinels or one of package consul's
// classes, by errors.Is. Three never stand in for one another: ErrConflict
// (nothing was written), consul.ErrUnreachable (nothing was carried out) and
// consul.ErrOutcomeUnknown (it may have been).
package kv

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"
	"unicode"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
)

// MaxValue is the size in bytes of the largest value that Consul takes.
const MaxValue = 512 << 10

// Store is the keys below one prefix. It is safe for concurrent use, and so
// are the stores made from it.
type Store struct {
	client     *consul.Client
	prefix     string // "" or ends with a slash
	writers    *keyLocks
	consistent bool
	held       *Lease // its lock is checked in every write
	shared     []*Shared
}

// New returns the store of the keys below prefix, such as "jorc/default". An
// empty prefix is the root of the KV.
func New(client *consul.Client, prefix string) *Store {
	if prefix = strings.Trim(prefix, "/"); prefix != "" {
		prefix += "/"
	}
	return &Store{client: client, prefix: prefix, writers: newKeyLocks()}
}

// Consistent returns the same store with reads that no deposed leader can
// answer. They cost one more round trip between the servers.
func (s *Store) Consistent() *Store {
	c := *s
	c.consistent = true
	return &c
}

// Path returns the whole name of key in Consul.
func (s *Store) Path(key string) string { return s.prefix + key }

// check returns ErrBadKey for a key that Consul cannot hold.
func (s *Store) check(key string) error {
	if key == "" || strings.HasPrefix(key, "/") {
		return fmt.Errorf("key %q below %q: %w", key, s.prefix, ErrBadKey)
	}
	return nil
}

// checkWritable returns ErrBadKey also for a key that no Consul lets anyone read: a
// transaction would write it.
func (s *Store) checkWritable(key string) error {
	if err := s.check(key); err != nil {
		return err
	}
	full := s.Path(key)
	if path.Clean(full) != strings.TrimSuffix(full, "/") || strings.ContainsFunc(full, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("key %q: %w: no Consul reads it", full, ErrBadKey)
	}
	return nil
}

// CheckNames returns consul.ErrRefused unless this Consul takes the keys in requests that
// read them; transactions write any name. It writes nothing, and asks Consul only about
// names that not every version takes.
func (s *Store) CheckNames(ctx context.Context, keys ...string) error {
	paths := make([]string, len(keys))
	for i, key := range keys {
		paths[i] = s.Path(key)
	}
	refused, err := s.client.RefusedKeys(ctx, paths...)
	for _, name := range paths {
		if err == nil && refused[name] != nil {
			err = fmt.Errorf("nothing was written, as this Consul takes no such name: %w", refused[name])
		}
	}
	return err
}

func (s *Store) query() consul.Query { return consul.Query{Consistent: s.consistent} }

// get reads one key. The pair is nil when the key does not exist.
func (s *Store) get(ctx context.Context, key string, q consul.Query) (*consul.KVPair, consul.Meta, error) {
	if err := s.check(key); err != nil {
		return nil, consul.Meta{}, err
	}
	return s.client.KVGet(ctx, s.Path(key), q)
}

// List reads all keys that begin with prefix, for Tree.Decode and Doc.Find. It
// returns consul.ErrDenied also when the token may read only a part.
func (s *Store) List(ctx context.Context, prefix string) (consul.KVPairs, error) {
	pairs, _, err := NewTextTree(s, prefix).fetch(ctx, s.query())
	return pairs, err
}

// Sentinels of this package; those of package consul pass through it.
var (
	// ErrConflict: a key that the write depends on has changed. Nothing was written.
	ErrConflict = errors.New("changed meanwhile")
	// ErrDamaged: the stored value is not a document of the expected type.
	ErrDamaged = errors.New("damaged document")
	// ErrNewer: the document has a format that only a newer jorc can read.
	ErrNewer = errors.New("document of a newer format")
	// ErrLockLost: the lock is lost, or may be. A write that fails with it was not
	// carried out.
	ErrLockLost = errors.New("lock lost")
	// ErrLocked: another session holds the lock.
	ErrLocked = errors.New("locked")
	// ErrBadKey: the name is not valid for a key.
	ErrBadKey = errors.New("not the name of a key")
)

// Failure is one operation of a transaction that did not hold.
type Failure struct {
	Op     string // "cas", "check-index", …
	Key    string // as the store's user named it
	Reason string // in Consul's words
}

// ConflictError says which operations kept a transaction from being carried
// out. It is an ErrConflict.
type ConflictError struct{ Failures []Failure }

func (e *ConflictError) Error() string {
	parts := make([]string, len(e.Failures))
	for i, f := range e.Failures {
		parts[i] = fmt.Sprintf("%s %q: %s", f.Op, f.Key, f.Reason)
	}
	return fmt.Sprintf("%v: %s", ErrConflict, strings.Join(parts, "; "))
}

// Unwrap makes errors.Is find ErrConflict.
func (e *ConflictError) Unwrap() error { return ErrConflict }

// Pauses between attempts that met a conflict.
const (
	firstConflictPause = 10 * time.Millisecond
	lastConflictPause  = 500 * time.Millisecond
)

// RetryConflicts calls attempt, which reads, decides and writes, until its write
// meets no ErrConflict, with growing pauses in between. It returns what attempt
// returned at last, or ctx's error.
func RetryConflicts(ctx context.Context, attempt func() error) error {
	pauses := concurrency.NewBackoff(firstConflictPause, lastConflictPause)
	for {
		err := attempt()
		if !errors.Is(err, ErrConflict) || errors.Is(err, ErrLockLost) {
			return err
		}
		if err := pauses.Wait(ctx); err != nil {
			return err
		}
	}
}

func conflict(op, key, reason string) error {
	return &ConflictError{Failures: []Failure{{Op: op, Key: key, Reason: reason}}}
}

// tooLarge is a write refused before it is sent.
func tooLarge(op, name, format string, args ...any) error {
	return &consul.Error{Op: op, Name: name, Class: consul.ErrTooLarge, Err: fmt.Errorf(format, args...)}
}
