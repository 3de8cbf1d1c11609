package catalog

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/miekg/dns"
)

// reply is a server's answer.
type reply struct {
	msg *dns.Msg
	// size in bytes on the wire, which servers limit.
	size int
	tcp  bool
}

// exchange queries one server once: over UDP, and over TCP if the answer is or
// may be truncated; SRV over TCP first.
func (r *Resolver) exchange(ctx context.Context, server string, timeout time.Duration, q question) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if q.qtype == dns.TypeSRV {
		rep, err := r.roundTrip(ctx, "tcp", server, q)
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return rep, err
		}
		return r.roundTrip(ctx, "udp", server, q)
	}
	rep, err := r.roundTrip(ctx, "udp", server, q)
	if err != nil || !rep.msg.Truncated && rep.size < maxUDP {
		return rep, err
	}
	whole, err := r.roundTrip(ctx, "tcp", server, q)
	if err != nil && !errors.Is(err, ErrDNSMalformed) {
		return rep, nil //nolint:nilerr // a truncated answer, marked as such, is better than none
	}
	return whole, err
}

// roundTrip sends one question and reads its answer. If the server does not
// support EDNS0, it repeats the question without it.
func (r *Resolver) roundTrip(ctx context.Context, network, server string, q question) (reply, error) {
	rep, err := r.send(ctx, network, server, q, true)
	if err != nil {
		return reply{}, err
	}
	if rep.msg.Rcode == dns.RcodeFormatError || rep.msg.Rcode == dns.RcodeNotImplemented {
		return r.send(ctx, network, server, q, false)
	}
	return rep, nil
}

func (r *Resolver) send(ctx context.Context, network, server string, q question, edns bool) (reply, error) {
	conn, err := r.dialer.DialContext(ctx, network, server)
	if err != nil {
		return reply{}, err
	}
	defer conn.Close()
	// The end of the context becomes the connection's deadline.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	m := new(dns.Msg).SetQuestion(q.name, q.qtype)
	if edns {
		m.SetEdns0(udpBuffer, false)
	}
	co := &dns.Conn{Conn: conn, UDPSize: dns.MaxMsgSize - 1}
	if err := co.WriteMsg(m); err != nil {
		return reply{}, ended(ctx, err)
	}
	for {
		rep, err := receive(co, network == "tcp")
		if err != nil {
			return reply{}, ended(ctx, err)
		}
		if rep.answers(m) {
			return rep, nil
		}
		if network == "tcp" {
			return reply{}, malformed("it answers another question")
		}
		// A stray or forged datagram: the answer may still arrive.
	}
}

func receive(co *dns.Conn, tcp bool) (reply, error) {
	data, err := co.ReadMsgHeader(nil)
	switch {
	case errors.Is(err, dns.ErrShortRead):
		return reply{}, malformed("too short")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return reply{}, malformed("the connection was closed in the middle")
	case err != nil:
		return reply{}, err
	}
	return unpack(data, tcp)
}

func unpack(data []byte, tcp bool) (reply, error) {
	m := new(dns.Msg)
	if err := m.Unpack(data); err != nil && !m.Truncated {
		return reply{}, malformed("%w", err)
	}
	return reply{msg: m, size: len(data), tcp: tcp}, nil
}

// answers reports whether rep belongs to the question in m. Servers that report
// a format error may leave the question out.
func (rep reply) answers(m *dns.Msg) bool {
	if !rep.msg.Response || rep.msg.Id != m.Id {
		return false
	}
	if len(rep.msg.Question) == 0 {
		return rep.msg.Rcode != dns.RcodeSuccess
	}
	got, want := rep.msg.Question[0], m.Question[0]
	return got.Qtype == want.Qtype && got.Qclass == want.Qclass && strings.EqualFold(got.Name, want.Name)
}

// ended returns the context's error if the exchange failed because of it.
func ended(ctx context.Context, err error) error {
	var timeout net.Error
	if ctx.Err() != nil && errors.As(err, &timeout) && timeout.Timeout() {
		return ctx.Err()
	}
	return err
}

// Consul truncates answers over TCP without the TC bit: it sends at most 1,024
// SRV records and 64 KB. Answers near these limits count as truncated.
const (
	manyRecords = 500
	nearlyFull  = 60 << 10
)

// SRVInstance is one instance in an SRV answer.
type SRVInstance struct {
	Target   string // name of the host, with a dot at its end
	Port     uint16
	Priority uint16
	Weight   uint16
	Addrs    []netip.Addr // from the additional section; may be empty
	Node     string       // the Consul node, when Target names it
}

// SRVAnswer lists the instances of a service: at least one.
type SRVAnswer struct {
	Instances []SRVInstance
	Cut       bool // the service has, or may have, more instances
}

