package catalog

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/miekg/dns"
)

// What a DNS question can come to beside an answer. Every error of a Resolver
// is one of these by errors.Is, or wraps the error of the caller's context.
var (
	// ErrNXDomain: there is no such name. Consul says so too of a service
	// without instances, and of one that its token may not read.
	ErrNXDomain = errors.New("no such name")
	// ErrNoData: the name exists, without records of the type asked for.
	ErrNoData = errors.New("no such records")
	// ErrServFail: the server failed; Consul does so without a leader.
	ErrServFail = errors.New("server failure")
	// ErrDNSRefused: the server does not answer this name, or this client.
	ErrDNSRefused = errors.New("refused by the DNS server")
	// ErrDNSTimeout: no answer in time.
	ErrDNSTimeout = errors.New("no answer in time")
	// ErrDNSUnreachable: nobody listens there.
	ErrDNSUnreachable = errors.New("DNS server unreachable")
	// ErrDNSMalformed: an answer that cannot be understood.
	ErrDNSMalformed = errors.New("malformed DNS answer")
	// ErrDNSName: the name cannot be asked for.
	ErrDNSName = errors.New("not a DNS name")
)

// DNSError is a question without an answer.
type DNSError struct {
	Name   string // as asked
	Type   string // "SRV", "A", …
	Server string // host:port, when one was asked
	Class  error  // one of the sentinels above
	Err    error  // what the network said; may be nil
}

func (e *DNSError) Error() string {
	s := fmt.Sprintf("DNS %s %s", e.Type, e.Name)
	if e.Server != "" {
		s += " at " + e.Server
	}
	s += ": " + e.Class.Error()
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap makes errors.Is find both the class and the cause.
func (e *DNSError) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Class}
	}
	return []error{e.Class, e.Err}
}

type question struct {
	name  string // with a dot at its end
	qtype uint16
}

func (q question) String() string { return dns.Type(q.qtype).String() + " " + q.name }

// answerError is a failure whose class the answer itself tells.
type answerError struct {
	class error // one of the sentinels above
	err   error // details; may be nil
}

func (e *answerError) Error() string { return fmt.Sprint(e.class, ": ", e.err) }

func (e *answerError) Unwrap() error { return e.class }

func malformed(format string, args ...any) error {
	return &answerError{class: ErrDNSMalformed, err: fmt.Errorf(format, args...)}
}

// failure is err as the Resolver's caller sees it.
func (q question) failure(server string, err error) error {
	e := &DNSError{Name: q.name, Type: dns.Type(q.qtype).String(), Server: server, Class: ErrDNSUnreachable, Err: plain(err)}
	var told *answerError
	var timeout net.Error
	switch {
	case errors.As(err, &told):
		e.Class, e.Err = told.class, told.err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout():
		e.Class, e.Err = ErrDNSTimeout, nil
	}
	return e
}

// plain drops the addresses and ports that net puts in front of what happened.
func plain(err error) error {
	var number syscall.Errno
	if errors.As(err, &number) {
		return number
	}
	return err
}

// classOf tells what a response code means for the asker.
func classOf(rcode int) error {
	switch rcode {
	case dns.RcodeSuccess:
		return nil
	case dns.RcodeNameError:
		return &answerError{class: ErrNXDomain}
	case dns.RcodeServerFailure:
		return &answerError{class: ErrServFail}
	case dns.RcodeRefused, dns.RcodeNotAuth, dns.RcodeNotImplemented:
		return &answerError{class: ErrDNSRefused}
	default:
		return &answerError{class: ErrServFail, err: fmt.Errorf("response code %s", rcodeName(rcode))}
	}
}

func rcodeName(rcode int) string {
	if s, ok := dns.RcodeToString[rcode]; ok {
		return s
	}
	return fmt.Sprint(rcode)
}
