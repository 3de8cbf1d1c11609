package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
)

// Keys of a service's meta by which jorc recognizes its own registrations: the
// owner, and a hash of the registration, so that an unchanged one is not
// repeated.
const (
	MetaOwner = "jorc-owner"
	MetaHash  = "jorc-hash"
)

// leastTTL is the minimum TTL of a check that jorc runs.
const leastTTL = 30 * time.Second

// registration is one service as jorc registers it.
type registration struct {
	id       string
	name     string
	onStop   string // "" = the default of the agent's configuration
	stored   bool   // from `jorc service register`, not from the configuration
	presence bool   // jorc's own

	wire   *consul.ServiceRegistration // as sent, except for the initial status of checks
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

// runByJorc reports whether jorc runs the check, rather than Consul or a program
// that sends its own heartbeats.
func (c checkSpec) runByJorc() bool { return c.kind == kindScript || c.kind == kindPresence }

// newRegistration translates a configured service. leastTTL is the minimum TTL
// of its script checks.
func newRegistration(s config.Service, owner string, leastTTL time.Duration) *registration {
	s = s.WithDefaults()
	r := &registration{id: s.ID, name: s.Name, onStop: s.OnStop}
	r.wire = &consul.ServiceRegistration{
		ID: r.id, Name: s.Name, Address: s.Address, Port: s.Port, Tags: slices.Clone(s.Tags),
		EnableTagOverride: s.EnableTagOverride, TaggedAddresses: taggedAddresses(s),
		Meta: map[string]string{},
	}
	maps.Copy(r.wire.Meta, s.Meta)
	if s.Weights != nil {
		r.wire.Weights = &consul.AgentWeights{Passing: s.Weights.Passing, Warning: s.Weights.Warning}
	}
	for _, c := range s.Checks {
		spec := newCheckSpec(c, r.id)
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

// withStates returns the registration to send: each check starts with its last
// known status, so that a healthy service that an agent lost does not become
// critical first.
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
		out[name] = consul.ServiceAddress{Address: a.Host, Port: a.Port}
	}
	return out
}

// Kinds of checks, as CheckStatus.Kind names them.
const (
	kindScript   = "script"
	kindPresence = "presence"
	kindHTTP     = "http"
	kindTCP      = "tcp"
	kindUDP      = "udp"
	kindGRPC     = "grpc"
	kindH2Ping   = "h2ping"
	kindAlias    = "alias"
	kindTTL      = "ttl"
)

func kindOf(c config.Check) string {
	switch {
	case len(c.Script) > 0, c.Shell != "":
		return kindScript
	case c.HTTP != "":
		return kindHTTP
	case c.TCP != "":
		return kindTCP
	case c.UDP != "":
		return kindUDP
	case c.GRPC != "":
		return kindGRPC
	case c.H2Ping != "":
		return kindH2Ping
	case c.Alias != "":
		return kindAlias
	default:
		return kindTTL
	}
}

func newCheckSpec(c config.Check, serviceID string) checkSpec {
	s := checkSpec{
		id: c.ID, name: c.Name, service: serviceID, kind: kindOf(c), initial: c.Status,
		interval: c.Interval, timeout: c.Timeout,
	}
	if s.kind != kindScript {
		return s
	}
	s.command = c.Script
	if len(s.command) == 0 {
		s.command = []string{"/bin/sh", "-c", c.Shell}
	}
	s.threshold = thresholds{
		successBeforePassing:   c.SuccessBeforePassing,
		failuresBeforeWarning:  c.FailuresBeforeWarning,
		failuresBeforeCritical: c.FailuresBeforeCritical,
	}
	return s
}

// wireCheck is the check as the agent registers it: a script check is a TTL
// check for the agent.
func wireCheck(c config.Check, s checkSpec, leastTTL time.Duration) *consul.ServiceCheck {
	w := &consul.ServiceCheck{
		CheckID: s.id, Name: c.Name, Notes: c.Notes,
		DeregisterCriticalServiceAfter: duration(c.DeregisterCriticalServiceAfter),
	}
	switch s.kind {
	case kindScript:
		w.TTL = duration(ttlOf(s, leastTTL))
		return w
	case kindTTL:
		w.TTL = duration(c.TTL)
		return w
	case kindAlias:
		w.AliasService = c.Alias
		return w
	}
	w.Interval, w.Timeout = duration(c.Interval), duration(c.Timeout)
	w.HTTP, w.Method, w.Header, w.Body = c.HTTP, c.Method, c.Header, c.Body
	w.TCP, w.UDP = c.TCP, c.UDP
	w.GRPC, w.GRPCUseTLS = c.GRPC, c.GRPCTLS
	w.H2PING, w.H2PingUseTLS = c.H2Ping, c.H2Ping != ""
	w.TLSServerName, w.TLSSkipVerify = c.TLSServerName, c.TLSSkipVerify
	w.SuccessBeforePassing = c.SuccessBeforePassing
	w.FailuresBeforeWarning = c.FailuresBeforeWarning
	w.FailuresBeforeCritical = c.FailuresBeforeCritical
	return w
}

// ttlOf returns a TTL that allows for two lost heartbeats and a slow check.
func ttlOf(s checkSpec, least time.Duration) time.Duration {
	return max(least, 3*s.interval+s.timeout)
}

// duration formats d for the API; zero is left out.
func duration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// Owner returns the identity under which services are registered: this machine
// and the state directory. It survives restarts, upgrades and a change of the
// host name, and differs between two agents on one host.
func Owner(stateDir string) string {
	if abs, err := filepath.Abs(stateDir); err == nil {
		stateDir = abs
	}
	sum := sha256.Sum256([]byte("jorc owner:" + machine()))
	return hex.EncodeToString(sum[:6]) + ":" + stateDir
}

// machine returns the machine id, which must not be shown unhashed
// (machine-id(5)), or the host name if the machine has no id.
func machine() string {
	data, err := os.ReadFile("/etc/machine-id")
	if id := strings.TrimSpace(string(data)); err == nil && id != "" {
		return id
	}
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// presenceEvery is the interval of the heartbeats of jorc's own service.
const presenceEvery = 10 * time.Second

// PresenceName is the name of jorc's own service.
const PresenceName = "jorc"

// presenceOutput is the constant output of its check.
const presenceOutput = "jorc agent is running"

// PresenceID returns the id of jorc's own service of a cluster; its name is
// "jorc". Its check shows that jorc is dead while Consul runs; the health of no
// other service depends on it.
func PresenceID(cluster string) string {
	if cluster == "" || cluster == "default" {
		return PresenceName
	}
	return PresenceName + "-" + cluster
}

func (r *Registrar) presence() *registration {
	w := newRegistration(config.Service{
		Name: PresenceName, ID: PresenceID(r.o.Cluster), OnStop: r.presenceOnStop(),
		Checks: []config.Check{{Name: "jorc agent", TTL: max(r.leastTTL, 3*r.presenceEvery)}},
	}, r.o.Owner, r.leastTTL)
	w.presence = true
	w.checks[0].kind = kindPresence
	w.checks[0].initial = consul.HealthPassing // jorc runs when it registers it
	w.checks[0].interval = r.presenceEvery
	return w
}

// presenceOnStop: a stopped jorc becomes critical when its TTL expires;
// maintenance mode would hide that.
func (r *Registrar) presenceOnStop() string {
	if r.o.OnStop == OnStopDeregister {
		return OnStopDeregister
	}
	return OnStopKeep
}
