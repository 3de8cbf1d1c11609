package blocker

import (
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/consul"
)

// endpoint is where an instance is: an address, or a host name where DNS gives
// none, and a port, 0 when only addresses are counted.
type endpoint struct {
	host string
	port int
}

func (e endpoint) String() string { return net.JoinHostPort(e.host, strconv.Itoa(e.port)) }

// place makes endpoints comparable whoever wrote them.
func place(host string, port int) endpoint {
	if a, err := netip.ParseAddr(host); err == nil {
		return endpoint{a.Unmap().String(), port}
	}
	return endpoint{strings.ToLower(strings.TrimSuffix(host, ".")), port}
}

// dnsFacts is what DNS said last.
type dnsFacts struct {
	asked bool
	found []endpoint // distinct
	cut   bool       // there are, or may be, more
	err   error      // of the catalog's classes; nil when found is not empty
}

func (d *dnsFacts) addSRV(answer catalog.SRVAnswer) {
	seen := map[endpoint]bool{}
	for _, i := range answer.Instances {
		e := place(i.Target, int(i.Port))
		if len(i.Addrs) > 0 {
			e = place(i.Addrs[0].String(), int(i.Port))
		}
		if !seen[e] {
			seen[e] = true
			d.found = append(d.found, e)
		}
	}
	d.cut = answer.Cut
}

func (d *dnsFacts) addAddresses(answer catalog.AddressAnswer) {
	for _, a := range answer.Addrs {
		d.found = append(d.found, place(a.String(), 0))
	}
	d.cut = d.cut || answer.Cut
}

// instance is one registered instance.
type instance struct {
	endpoint
	id, node string
	status   string // consul.HealthPassing, …
	note     string // of the check that is not passing
}

// healthFacts is what the health API said last.
type healthFacts struct {
	known     bool // it has answered
	instances []instance
	filtered  bool  // ACLs hide some
	denied    bool  // the token may not read the service
	err       error // since the last answer
}

func (h *healthFacts) take(entries []*consul.ServiceEntry) {
	h.known, h.err = true, nil
	h.instances = make([]instance, 0, len(entries))
	for _, e := range entries {
		host := e.Service.Address
		if host == "" {
			host = e.Node.Address
		}
		i := instance{endpoint: place(host, e.Service.Port), id: e.Service.ID, node: e.Node.Node, status: e.Checks.AggregatedStatus()}
		for _, c := range e.Checks {
			if c.Status != consul.HealthPassing && i.note == "" {
				i.note = firstLine(c.Output)
			}
		}
		h.instances = append(h.instances, i)
	}
}

// firstLine is the first line of a check's output, cut to what fits a line.
func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	if r := []rune(s); len(r) > 60 {
		return string(r[:59]) + "…"
	}
	return s
}

// usable tells whether Consul's DNS hands out an instance.
func (i instance) usable() bool {
	return i.status == consul.HealthPassing || i.status == consul.HealthWarning
}

// count is the number of distinct endpoints that n counts, as the health API
// sees it.
func (h healthFacts) count(n Need) int { return len(h.distinct(n)) }

func (h healthFacts) distinct(n Need) []endpoint {
	seen := map[endpoint]bool{}
	var out []endpoint
	for _, i := range h.instances {
		e := i.endpoint
		if n.Target.Name != "" && n.For != Reachable {
			e.port = 0
		}
		ok := i.usable()
		switch {
		case n.For == Addressable:
			ok = true
		case n.Passing:
			ok = i.status == consul.HealthPassing
		}
		if ok && !seen[e] {
			seen[e] = true
			out = append(out, e)
		}
	}
	return out
}
