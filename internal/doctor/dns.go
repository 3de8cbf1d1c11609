package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/consul"
)

// servers is a name that Consul's DNS resolves while servers exist.
const servers = "consul.service.consul."

// dns checks Consul's DNS: over UDP, over TCP, and against the HTTP API.
func (e *examination) dns(ctx context.Context) []Finding {
	addr := e.Config.DNS.Addr
	r, err := catalog.NewResolver(addr, catalog.QueryTimeout(e.Timeout))
	if err != nil {
		return one("dns", Fail, err.Error(), "correct --dns-addr (JORC_DNS_ADDR)")
	}
	var (
		wg       sync.WaitGroup
		udp, tcp error
		answer   catalog.SRVAnswer
	)
	wg.Go(func() {
		_, udp = bounded(ctx, 2*e.Timeout, func(ctx context.Context) (catalog.AddressAnswer, error) {
			return r.Addresses(ctx, servers, false)
		})
		if errors.Is(udp, catalog.ErrNoData) {
			udp = nil // the servers have IPv6 addresses
		}
	})
	wg.Go(func() {
		if tcp = e.listens(ctx, r.String()); tcp != nil {
			return
		}
		answer, tcp = bounded(ctx, 2*e.Timeout, func(ctx context.Context) (catalog.SRVAnswer, error) {
			return r.SRV(ctx, servers)
		})
	})
	wg.Wait()
	found := []Finding{classifyDNS("dns_udp", addr, udp, tcp), classifyDNS("dns_tcp", addr, tcp, udp)}
	return append(found, e.agrees(ctx, answer, tcp)...)
}

// listens checks that addr accepts TCP connections: a Resolver would silently fall
// back to UDP.
func (e *examination) listens(ctx context.Context, addr string) error {
	if addr == catalog.System {
		return nil
	}
	d := net.Dialer{Timeout: e.Timeout}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("TCP to %s: %s", addr, why(err))
	}
	return conn.Close()
}

// classifyDNS returns the finding for one transport; other is the error of the other
// one: jorc works with either.
func classifyDNS(name, addr string, err, other error) Finding {
	if err == nil {
		return Finding{name, OK, addr + " answers", ""}
	}
	status := Warn
	if other != nil {
		status = Fail
	}
	remedy := "let Consul's agent serve DNS there (ports.dns), or set its address with --dns-addr (JORC_DNS_ADDR)"
	switch {
	case errors.Is(err, catalog.ErrNXDomain):
		remedy = "with ACLs: give the agent's DNS token service:read and node:read; else see that it knows its servers"
	case errors.Is(err, catalog.ErrDNSRefused):
		remedy = "this server does not know the domain consul: forward it to Consul's port 8600, or set --dns-addr"
	case errors.Is(err, catalog.ErrServFail):
		remedy = "see 'consul_leader': Consul's DNS fails without a leader"
	case name == "dns_tcp" && other == nil:
		remedy = "open TCP, too: 'jorc wait' needs it to count more than a few instances"
	case name == "dns_udp" && other == nil:
		remedy = "open UDP, too: most programs of this host ask over it"
	}
	return Finding{name, status, firstLine(err.Error()), remedy}
}

// agrees compares the answer of DNS with that of the HTTP API.
func (e *examination) agrees(ctx context.Context, answer catalog.SRVAnswer, err error) []Finding {
	const name = "dns_agrees"
	if err != nil {
		return one(name, Skip, "DNS does not answer", "")
	}
	if !e.answers() {
		return unanswered(name)
	}
	entries, err := bounded(ctx, e.Timeout, func(ctx context.Context) ([]*consul.ServiceEntry, error) {
		entries, _, err := e.client.HealthService(ctx, "consul", "", false, consul.Query{})
		return entries, err
	})
	if unknownToken(err) {
		return unknown(name, err)
	}
	if err != nil {
		return one(name, Skip, why(err), "")
	}
	if len(entries) == 0 && !e.granted(ctx, consul.Right{Resource: "service", Access: "read", Segment: "consul"}) {
		return one(name, Skip, `the token may not see the service "consul"`, "give it service:read")
	}
	status, detail, remedy := classifyAgreement(answer, entries)
	return one(name, status, detail, remedy)
}

func classifyAgreement(answer catalog.SRVAnswer, entries []*consul.ServiceEntry) (s Status, detail, remedy string) {
	var healthy []string
	for _, e := range entries {
		if e.Checks.AggregatedStatus() != consul.HealthPassing && e.Checks.AggregatedStatus() != consul.HealthWarning {
			continue
		}
		addr := e.Service.Address
		if addr == "" {
			addr = e.Node.Address
		}
		healthy = append(healthy, net.JoinHostPort(addr, strconv.Itoa(e.Service.Port)))
	}
	var only []string
	for _, i := range answer.Instances {
		if !slices.ContainsFunc(i.Addrs, func(a netip.Addr) bool {
			return slices.Contains(healthy, net.JoinHostPort(a.String(), strconv.Itoa(int(i.Port))))
		}) {
			only = append(only, net.JoinHostPort(strings.TrimSuffix(i.Target, "."), strconv.Itoa(int(i.Port))))
		}
	}
	n := len(answer.Instances)
	if len(only) == 0 && (n == len(healthy) || answer.Cut && n < len(healthy)) {
		return OK, fmt.Sprintf("DNS and the HTTP API name the same %d of the service \"consul\"", len(healthy)), ""
	}
	detail = fmt.Sprintf("of the service \"consul\" DNS names %d, the HTTP API %d healthy", n, len(healthy))
	if len(only) > 0 {
		detail += "; only DNS names " + strings.Join(only, ", ")
	}
	return Warn, detail, "see that --dns-addr and --http-addr mean agents of one datacenter, and that the DNS token may read all services"
}
