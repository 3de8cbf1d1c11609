// Package blocker waits for services: it parses targets, queries Consul's DNS for
// them, and uses a blocking query on the health API to know when to query again.
package blocker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
)

// DNS decides whether a target is functional. *catalog.Resolver is one.
type DNS interface {
	SRV(ctx context.Context, name string) (catalog.SRVAnswer, error)
	Addresses(ctx context.Context, name string, v6 bool) (catalog.AddressAnswer, error)
}

// Health reports changes, counts the instances that a DNS answer cannot hold, and
// explains missing ones. FromClient makes one.
type Health interface {
	// Watch calls handle with the instances, now and after each change.
	Watch(ctx context.Context, s ServiceQuery, handle func(HealthUpdate)) error
	// Read returns the instances once.
	Read(ctx context.Context, s ServiceQuery) HealthUpdate
	// MayRead reports whether the token may read the service.
	MayRead(ctx context.Context, service string) (bool, error)
}

// ServiceQuery names instances in Consul's catalog.
type ServiceQuery struct {
	Service    string
	Tag        string
	Datacenter string
}

// HealthUpdate is all instances of a service, critical ones included.
type HealthUpdate = consul.Update[[]*consul.ServiceEntry]

// Blocker waits for needs. It is safe for concurrent use.
type Blocker struct {
	dns    DNS
	health Health // nil: the HTTP API is not used
	dialer net.Dialer
}

// New returns a Blocker that queries dns and watches health, which may be nil for
// waits with Options.DNSOnly.
func New(dns DNS, health Health) *Blocker { return &Blocker{dns: dns, health: health} }

// FromClient returns the Health of a Consul client.
func FromClient(c *consul.Client) Health { return clientHealth{c} }

type clientHealth struct{ client *consul.Client }

func (h clientHealth) source(s ServiceQuery) consul.Source[[]*consul.ServiceEntry] {
	return func(ctx context.Context, q consul.Query) ([]*consul.ServiceEntry, consul.Meta, error) {
		q.Datacenter = s.Datacenter
		return h.client.HealthService(ctx, s.Service, s.Tag, false, q)
	}
}

func (h clientHealth) Watch(ctx context.Context, s ServiceQuery, handle func(HealthUpdate)) error {
	consul.PrepareServices()
	return consul.Watch(ctx, h.client, consul.Query{}, h.source(s), handle)
}

func (h clientHealth) Read(ctx context.Context, s ServiceQuery) HealthUpdate {
	v, meta, err := h.source(s)(ctx, consul.Query{})
	return HealthUpdate{Value: v, Meta: meta, Err: err}
}

func (h clientHealth) MayRead(ctx context.Context, service string) (bool, error) {
	allowed, err := h.client.Authorize(ctx, consul.Right{Resource: "service", Access: "read", Segment: service})
	return err == nil && allowed[0], err
}

// ErrTimedOut is wrapped by a TimeoutError.
var ErrTimedOut = errors.New("timed out")

// TimeoutError ends a wait after its timeout or number of tries. It is
// ErrTimedOut, and also consul.ErrUnreachable if Consul never answered.
type TimeoutError struct {
	States []State // of all needs
}

func (e *TimeoutError) Error() string { return fmt.Sprintf("timed out: %s", summary(e.States)) }

// Answered reports whether Consul answered at least once.
func (e *TimeoutError) Answered() bool {
	for _, s := range e.States {
		if s.Answered {
			return true
		}
	}
	return false
}

// Is makes errors.Is find ErrTimedOut and consul.ErrUnreachable.
func (e *TimeoutError) Is(target error) bool {
	return target == ErrTimedOut || target == consul.ErrUnreachable && !e.Answered()
}

// DeniedError ends a wait for services that the token may not read. It is
// consul.ErrDenied.
type DeniedError struct {
	States []State // of all needs
}

func (e *DeniedError) Error() string { return fmt.Sprintf("denied by ACLs: %s", summary(e.States)) }

// Unwrap makes errors.Is find consul.ErrDenied.
func (e *DeniedError) Unwrap() error { return consul.ErrDenied }

// State is the current state of a need.
type State struct {
	Need      Need
	Have      int
	AtLeast   bool // a DNS answer has room for Have only: the target may have more
	Satisfied bool
	Since     time.Time // of the last change of Satisfied; zero before the first answer
	Why       string    // what is missing and why; empty when satisfied
	Denied    bool      // the token may not read the service
	Answered  bool      // Consul has answered at least once
}

