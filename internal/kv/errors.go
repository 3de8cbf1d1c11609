package kv

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jorc/jorc/internal/consul"
)

// Sentinels of this package; those of package consul pass through it.
var (
	// ErrConflict: what the write depended on is not so any more. Nothing was written.
	ErrConflict = errors.New("changed meanwhile")
	// ErrDamaged: the stored value is not a document of its kind.
	ErrDamaged = errors.New("damaged document")
	// ErrNewer: the document has a format that only a newer jorc can read.
	ErrNewer = errors.New("document of a newer format")
	// ErrLockLost: the lock is held no more, or may be by the time it matters.
	// A write that fails with it was not carried out.
	ErrLockLost = errors.New("lock lost")
	// ErrLocked: somebody else holds the lock.
	ErrLocked = errors.New("locked")
	// ErrBadKey: the name cannot be that of a key.
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

func conflict(op, key, reason string) error {
	return &ConflictError{Failures: []Failure{{Op: op, Key: key, Reason: reason}}}
}

// tooLarge is a write refused before it is sent.
func tooLarge(op, name, format string, args ...any) error {
	return &consul.Error{Op: op, Name: name, Class: consul.ErrTooLarge, Err: fmt.Errorf(format, args...)}
}
