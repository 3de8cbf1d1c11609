package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
)

// Keys of a service's meta by which jorc knows its own registrations: who
// registered it, and what exactly, so that the same is not registered twice.
const (
	MetaOwner = "jorc-owner"
	MetaHash  = "jorc-hash"
)

// What a check without an interval or a timeout gets, and the least TTL of a
// check that jorc runs.
const (
	defaultInterval = 10 * time.Second
	defaultTimeout  = 30 * time.Second
	leastTTL        = 30 * time.Second
)

// registration is one service as jorc wants it to stand at the agent.
type registration struct {
	id       string
	name     string
	onStop   string // "" = as the agent's configuration says
	stored   bool   // from `jorc service register`, not from the configuration
	presence bool   // jorc's own

	wire   *consul.ServiceRegistration // as sent, but for the checks' initial states
	hash   string                      // of wire
	checks []checkSpec
}

// checkSpec is one check of a registration and, when jorc runs it, how.
type checkSpec struct {
	id        string
	name      string
	service   string // its id
	kind      string
	initial   string // state
	command   []string
	interval  time.Duration
	timeout   time.Duration
	threshold thresholds
}

// runByJorc tells checks that jorc runs from those that Consul runs and those
// that send their own heartbeats.
func (c checkSpec) runByJorc() bool { return c.kind == kindScript || c.kind == kindPresence }

// newRegistration translates a configured service. leastTTL bounds the TTL of
// its script checks from below.
func newRegistration(s config.Service, owner string, leastTTL time.Duration) *registration {
	r := &registration{id: s.ID, name: s.Name, onStop: s.OnStop}
	if r.id == "" {
		r.id = s.Name
	}
	r.wire = &consul.ServiceRegistration{
		ID: r.id, Name: s.Name, Address: s.Address, Port: s.Port, Tags: slices.Clone(s.Tags),
		EnableTagOverride: s.EnableTagOverride, TaggedAddresses: taggedAddresses(s),
		Meta: map[string]string{},
	}
	maps.Copy(r.wire.Meta, s.Meta)
	if s.Weights != nil {
		r.wire.Weights = &consul.AgentWeights{Passing: s.Weights.Passing, Warning: s.Weights.Warning}
	}
	for i, c := range s.Checks {
		spec := newCheckSpec(c, r.id, checkID(c, r.id, i, len(s.Checks)))
		r.checks = append(r.checks, spec)
		r.wire.Checks = append(r.wire.Checks, wireCheck(c, spec, leastTTL))
	}
	r.mark(owner)
	return r
}

// mark writes owner and hash into the registration's meta.
func (r *registration) mark(owner string) {
	delete(r.wire.Meta, MetaHash)
	r.wire.Meta[MetaOwner] = owner
	data, err := json.Marshal(r.wire)
	if err != nil { // strings, numbers and maps of them cannot fail
		data = fmt.Appendf(nil, "%+v", r.wire)
	}
	sum := sha256.Sum256(data)
	r.hash = hex.EncodeToString(sum[:12])
	r.wire.Meta[MetaHash] = r.hash
}

// withStates is the registration to send: each check begins in the state that
// jorc last knew of it, so that an agent that forgot a healthy service does not
// show it as critical first.
func (r *registration) withStates(known func(checkID string) string) *consul.ServiceRegistration {
	wire := *r.wire
	wire.Checks = make([]*consul.ServiceCheck, len(r.wire.Checks))
	for i, c := range r.wire.Checks {
		check := *c
		check.Status = r.checks[i].initial
		if state := known(check.CheckID); state != "" {
			check.Status = state
		}
		wire.Checks[i] = &check
	}
	return &wire
}

func taggedAddresses(s config.Service) map[string]consul.ServiceAddress {
	if len(s.TaggedAddresses) == 0 {
		return nil
	}
	out := make(map[string]consul.ServiceAddress, len(s.TaggedAddresses))
	for name, a := range s.TaggedAddresses {
		port := a.Port
		if port == 0 {
			port = s.Port
		}
		out[name] = consul.ServiceAddress{Address: a.Host, Port: port}
	}
	return out
}

// checkID is the id that Consul itself would give to check i of n.
func checkID(c config.Check, serviceID string, i, n int) string {
	switch {
	case c.ID != "":
		return c.ID
	case n == 1:
		return "service:" + serviceID
	default:
		return fmt.Sprintf("service:%s:%d", serviceID, i+1)
	}
}