// AddressAnswer lists the addresses of a name: at least one.
type AddressAnswer struct {
	Addrs []netip.Addr // distinct
	Cut   bool         // the name has, or may have, more addresses
}

// cut reports whether rep is, or may be, truncated.
func (rep reply) cut() bool {
	most := nearlyFull
	if !rep.tcp {
		most = maxUDP
	}
	return rep.msg.Truncated || rep.size >= most || len(rep.msg.Answer) >= manyRecords
}

// noRecords returns the error of a reply without records of the wanted type.
func (rep reply) noRecords() error {
	if err := classOf(rep.msg.Rcode); err != nil {
		return err
	}
	return failed(ErrNoData, nil)
}

func parseSRV(q question, rep reply) (SRVAnswer, error) {
	names := aliases(q.name, rep.msg.Answer)
	hosts := hostAddrs(rep.msg.Extra)
	extra := cnames(rep.msg.Extra)
	var out []SRVInstance
	for _, rr := range rep.msg.Answer {
		srv, ok := rr.(*dns.SRV)
		if !ok || !names[lower(srv.Hdr.Name)] || srv.Target == "." {
			continue // "." means that the service is not available (RFC 2782)
		}
		target := lastAlias(lower(srv.Target), extra)
		out = append(out, SRVInstance{
			Target: srv.Target, Port: srv.Port, Priority: srv.Priority, Weight: srv.Weight,
			Addrs: hosts[target], Node: nodeOf(srv.Target),
		})
	}
	if len(out) == 0 {
		return SRVAnswer{}, rep.noRecords()
	}
	return SRVAnswer{Instances: out, Cut: rep.cut()}, nil
}

func parseAddresses(q question, rep reply) (AddressAnswer, error) {
	names := aliases(q.name, rep.msg.Answer)
	seen := map[netip.Addr]bool{}
	var out []netip.Addr
	for _, rr := range rep.msg.Answer {
		addr, ok := addrOf(rr)
		if !ok || rr.Header().Rrtype != q.qtype || !names[lower(rr.Header().Name)] || seen[addr] {
			continue
		}
		seen[addr] = true
		out = append(out, addr)
	}
	if len(out) == 0 {
		return AddressAnswer{}, rep.noRecords()
	}
	return AddressAnswer{Addrs: out, Cut: rep.cut()}, nil
}

func parsePTR(q question, rep reply) ([]string, error) {
	names := aliases(q.name, rep.msg.Answer)
	var out []string
	for _, rr := range rep.msg.Answer {
		if ptr, ok := rr.(*dns.PTR); ok && names[lower(ptr.Hdr.Name)] {
			out = append(out, ptr.Ptr)
		}
	}
	if len(out) == 0 {
		return nil, rep.noRecords()
	}
	return out, nil
}

// aliases returns name and the names that the CNAMEs in rrs map it to. Records
// of other names do not belong to the answer.
func aliases(name string, rrs []dns.RR) map[string]bool {
	next := cnames(rrs)
	set := map[string]bool{}
	for name = lower(name); name != "" && !set[name]; name = next[name] {
		set[name] = true
	}
	return set
}

func cnames(rrs []dns.RR) map[string]string {
	next := map[string]string{}
	for _, rr := range rrs {
		if c, ok := rr.(*dns.CNAME); ok {
			next[lower(c.Hdr.Name)] = lower(c.Target)
		}
	}
	return next
}

// lastAlias returns the end of name's chain of aliases.
func lastAlias(name string, next map[string]string) string {
	for range len(next) {
		target, ok := next[name]
		if !ok {
			break
		}
		name = target
	}
	return name
}

func hostAddrs(rrs []dns.RR) map[string][]netip.Addr {
	hosts := map[string][]netip.Addr{}
	for _, rr := range rrs {
		if addr, ok := addrOf(rr); ok {
			name := lower(rr.Header().Name)
			hosts[name] = append(hosts[name], addr)
		}
	}
	return hosts
}

func addrOf(rr dns.RR) (netip.Addr, bool) {
	var ip net.IP
	switch rr := rr.(type) {
	case *dns.A:
		ip = rr.A
	case *dns.AAAA:
		ip = rr.AAAA
	}
	addr, ok := netip.AddrFromSlice(ip)
	return addr.Unmap(), ok
}

// nodeOf returns NODE of "NODE.node.DC.DOMAIN.", Consul's names of nodes.
func nodeOf(target string) string {
	i := strings.Index(lower(target), ".node.")
	if i <= 0 {
		return ""
	}
	return target[:i]
}

func lower(name string) string { return strings.ToLower(name) }
