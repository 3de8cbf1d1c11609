package cluster

import (
	"slices"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/pace"
)

// Liveness says whether a host is there. docs/liveness.md has the table.
type Liveness string

// Values of Liveness.
const (
	LivenessUp          Liveness = "up"          // gossip reaches the host
	LivenessSuspect     Liveness = "suspect"     // gossip does not, but the orchestrator's probe does
	LivenessDown        Liveness = "down"        // neither does, or nothing has probed it
	LivenessAbsent      Liveness = "absent"      // the host is not in the catalog
	LivenessUnmonitored Liveness = "unmonitored" // in the catalog, but not part of gossip
)

// Values of Condition.Agent, and of Condition.Health beside Consul's own.
const (
	AgentUp           = "up"
	AgentDown         = "down"
	HealthMaintenance = consul.HealthMaint
)

// Signal is what one observer says about a host.
type Signal string

// Values of Signal.
const (
	SignalNone    Signal = "none" // there is no such observer
	SignalPassing Signal = "passing"
	SignalFailing Signal = "failing"
)

// Probe is the result of the orchestrator's probe of a host that gossip does not
// reach.
type Probe string

// Values of Probe.
const (
	ProbeNone     Probe = "none"     // nothing has probed the host
	ProbePending  Probe = "pending"  // the orchestrator is about to
	ProbeAnswered Probe = "answered" // a connection was accepted
	ProbeFailed   Probe = "failed"
)

// Maintenance says who set maintenance mode on a host or on one of its services.
type Maintenance string

// Values of Maintenance. A host with both counts as foreign: jorc does not end it.
const (
	MaintenanceNone    Maintenance = "none"
	MaintenanceOwn     Maintenance = "own"     // jorc
	MaintenanceForeign Maintenance = "foreign" // an operator or another program
)

// Signals are the facts that a host's condition follows from.
type Signals struct {
	Cataloged   bool
	Gossip      Signal
	Agent       Signal // jorc's own check for this cluster
	Probe       Probe
	Before      Liveness // counts while Probe is pending; empty: not known
	Maintenance Maintenance
	// Checks is the worst state of the other checks, gossip's included, in
	// Consul's terms: passing, warning, critical.
	Checks string
}

// Condition is what the rest of jorc asks about a host. Only Assess makes one.
type Condition struct {
	Liveness    Liveness
	Agent       string // up, down
	Health      string // passing, warning, critical, maintenance; empty: the host is absent, or its health is not shown
	Maintenance Maintenance

	signals Signals
}

// withoutHealth is the condition without what checks of services say.
func (c Condition) withoutHealth() Condition {
	c.Health, c.Maintenance = "", MaintenanceNone
	return c
}

// AgentService is the name of jorc's own service, whose check says whether an
// agent is up.
const AgentService = catalog.PresenceName

// Assess returns the condition that follows from s.
func Assess(s Signals) Condition {
	c := Condition{Liveness: s.liveness(), Agent: AgentDown, Health: s.Checks, Maintenance: s.Maintenance, signals: s}
	if s.Agent == SignalPassing && !c.Detached() {
		c.Agent = AgentUp
	}
	switch {
	case c.Liveness == LivenessAbsent:
		c.Health, c.Maintenance = "", MaintenanceNone
	case s.Maintenance != MaintenanceNone && s.Checks != consul.HealthCritical:
		c.Health = HealthMaintenance
	}
	return c
}

func (s Signals) liveness() Liveness {
	switch {
	case !s.Cataloged:
		return LivenessAbsent
	case s.Gossip == SignalNone:
		return LivenessUnmonitored
	case s.Gossip == SignalPassing:
		return LivenessUp
	case s.Probe == ProbeAnswered:
		return LivenessSuspect
	case s.Probe == ProbePending && s.Before != "":
		return s.Before
	}
	return LivenessDown
}

// AgentCheck is what jorc's own check says, also of a host that is down.
func (c Condition) AgentCheck() Signal { return c.signals.Agent }

// NeedsProbe reports whether gossip does not reach the host, so that only a
// probe tells a host that is suspect from one that is down.
func (c Condition) NeedsProbe() bool { return c.signals.Cataloged && c.signals.Gossip == SignalFailing }

// probed is the condition with the result of a probe.
func (c Condition) probed(p ProbeResult) Condition {
	s := c.signals
	s.Probe, s.Before = p.Probe, p.Before
	return Assess(s)
}

// Detached reports whether nothing reaches the host: it is down or absent.
func (c Condition) Detached() bool { return c.Liveness.Detached() }

// Detached reports whether nothing reaches the host.
func (l Liveness) Detached() bool { return l == LivenessDown || l == LivenessAbsent }

// OutOfService returns why the host is out of service; granted says that it has
// an open grant of a rollout. It is the only definition of the term.
func (c Condition) OutOfService(granted bool) pace.OutReason {
	switch {
	case granted:
		return pace.OutGrant
	case c.Agent != AgentUp:
		return pace.OutDown
	case c.Health == consul.HealthCritical:
		return pace.OutCritical
	case c.Maintenance != MaintenanceNone:
		return pace.OutMaintenance
	}
	return pace.InService
}

// Drained reports whether the host is in maintenance that jorc did not begin.
func (c Condition) Drained() bool { return c.Maintenance == MaintenanceForeign }

// DrainedText says in words that a host is drained.
const DrainedText = "it is in maintenance that jorc did not begin"

// Fails reports whether the host should not lead: it is out of service for
// another reason than maintenance that jorc set and ends by itself.
func (c Condition) Fails() bool {
	switch c.OutOfService(false) {
	case pace.InService:
		return false
	case pace.OutMaintenance:
		return c.Maintenance == MaintenanceForeign
	default:
		return true
	}
}

// observed returns the signals of a host in the catalog of which no check has
// been counted yet.
func observed() Signals {
	return Signals{
		Cataloged: true, Gossip: SignalNone, Agent: SignalNone, Probe: ProbeNone, Maintenance: MaintenanceNone, Checks: consul.HealthPassing,
	}
}

// Add counts one check; presence is the id of jorc's own service in the cluster.
// The jorc service of another cluster says nothing about this one.
func (s *Signals) Add(check consul.CheckState, presence string) {
	switch {
	case consul.IsMaintenance(check.CheckID) && !consul.StartedByJorc(check.Notes):
		s.Maintenance = MaintenanceForeign
		return
	case consul.IsMaintenance(check.CheckID):
		if s.Maintenance == MaintenanceNone {
			s.Maintenance = MaintenanceOwn
		}
		return
	case check.ServiceName == catalog.PresenceName:
		if check.ServiceID == presence {
			s.Agent = signalOf(check.Status == consul.HealthPassing)
		}
		return
	case check.CheckID == consul.GossipCheck && check.ServiceID == "":
		s.Gossip = signalOf(check.Status != consul.HealthCritical)
	}
	s.Checks = worst(s.Checks, check.Status)
}

func signalOf(passing bool) Signal {
	if passing {
		return SignalPassing
	}
	return SignalFailing
}

// worst returns the worse of two states of checks.
func worst(a, b string) string {
	order := []string{"", consul.HealthPassing, consul.HealthWarning, consul.HealthCritical}
	if slices.Index(order, b) > slices.Index(order, a) {
		return b
	}
	return a
}

// OwnMaintenance reports whether a check is the maintenance of a host that jorc began and ends by itself.
func OwnMaintenance(c *consul.HealthCheck) bool {
	return consul.IsMaintenance(c.CheckID) && consul.StartedByJorc(c.Notes)
}
