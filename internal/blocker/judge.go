package blocker

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/consul"
)

// facts is all that is known of a need.
type facts struct {
	dns     dnsFacts
	health  healthFacts
	watched bool // the health API is asked about this need
	// patient: the health API still has time to answer for the first time;
	// until then nobody knows whether the token may read the service.
	patient bool
	reached reached
}

// candidates are the endpoints that are functional, and whether there may be
// more than those.
func (f facts) candidates(n Need) (found []endpoint, atLeast bool) {
	if n.For == Addressable {
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

// judge says how far n is. It sets everything of the State but Since.
func judge(n Need, f facts) State {
	s := State{Need: n, Denied: f.health.denied, Answered: f.answered()}
	found, atLeast := f.candidates(n)
	s.Have, s.AtLeast = len(found), atLeast
	enough := s.Have >= n.Target.Count
	if n.For == Reachable && enough {
		s.Have = f.reached.count
		enough = s.Have >= n.Target.Count
	}
	switch {
	case s.Denied:
		s.Why = fmt.Sprintf("the token may not read the service %q", f.serviceOf(n))
	case enough && f.patient:
		s.Why = "waiting for Consul's HTTP API to say whether it may be read"
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

// answered tells whether Consul, and not just a server on the way to it, spoke.
func (f facts) answered() bool {
	if f.health.known || f.health.denied {
		return true
	}
	return f.dns.asked && (f.dns.err == nil || errors.Is(f.dns.err, catalog.ErrNXDomain) || errors.Is(f.dns.err, catalog.ErrNoData))
}

// why says what is missing.
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
		return count + ": DNS says: " + classText(f.dns.err)
	case !f.dns.asked && !f.health.known:
		return count + ": no answer yet"
	}
	return count
}

func (f facts) whyUnreached(n Need) string {
	if n.For != Reachable || len(f.reached.failed) == 0 {
		return ""
	}
	more := ""
	if k := len(f.reached.failed) - 1; k > 0 {
		more = fmt.Sprintf(" and %d more", k)
	}
	return fmt.Sprintf("%v%s", f.reached.failed[0], more)
}

// whyNoAnswer tells of failures to ask.
func (f facts) whyNoAnswer(n Need) string {
	err := f.dns.err
	if errors.Is(err, catalog.ErrNXDomain) || errors.Is(err, catalog.ErrNoData) {
		err = nil
	}
	if (n.For == Addressable || n.Passing) && f.health.err != nil {
		err = f.health.err
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

// whyHealth tells what the catalog holds instead.
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
	if h.count(n) >= n.Target.Count && n.For != Addressable {
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