// String returns one line of text: "web=3: 1 of 3: …".
func (s State) String() string {
	line := s.Need.Target.String()
	if s.Need.For != catalog.Functional {
		line += " " + s.Need.For.String()
	}
	if s.Why == "" {
		return line
	}
	return line + ": " + s.Why
}

// same reports whether two states are equal except for Since.
func (s State) same(o State) bool {
	s.Since, o.Since = time.Time{}, time.Time{}
	return s == o
}

// Lines returns one line per state that is not satisfied.
func Lines(states []State) []string {
	var lines []string
	for _, s := range states {
		if !s.Satisfied {
			lines = append(lines, s.String())
		}
	}
	return lines
}

func summary(states []State) string { return strings.Join(Lines(states), "; ") }

// ErrUsage is wrapped by errors about needs and options.
var ErrUsage = errors.New("wrong usage")

// Need is a target and the required state of its instances.
type Need struct {
	Target  Target
	For     catalog.Level
	Passing bool // only instances whose checks all pass
}

// NeedOf returns the need of a requires block of the configuration.
func NeedOf(r config.Requires) (Need, error) {
	t, err := ParseTarget(r.Target)
	if err != nil {
		return Need{}, fmt.Errorf("%s: requires: %w", r.Pos, err)
	}
	if r.Count > 1 {
		if t.Count != 1 && t.Count != r.Count {
			return Need{}, fmt.Errorf("%s: requires %q: count is %d", r.Pos, r.Target, r.Count)
		}
		t.Count = r.Count
	}
	level, err := catalog.ParseLevel(r.For)
	if err != nil {
		return Need{}, fmt.Errorf("%s: requires %q: %w", r.Pos, r.Target, err)
	}
	n := Need{Target: t, For: level}
	if err := n.check(false); err != nil {
		return Need{}, fmt.Errorf("%s: requires: %w", r.Pos, err)
	}
	return n, nil
}

// NeedsOf returns the needs of requires blocks.
func NeedsOf(all []config.Requires) ([]Need, error) {
	needs := make([]Need, len(all))
	for i := range all {
		var err error
		if needs[i], err = NeedOf(all[i]); err != nil {
			return nil, err
		}
	}
	return needs, nil
}

// Options configure a wait.
type Options struct {
	Timeout time.Duration // 0: no limit
	Stable  time.Duration // stay satisfied for this long
	Any     bool          // one satisfied need is enough
	DNSOnly bool          // do not use the HTTP API
	// Tries, if above zero, is the number of queries, with TrySleep in between,
	// without a watch.
	Tries    int
	TrySleep time.Duration
}

// Check validates needs and options; errors are ErrUsage.
func (o Options) Check(needs []Need) error {
	switch {
	case len(needs) == 0:
		return fmt.Errorf("%w: no target to wait for", ErrUsage)
	case o.Timeout < 0 || o.Stable < 0 || o.TrySleep < 0 || o.Tries < 0:
		return fmt.Errorf("%w: durations and tries cannot be negative", ErrUsage)
	case o.Timeout > 0 && o.Stable >= o.Timeout:
		return fmt.Errorf("%w: a timeout of %v ends before anything can have been stable for %v", ErrUsage, o.Timeout, o.Stable)
	case o.TrySleep > 0 && o.Tries == 0:
		return fmt.Errorf("%w: a pause between tries needs a number of tries", ErrUsage)
	case o.Stable > 0 && o.Tries > 0:
		return fmt.Errorf("%w: plain tries cannot detect that a target stayed stable", ErrUsage)
	}
	for _, n := range needs {
		if err := n.check(o.DNSOnly); err != nil {
			return err
		}
	}
	return nil
}

func (n Need) check(dnsOnly bool) error {
	name := n.Target.Ident()
	switch {
	case n.Target.Count < 1:
		return fmt.Errorf("%w: %q: at least 1 instance", ErrUsage, name)
	case dnsOnly && n.For == catalog.Addressable:
		return fmt.Errorf("%w: %q: DNS shows only functional services, not registered ones", ErrUsage, name)
	case dnsOnly && n.Passing:
		return fmt.Errorf("%w: %q: DNS does not distinguish passing from warning", ErrUsage, name)
	case n.For == catalog.Addressable && n.Passing:
		return fmt.Errorf("%w: %q: addressable is whatever the health is, passing is not", ErrUsage, name)
	case n.Target.Name != "" && (n.For == catalog.Addressable || n.Passing):
		return fmt.Errorf("%w: %q: addressable and passing apply to services, not to DNS names", ErrUsage, name)
	case n.For == catalog.Addressable:
		return nil
	}
	if _, err := n.Target.DNSName(); err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	return nil
}
