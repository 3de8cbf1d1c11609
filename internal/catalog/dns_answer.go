package catalog

import (
	"net"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

// Where Consul cuts answers over TCP without saying so: it sends at most 1,024
// SRV records and 64 KB. Answers that come near are taken for cut.
const (
	manyRecords = 500
	nearlyFull  = 60 << 10
)

// SRVInstance is one instance as DNS tells it.
type SRVInstance struct {
	Target   string // name of the host, with a dot at its end
	Port     uint16
	Priority uint16
	Weight   uint16
	Addrs    []netip.Addr // from the additional section; may be empty
	Node     string       // the Consul node, when Target names it
}

// SRVAnswer is what DNS tells of a service. It has at least one instance.
type SRVAnswer struct {
	Instances []SRVInstance
	Cut       bool // there are, or may be, more instances than the answer holds
}

// AddressAnswer is what DNS tells of a name. It has at least one address.
type AddressAnswer struct {
	Addrs []netip.Addr // distinct
	Cut   bool         // there are, or may be, more
}

// cut tells whether rep may hold less than the server has.
func (rep reply) cut() bool {
	most := nearlyFull
	if !rep.tcp {
		most = mostUDP
	}
	return rep.msg.Truncated || rep.size >= most || len(rep.msg.Answer) >= manyRecords
}

// none is why there is no record of the type asked for.
func (rep reply) none() error {
	if err := classOf(rep.msg.Rcode); err != nil {
		return err
	}
	return &answerError{class: ErrNoData}
}

func parseSRV(q question, rep reply) (SRVAnswer, error) {
	names := aliases(q.name, rep.msg.Answer)
	hosts := hostAddrs(rep.msg.Extra)
	extra := cnames(rep.msg.Extra)
	var out []SRVInstance
	for _, rr := range rep.msg.Answer {
		srv, ok := rr.(*dns.SRV)
		if !ok || !names[lower(srv.Hdr.Name)] || srv.Target == "." {
			continue // "." says that the service is decidedly not there (RFC 2782)
		}
		target := follow(lower(srv.Target), extra)
		out = append(out, SRVInstance{
			Target: srv.Target, Port: srv.Port, Priority: srv.Priority, Weight: srv.Weight,
			Addrs: hosts[target], Node: nodeOf(srv.Target),
		})
	}
	if len(out) == 0 {
		return SRVAnswer{}, rep.none()
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
		return AddressAnswer{}, rep.none()
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
		return nil, rep.none()
	}
	return out, nil
}

// aliases is the set of names that the CNAMEs in rrs make of name, itself
// included. Records of other names do not belong to the answer.
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

// follow returns the end of name's chain of aliases.
func follow(name string, next map[string]string) string {
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

// nodeOf returns NODE of "NODE.node.DC.DOMAIN.", the names that Consul gives
// to its nodes.
func nodeOf(target string) string {
	i := strings.Index(lower(target), ".node.")
	if i <= 0 {
		return ""
	}
	return target[:i]
}

func lower(name string) string { return strings.ToLower(name) }
