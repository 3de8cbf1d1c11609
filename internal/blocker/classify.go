package blocker

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/text"
)

// facts is the data from which the state of a need is computed.
type facts struct {
	dns     dnsFacts
	health  healthFacts
	watched bool // the health API is queried for this need
	// waiting: the first answer of the health API may still arrive; until then it is
	// unknown whether the token may read the service.
	waiting bool
	reached reached
}

// candidates returns the functional endpoints, and whether the target may have
// more.
func (f facts) candidates(n Need) (found []endpoint, atLeast bool) {
	if n.For == catalog.Addressable {
		return f.health.distinct(n), false
	}
	live := f.health.known && f.health.err == nil
	if f.dns.cut && live && (n.Passing || len(f.dns.found) < n.Target.Count) {
		return f.health.distinct(n), false
	}
	found = f.dns.found
	if n.Passing {
		if !live {
			return nil, false
		}
		passing := f.health.distinct(n)
		found = slices.DeleteFunc(slices.Clone(found), func(e endpoint) bool { return !slices.Contains(passing, e) })
	}
	return found, f.dns.cut
}

// classify returns the state of n, without Since.
func classify(n Need, f facts) State {
	s := State{Need: n, Denied: f.health.denied, Answered: f.answered()}
	found, atLeast := f.candidates(n)
	s.Have, s.AtLeast = len(found), atLeast
	enough := s.Have >= n.Target.Count
	if n.For == catalog.Reachable && enough {
		s.Have = f.reached.count
		enough = s.Have >= n.Target.Count
	}
	switch {
	case s.Denied:
		s.Why = fmt.Sprintf("the token may not read the service %q", f.serviceOf(n))
	case enough && f.waiting:
		s.Why = "waiting for Consul's HTTP API to check the token's rights"
	case enough:
		s.Satisfied = true
	default:
		s.Why = f.why(n, s)
	}
	return s
}

func (f facts) serviceOf(n Need) string {
	q, _ := n.Target.service()
	return q.Service
}

// answered reports whether Consul itself answered, rather than a DNS server
// between it and jorc.
func (f facts) answered() bool {
	if f.health.known || f.health.denied {
		return true
	}
	return f.dns.asked && (f.dns.err == nil || errors.Is(f.dns.err, catalog.ErrNXDomain) || errors.Is(f.dns.err, catalog.ErrNoData))
}

// why explains what is missing.
func (f facts) why(n Need, s State) string {
	count := fmt.Sprintf("%d of %d", s.Have, n.Target.Count)
	if s.AtLeast {
		count = "at least " + count
	}
	for _, part := range []string{f.whyUnreached(n), f.whyNoAnswer(n), f.whyHealth(n)} {
		if part != "" {
			return count + ": " + part
		}
	}
	switch {
	case f.dns.asked && f.dns.err != nil:
		return count + ": DNS: " + classText(f.dns.err)
	case !f.dns.asked && !f.health.known:
		return count + ": no answer yet"
	}
	return count
}

func (f facts) whyUnreached(n Need) string {
	if n.For != catalog.Reachable || len(f.reached.failed) == 0 {
		return ""
	}
	return text.FewOf(", ", []string{f.reached.failed[0].Error()}, len(f.reached.failed))
}

// whyNoAnswer returns the error of a failed query.
func (f facts) whyNoAnswer(n Need) string {
	err := f.dns.err
	if errors.Is(err, catalog.ErrNXDomain) || errors.Is(err, catalog.ErrNoData) {
		err = nil
	}
	if (n.For == catalog.Addressable || n.Passing) && f.health.err != nil {
		err = f.health.err
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

// whyHealth summarizes the instances in the catalog.
func (f facts) whyHealth(n Need) string {
	h := f.health
	if !f.watched || !h.known {
		return ""
	}
	hidden := ""
	if h.filtered {
		hidden = ", ACLs hide some"
	}
	if len(h.instances) == 0 {
		return "none registered" + hidden
	}
	by := map[string]int{}
	var sick *instance
	for i, in := range h.instances {
		by[in.status]++
		if !in.usable() && (sick == nil || sick.note == "") {
			sick = &h.instances[i]
		}
	}
	var parts []string
	for _, status := range []string{consul.HealthPassing, consul.HealthWarning, consul.HealthCritical, consul.HealthMaint} {
		if by[status] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", by[status], status))
		}
	}
	text := fmt.Sprintf("%d registered (%s)%s", len(h.instances), strings.Join(parts, ", "), hidden)
	if sick != nil && sick.note != "" {
		text += fmt.Sprintf(", %s on %s: %s", sick.id, sick.node, sick.note)
	}
	if h.count(n) >= n.Target.Count && n.For != catalog.Addressable {
		text += fmt.Sprintf(", but DNS answers with %d", len(f.dns.found))
	}
	return text
}

func classText(err error) string {
	var e *catalog.DNSError
	if errors.As(err, &e) {
		return e.Class.Error()
	}
	return err.Error()
}

// endpoint is the address of an instance: an IP address, or a host name if DNS
// returns no address, and a port, which is 0 if only addresses are counted.
type endpoint struct {
	host string
	port int
}

func (e endpoint) String() string { return net.JoinHostPort(e.host, strconv.Itoa(e.port)) }

// normalized returns an endpoint in a form that can be compared.
func normalized(host string, port int) endpoint {
	if a, err := netip.ParseAddr(host); err == nil {
		return endpoint{a.Unmap().String(), port}
	}
	return endpoint{strings.ToLower(strings.TrimSuffix(host, ".")), port}
}

// dnsFacts is the last answer of DNS.
type dnsFacts struct {
	asked bool
	found []endpoint // distinct
	cut   bool       // the target has, or may have, more
	err   error      // of the catalog's classes; nil if found is not empty
}

func (d *dnsFacts) addSRV(answer catalog.SRVAnswer) {
	seen := map[endpoint]bool{}
	for _, i := range answer.Instances {
		e := normalized(i.Target, int(i.Port))
		if len(i.Addrs) > 0 {
			e = normalized(i.Addrs[0].String(), int(i.Port))
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
		d.found = append(d.found, normalized(a.String(), 0))
	}
	d.cut = d.cut || answer.Cut
}

// firstLine returns the first line of a check's output, at most 60 characters.
func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	if r := []rune(s); len(r) > 60 {
		return string(r[:59]) + "…"
	}
	return s
}

// rightsTTL is how long a checked right to read stays valid: the query of a
// missing service returns at every change of the catalog.
const rightsTTL = 5 * time.Second
