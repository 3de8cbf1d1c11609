package consul

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"
)

// Classes of failure. Every error that a Client returns is one of them by
// errors.Is, or wraps the context's error when the caller's context ended.
var (
	// ErrUnreachable: Consul did not answer, or answered that it has no leader or no ACLs yet.
	// A write that fails with it was not carried out.
	ErrUnreachable = errors.New("Consul could not be reached")
	// ErrDenied: the token lacks a right, or does not exist.
	ErrDenied = errors.New("denied by ACLs")
	// ErrNoToken: the token file is missing, empty or not readable, and no request
	// was sent. It is ErrDenied, too.
	ErrNoToken error = noTokenError{}
	// ErrRateLimited: Consul has too many requests or connections (HTTP 429).
	ErrRateLimited = errors.New("rate limited by Consul")
	// ErrOutcomeUnknown: a write was sent and got no answer; it may or may not
	// have been carried out.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrTooLarge: Consul's limit on the size of a value or transaction.
	ErrTooLarge = errors.New("larger than Consul's limit")
	// ErrTooLong: the answer is longer than Query.MaxBytes. The rest was not read.
	ErrTooLong = errors.New("too long an answer")
	// ErrNotFound: the named thing does not exist.
	ErrNotFound = errors.New("not found")
	// ErrRefused: Consul understood the request and refused it: it was not carried out,
	// and the same request is refused again. See IsPermanent.
	ErrRefused = errors.New("refused by Consul")
)

type noTokenError struct{}

func (noTokenError) Error() string        { return "no token" }
func (noTokenError) Is(target error) bool { return target == ErrDenied }

// Error is a failed request: the operation, its object and the class of failure.
type Error struct {
	Op    string // "read key", "register service", …
	Name  string // the key or service; may be empty
	Class error  // one of the Err… sentinels above
	Err   error  // the error of the transport or of Consul
}

func (e *Error) Error() string {
	what := e.Op
	if e.Name != "" {
		what = fmt.Sprintf("%s %q", e.Op, e.Name)
	}
	return fmt.Sprintf("%s: %v: %v", what, e.Class, e.Err)
}

// Unwrap makes errors.Is find both the class and the cause.
func (e *Error) Unwrap() []error { return []error{e.Class, e.Err} }

// classify wraps err, the error of a request, in an Error. The outcome of a
// write that may have reached Consul is unknown.
func classify(ctx context.Context, op, name string, write bool, err error) error {
	if err == nil {
		return nil
	}
	var known *Error
	if errors.As(err, &known) {
		return err
	}
	class := classOf(err, write)
	if ctx.Err() != nil && !write {
		return fmt.Errorf("%s %q: %w", op, name, context.Cause(ctx))
	}
	return &Error{Op: op, Name: name, Class: class, Err: explained(brief(err))}
}

// explained adds what a refusal means where Consul does not say it.
func explained(err error) error {
	status, ok := err.(api.StatusError)
	switch {
	case !ok:
		return err
	case status.Code/100 == 3: // it would be another request: for a key, one for another key
		return fmt.Errorf("%w; it redirects names with an empty, '.' or '..' segment, and jorc follows no redirect", err)
	case status.Code == http.StatusBadRequest && status.Body == "":
		return fmt.Errorf("%w; it takes no name with invisible characters", err)
	case strings.Contains(status.Body, "invalid key name"):
		return fmt.Errorf("%w; names of letters, digits, '-', '_' and '.' work with every version of Consul", err)
	}
	return err
}

func classOf(err error, write bool) error {
	var status api.StatusError
	if errors.As(err, &status) {
		return classOfStatus(status, write)
	}
	if errors.Is(err, errTooManyConnections) {
		return ErrRateLimited
	}
	if errors.Is(err, ErrTooLong) {
		return ErrTooLong
	}
	var op *net.OpError
	notSent := errors.As(err, &op) && op.Op == "dial"
	if write && !notSent {
		return ErrOutcomeUnknown
	}
	return ErrUnreachable
}

func classOfStatus(s api.StatusError, write bool) error {
	switch {
	case notReady(s.Body):
		return ErrUnreachable
	case s.Code == http.StatusForbidden, s.Code == http.StatusUnauthorized,
		strings.Contains(s.Body, "ACL not found"), strings.Contains(s.Body, "Permission denied"):
		return ErrDenied
	case s.Code == http.StatusTooManyRequests:
		return ErrRateLimited
	case s.Code == http.StatusRequestEntityTooLarge, s.Code == http.StatusRequestURITooLong, s.Code == http.StatusRequestHeaderFieldsTooLarge:
		return ErrTooLarge
	case s.Code == http.StatusNotFound:
		return ErrNotFound
	case s.Code < 500, refusedByText(s.Body):
		return ErrRefused
	case !write:
		return ErrUnreachable
	default:
		return ErrOutcomeUnknown
	}
}

// refusedByText reports whether Consul refused a request with status 500, as it does for
// the name of a key since 1.21.
func refusedByText(body string) bool {
	for _, text := range []string{
		"invalid key name", "empty key name", "Invalid Session TTL", "Missing node registration",
		"Failed to create boolean expression evaluator",
	} {
		if strings.Contains(body, text) {
			return true
		}
	}
	return false
}

// IsPermanent reports whether err stays until the request, the token's rights aside, or
// Consul itself is changed: a name that this Consul does not take, or a request beyond its
// limits.
func IsPermanent(err error) bool { return errors.Is(err, ErrRefused) || errors.Is(err, ErrTooLarge) }

// notReady reports whether a server refused a request before it entered Raft.
// The texts are Consul's structs.ErrNoLeader, ErrNotReadyForConsistentReads and
// structs.ErrNoServers, and the one with which a server that has no ACLs answers that it does not
// know a token: they were never bootstrapped, or it was restarted and has not read its log yet.
func notReady(body string) bool {
	for _, text := range []string{"No cluster leader", "Not ready to serve consistent reads", "No known Consul servers", "ACL system must be bootstrapped"} {
		if strings.Contains(body, text) {
			return true
		}
	}
	return false
}

// outage reports whether err, of class ErrUnreachable or ErrOutcomeUnknown,
// affects all requests: Consul does not answer, or is not ready to.
func outage(err error) bool {
	var status api.StatusError
	return !errors.As(err, &status) || notReady(status.Body)
}

// ElectionTime is how long Consul's servers may take to elect a leader. A caller
// that waits for something else retries for at least that long.
const ElectionTime = 15 * time.Second

// IsTransient reports whether err is likely to end within ElectionTime: the
// agent answered, but no server did, as during an election; or Consul has too
// many requests.
func IsTransient(err error) bool {
	var status api.StatusError
	return errors.Is(err, ErrRateLimited) || errors.Is(err, ErrUnreachable) && errors.As(err, &status)
}

// timedOut reports whether a request got no answer at all, not even a reset.
func timedOut(err error) bool {
	var timeout net.Error
	return errors.Is(err, errStuck) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

// brief removes the URL that net/http puts in front of the cause.
func brief(err error) error {
	if errors.Is(err, errTooManyConnections) {
		return errTooManyConnections
	}
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		var op *net.OpError
		if errors.As(err, &op) && err != error(op) {
			err = op
			continue
		}
		var status api.StatusError
		if errors.As(err, &status) {
			return status
		}
		return err
	}
}
