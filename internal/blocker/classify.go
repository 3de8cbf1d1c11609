package blocker

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
	"time"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
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
	more := ""
	if k := len(f.reached.failed) - 1; k > 0 {
		more = fmt.Sprintf(" and %d more", k)
	}
	return fmt.Sprintf("%v%s", f.reached.failed[0], more)
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

// instance is one registered instance.
type instance struct {
	endpoint
	id, node string
	status   string // consul.HealthPassing, …
	note     string // of the check that is not passing
}

// healthFacts is the last answer of the health API.
type healthFacts struct {
	known     bool // the API has answered
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
		i := instance{endpoint: normalized(host, e.Service.Port), id: e.Service.ID, node: e.Node.Node, status: e.Checks.AggregatedStatus()}
		for _, c := range e.Checks {
			if c.Status != consul.HealthPassing && i.note == "" {
				i.note = firstLine(c.Output)
			}
		}
		h.instances = append(h.instances, i)
	}
}

// firstLine returns the first line of a check's output, at most 60 characters.
func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	if r := []rune(s); len(r) > 60 {
		return string(r[:59]) + "…"
	}
	return s
}

// usable reports whether Consul's DNS returns the instance.
func (i instance) usable() bool { return catalog.Functional.Includes(i.status) }

// count returns the number of distinct endpoints for n in the health API.
func (h healthFacts) count(n Need) int { return len(h.distinct(n)) }

func (h healthFacts) distinct(n Need) []endpoint {
	seen := map[endpoint]bool{}
	var out []endpoint
	for _, i := range h.instances {
		e := i.endpoint
		if n.Target.Name != "" && n.For != catalog.Reachable {
			e.port = 0
		}
		ok := i.usable()
		switch {
		case n.For == catalog.Addressable:
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

// mailbox passes facts of the health API to a follower. The next query is sent when the
// follower has processed them: if they end the wait, there is no next query to end.
type mailbox struct {
	mu      sync.Mutex
	facts   healthFacts
	changed concurrency.Signal
	handled chan struct{} // closed when the follower has processed facts
}

func newMailbox() *mailbox {
	return &mailbox{changed: concurrency.NewSignal(), handled: make(chan struct{})}
}

// put changes the facts and returns when the follower has processed them, or ctx ends.
func (m *mailbox) put(ctx context.Context, change func(*healthFacts)) {
	m.mu.Lock()
	change(&m.facts)
	handled := m.handled
	m.mu.Unlock()
	m.changed.Notify()
	select {
	case <-handled:
	case <-ctx.Done():
	}
}

// take returns the facts, and a function to call when they are processed.
func (m *mailbox) take() (facts healthFacts, done func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	handled := m.handled
	m.handled = make(chan struct{})
	return m.facts, func() { close(handled) }
}

// rightsTTL is how long a checked right to read stays valid: the query of a
// missing service returns at every change of the catalog.
const rightsTTL = 5 * time.Second

// watchHealth fills m until ctx ends.
func (b *Blocker) watchHealth(ctx context.Context, q ServiceQuery, m *mailbox) {
	var allowed time.Time
	_ = b.health.Watch(ctx, q, func(u HealthUpdate) { // returns only when ctx ends
		if u.Err == nil && len(u.Value) == 0 && !u.Meta.Filtered && time.Since(allowed) < rightsTTL {
			m.put(ctx, func(h *healthFacts) { h.update(u, false) })
			return
		}
		denied := b.denied(ctx, q, u)
		if u.Err == nil && !denied {
			allowed = time.Now()
		}
		if ctx.Err() == nil {
			m.put(ctx, func(h *healthFacts) { h.update(u, denied) })
		}
	})
}

// readHealth reads once.
func (b *Blocker) readHealth(ctx context.Context, q ServiceQuery) healthFacts {
	var h healthFacts
	u := b.health.Read(ctx, q)
	h.update(u, b.denied(ctx, q, u))
	return h
}

func (h *healthFacts) update(u HealthUpdate, denied bool) {
	h.denied = denied
	if u.Err != nil {
		h.err = u.Err
		return
	}
	h.take(u.Value)
	h.filtered = u.Meta.Filtered
}

// denied reports whether an answer is empty because the token lacks rights. Rights
// can be checked in the agent's own datacenter only.
func (b *Blocker) denied(ctx context.Context, q ServiceQuery, u HealthUpdate) bool {
	switch {
	case u.Err != nil:
		return errors.Is(u.Err, consul.ErrDenied)
	case len(u.Value) > 0:
		return false
	case u.Meta.Filtered:
		return true
	case q.Datacenter != "":
		return false
	}
	may, err := b.health.MayRead(ctx, q.Service)
	return err == nil && !may
}
