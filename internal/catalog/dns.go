// Package catalog registers this host's services and their checks with Consul,
// lists and exports the catalog, and resolves services over DNS.
package catalog

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/miekg/dns"
)

// System as a Resolver's address means the servers of /etc/resolv.conf.
const System = "system"

const (
	defaultDNSTimeout = 2 * time.Second
	// udpBuffer is the size announced over EDNS0: that of an unfragmented datagram.
	udpBuffer = 1232
	// maxUDP is the size from which a UDP answer counts as truncated: Consul
	// truncates without the TC bit unless it is configured to set it.
	maxUDP = udpBuffer - 256
)

// Resolver queries DNS servers. It holds no connection and is safe for
// concurrent use.
type Resolver struct {
	addr       string
	timeout    time.Duration
	resolvConf string
	port       string // of the servers in resolvConf
	dialer     net.Dialer
}

// ResolverOption changes how a Resolver sends queries.
type ResolverOption func(*Resolver)

// QueryTimeout limits one attempt at one server, 2 s by default.
func QueryTimeout(d time.Duration) ResolverOption { return func(r *Resolver) { r.timeout = d } }

// NewResolver returns a Resolver that queries addr: "host:port", a host (port
// 53), or System.
func NewResolver(addr string, opts ...ResolverOption) (*Resolver, error) {
	r := &Resolver{addr: addr, timeout: defaultDNSTimeout, resolvConf: "/etc/resolv.conf", port: "53"}
	for _, o := range opts {
		o(r)
	}
	if addr == System {
		return r, nil
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil { // no port, or an IPv6 address without brackets
		host, port = addr, "53"
		if _, perr := netip.ParseAddr(addr); perr != nil && !plainHost(addr) {
			return nil, fmt.Errorf("DNS address %q: want host:port or %q: %w", addr, System, err)
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return nil, fmt.Errorf("DNS address %q: %q is not a port", addr, port)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	r.addr = net.JoinHostPort(host, port)
	return r, nil
}

// String returns the address that the Resolver queries.
func (r *Resolver) String() string { return r.addr }

// SRV looks up the instances of name. It uses TCP, because a datagram holds only
// a few of them, and UDP only if the server refuses TCP connections.
func (r *Resolver) SRV(ctx context.Context, name string) (SRVAnswer, error) {
	return lookup(ctx, r, name, dns.TypeSRV, parseSRV)
}

// Addresses looks up the addresses of name: A, or AAAA with v6.
func (r *Resolver) Addresses(ctx context.Context, name string, v6 bool) (AddressAnswer, error) {
	qtype := dns.TypeA
	if v6 {
		qtype = dns.TypeAAAA
	}
	return lookup(ctx, r, name, qtype, parseAddresses)
}

// PTR looks up the names of an address, each with a dot at its end.
func (r *Resolver) PTR(ctx context.Context, addr netip.Addr) ([]string, error) {
	name, err := dns.ReverseAddr(addr.Unmap().WithZone("").String())
	if err != nil {
		return nil, &DNSError{Name: addr.String(), Class: ErrDNSName, Err: err}
	}
	return lookup(ctx, r, name, dns.TypePTR, parsePTR)
}

// lookup tries name with the domains of the search list until one exists.
func lookup[T any](ctx context.Context, r *Resolver, name string, qtype uint16, parse func(question, reply) (T, error)) (T, error) {
	var zero T
	servers, names, timeout, err := r.targets(name)
	if err != nil {
		return zero, err
	}
	var first error
	for _, n := range names {
		q := question{name: n, qtype: qtype}
		v, err := ask(ctx, r, servers, timeout, q, parse)
		if err == nil {
			return v, nil
		}
		if first == nil {
			first = err
		}
		if !errors.Is(err, ErrNXDomain) && !errors.Is(err, ErrNoData) {
			return zero, err
		}
	}
	return zero, first
}

// ask tries the servers in turn until one answers.
func ask[T any](ctx context.Context, r *Resolver, servers []string, timeout time.Duration, q question, parse func(question, reply) (T, error)) (T, error) {
	var zero T
	var last error
	for _, server := range servers {
		rep, err := r.exchange(ctx, server, timeout, q)
		if err == nil {
			v, perr := parse(q, rep)
			if perr == nil {
				return v, nil
			}
			err = perr
		}
		if ctx.Err() != nil {
			return zero, fmt.Errorf("DNS %v: %w", q, context.Cause(ctx))
		}
		last = q.failure(server, err)
		if errors.Is(err, ErrNXDomain) || errors.Is(err, ErrNoData) {
			return zero, last
		}
	}
	return zero, last
}

// targets returns the servers to query, the names to try in turn, and the
// timeout of each attempt. It reads the system's configuration every time,
// because DHCP and VPNs rewrite it. A name with a dot at its end is used as it is.
func (r *Resolver) targets(name string) (servers, names []string, timeout time.Duration, err error) {
	if _, ok := dns.IsDomainName(name); !ok || name == "" {
		return nil, nil, 0, &DNSError{Name: name, Type: "name", Class: ErrDNSName}
	}
	if r.addr != System {
		return []string{r.addr}, []string{canonical(name)}, r.timeout, nil
	}
	conf, err := dns.ClientConfigFromFile(r.resolvConf)
	if err != nil {
		return nil, nil, 0, &DNSError{Name: name, Type: "name", Class: ErrDNSUnreachable, Err: err}
	}
	if len(conf.Servers) == 0 {
		conf.Servers = []string{"127.0.0.1"} // resolv.conf(5)
	}
	for range max(1, min(conf.Attempts, 5)) {
		for _, s := range conf.Servers {
			servers = append(servers, net.JoinHostPort(s, r.port))
		}
	}
	if conf.Timeout > 0 {
		timeout = min(r.timeout, time.Duration(conf.Timeout)*time.Second)
	} else {
		timeout = r.timeout
	}
	for _, n := range conf.NameList(name) {
		if _, ok := dns.IsDomainName(n); ok {
			names = append(names, canonical(n))
		}
	}
	if len(names) == 0 {
		return nil, nil, 0, &DNSError{Name: name, Type: "name", Class: ErrDNSName, Err: fmt.Errorf("too long with the search list of %s", r.resolvConf)}
	}
	return servers, names, timeout, nil
}

func plainHost(s string) bool {
	_, ok := dns.IsDomainName(s)
	return ok && s != "" && !strings.ContainsAny(s, ":/ ")
}

// canonical writes a valid name as answers do: some characters have more than
// one spelling ("\032" is "\ ").
func canonical(name string) string {
	buf := make([]byte, 256)
	n, err := dns.PackDomainName(dns.Fqdn(name), buf, 0, nil, false)
	if err != nil {
		return dns.Fqdn(name)
	}
	same, _, err := dns.UnpackDomainName(buf[:n], 0)
	if err != nil {
		return dns.Fqdn(name)
	}
	return same
}

// Classes of failed DNS queries. Every error of a Resolver is one of these by
// errors.Is, or wraps the error of the caller's context.
var (
	// ErrNXDomain: the name does not exist. Consul also returns it for a service
	// without instances, and for a service that its token may not read.
	ErrNXDomain = errors.New("no such name")
	// ErrNoData: the name exists, without records of the wanted type.
	ErrNoData = errors.New("no such records")
	// ErrServFail: the server failed; Consul's does while it has no leader.
	ErrServFail = errors.New("server failure")
	// ErrDNSRefused: the server refuses this name or this client.
	ErrDNSRefused = errors.New("refused by the DNS server")
	// ErrDNSTimeout: the server did not answer in time.
	ErrDNSTimeout = errors.New("no answer in time")
	// ErrDNSUnreachable: no server listens at the address.
	ErrDNSUnreachable = errors.New("DNS server unreachable")
	// ErrDNSMalformed: the answer cannot be parsed.
	ErrDNSMalformed = errors.New("malformed DNS answer")
	// ErrDNSName: the name is not a valid DNS name.
	ErrDNSName = errors.New("not a DNS name")
)

// DNSError is a failed DNS query.
type DNSError struct {
	Name   string // as queried
	Type   string // "SRV", "A", …
	Server string // host:port; empty if no server was queried
	Class  error  // one of the sentinels above
	Err    error  // the network's error; may be nil
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

// failed returns a failure that the answer itself reports; err may be nil.
func failed(class, err error) error { return &DNSError{Class: class, Err: err} }

func malformed(format string, args ...any) error {
	return failed(ErrDNSMalformed, fmt.Errorf(format, args...))
}

// failure returns err as a DNSError.
func (q question) failure(server string, err error) error {
	e := &DNSError{Name: q.name, Type: dns.Type(q.qtype).String(), Server: server, Class: ErrDNSUnreachable, Err: plain(err)}
	var answer *DNSError
	var timeout net.Error
	switch {
	case errors.As(err, &answer):
		e.Class, e.Err = answer.Class, answer.Err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout():
		e.Class, e.Err = ErrDNSTimeout, nil
	}
	return e
}

// plain removes the addresses and ports that net puts in front of the cause.
func plain(err error) error {
	var number syscall.Errno
	if errors.As(err, &number) {
		return number
	}
	return err
}

// classOf returns the error of a response code.
func classOf(rcode int) error {
	switch rcode {
	case dns.RcodeSuccess:
		return nil
	case dns.RcodeNameError:
		return failed(ErrNXDomain, nil)
	case dns.RcodeServerFailure:
		return failed(ErrServFail, nil)
	case dns.RcodeRefused, dns.RcodeNotAuth, dns.RcodeNotImplemented:
		return failed(ErrDNSRefused, nil)
	default:
		return failed(ErrServFail, fmt.Errorf("response code %s", rcodeName(rcode)))
	}
}

func rcodeName(rcode int) string {
	if s, ok := dns.RcodeToString[rcode]; ok {
		return s
	}
	return fmt.Sprint(rcode)
}
