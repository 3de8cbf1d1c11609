// Package catalog knows which instances serve what: it registers this host's
// services and their checks with Consul, and resolves services over DNS.
package catalog

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/miekg/dns"
)

// System as a Resolver's address means the servers of /etc/resolv.conf.
const System = "system"

const (
	defaultDNSTimeout = 2 * time.Second
	// udpBuffer is announced over EDNS0: what fits an unfragmented datagram.
	udpBuffer = 1232
	// mostUDP is the size of a UDP answer from which on it counts as cut:
	// Consul cuts without setting the TC bit unless it is told to.
	mostUDP = udpBuffer - 256
)

// Resolver asks DNS servers. It holds no connection and is safe for
// concurrent use.
type Resolver struct {
	addr       string
	timeout    time.Duration
	resolvConf string
	port       string // of the servers in resolvConf
	dialer     net.Dialer
}

// ResolverOption changes how a Resolver asks.
type ResolverOption func(*Resolver)

// QueryTimeout bounds one try at one server, 2 s by default.
func QueryTimeout(d time.Duration) ResolverOption { return func(r *Resolver) { r.timeout = d } }

// ResolvConf names the file that System reads instead of /etc/resolv.conf.
func ResolvConf(path string) ResolverOption { return func(r *Resolver) { r.resolvConf = path } }

// NewResolver returns a Resolver that asks addr: "host:port", a host (port
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

// String is the address that the Resolver asks.
func (r *Resolver) String() string { return r.addr }

// SRV asks for the instances behind name. It asks over TCP, since a datagram
// holds few of them, and over UDP only where nobody listens on TCP.
func (r *Resolver) SRV(ctx context.Context, name string) (SRVAnswer, error) {
	return lookup(ctx, r, name, dns.TypeSRV, parseSRV)
}

// Addresses asks for the addresses behind name: A, and AAAA when v6.
func (r *Resolver) Addresses(ctx context.Context, name string, v6 bool) (AddressAnswer, error) {
	qtype := dns.TypeA
	if v6 {
		qtype = dns.TypeAAAA
	}
	return lookup(ctx, r, name, qtype, parseAddresses)
}

// PTR asks for the names of an address, each with a dot at its end.
func (r *Resolver) PTR(ctx context.Context, addr netip.Addr) ([]string, error) {
	name, err := dns.ReverseAddr(addr.Unmap().WithZone("").String())
	if err != nil {
		return nil, &DNSError{Name: addr.String(), Class: ErrDNSName, Err: err}
	}
	return lookup(ctx, r, name, dns.TypePTR, parsePTR)
}

// lookup tries the names that the search list makes of name until one exists.
func lookup[T any](ctx context.Context, r *Resolver, name string, qtype uint16, parse func(question, reply) (T, error)) (T, error) {
	var zero T
	servers, names, timeout, err := r.plan(name)
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

// ask tries the servers in turn: one that does not answer, or cannot, passes
// the question on to the next.
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
