package profile

import (
	"errors"
	"fmt"
)

// Classes of failure, by errors.Is. In every case the document is as it was.
var (
	// ErrMismatch: a reference or a patch's test did not hold (exit 4).
	ErrMismatch = errors.New("does not match")
	// ErrInvalid: what was given cannot be done with any document, or not with this one.
	ErrInvalid = errors.New("invalid")
	// ErrSchema: the schema of a param refuses a value.
	ErrSchema = errors.New("refused by its schema")
	// ErrTooLarge: the result would be beyond Consul's or jorc's own limits.
	ErrTooLarge = errors.New("too large")
	// ErrDamaged: what is stored is not a profile.
	ErrDamaged = errors.New("not a profile")
	// ErrNewer: only a newer jorc can read the document.
	ErrNewer = errors.New("profile of a newer format")
	// ErrConflicts: two sides changed the same thing in different ways.
	ErrConflicts = errors.New("both sides changed the same")
)

// MismatchError is a reference that does not hold: nothing is written. It is an
// ErrMismatch. Its text does not contain the values, which may be secrets.
type MismatchError struct {
	Key         string
	Want        *Value // nil: the param was to be missing
	Have        Value  // what the param is now, when HavePresent
	HavePresent bool
	More        []string // other params of the same change that do not match either
}

func (e *MismatchError) Error() string {
	differs := "is not what the reference asks for"
	switch {
	case e.Want == nil:
		differs = "exists already"
	case !e.HavePresent:
		differs = "does not exist, and the reference asks for a value"
	}
	more := ""
	if n := len(e.More); n > 0 {
		more = fmt.Sprintf(" (and %d more do not match, such as %q)", n, e.More[0])
	}
	return fmt.Sprintf("param %q %s%s: nothing was written; read it again and decide", e.Key, differs, more)
}

// Unwrap makes errors.Is find ErrMismatch.
func (e *MismatchError) Unwrap() error { return ErrMismatch }

// SizeError is something beyond a limit. It is an ErrTooLarge.
type SizeError struct {
	What  string // "the profile", "the text", …
	Bytes int    // its size
	Limit int
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("%s has %d bytes, %d more than the limit of %d KiB: remove params, or keep large values in keys of their own",
		e.What, e.Bytes, e.Bytes-e.Limit, e.Limit>>10)
}

// Unwrap makes errors.Is find ErrTooLarge.
func (e *SizeError) Unwrap() error { return ErrTooLarge }

// SyntaxError is text that is not JSON, or JSON that jorc does not accept. It is
// an ErrInvalid and does not quote the text.
type SyntaxError struct {
	Line, Column int // from 1; the column counts characters
	Reason       string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("line %d column %d: %s", e.Line, e.Column, e.Reason)
}

// Unwrap makes errors.Is find ErrInvalid.
func (e *SyntaxError) Unwrap() error { return ErrInvalid }

// ParamError is a value that a param with a meaning cannot have. It is an
// ErrInvalid, and what its validator returned.
type ParamError struct {
	Key   string
	Place string // what holds the value when it is not the cluster, such as `role "db"`
	Err   error
}

func (e *ParamError) Error() string {
	place := ""
	if e.Place != "" {
		place = " of " + e.Place
	}
	return fmt.Sprintf("param %q%s: %v; nothing was written", e.Key, place, e.Err)
}

// Unwrap makes errors.Is find ErrInvalid and the validator's error.
func (e *ParamError) Unwrap() []error { return []error{ErrInvalid, e.Err} }

// classed is an error whose class is found by errors.Is but not spelled out.
type classed struct {
	class error
	text  string
}

func (e *classed) Error() string { return e.text }
func (e *classed) Unwrap() error { return e.class }

func invalid(format string, args ...any) error {
	return &classed{ErrInvalid, fmt.Sprintf(format, args...)}
}

func tooLarge(format string, args ...any) error {
	return &classed{ErrTooLarge, fmt.Sprintf(format, args...)}
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}
