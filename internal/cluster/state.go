package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/profile"
)

// State is what is known about a cluster at one moment. Which parts are filled
// in follows from the Need that it was read with. It is shared and must not be
// changed; methods that change something return a copy.
type State struct {
	Cluster string
	Exists  bool // the profile
	Profile profile.Document
	Leaders Leaders
	Control Control // with the holds of nodes, as it was in force when this was read
	Desired string  // desired version; empty: none
	// Rollout is what the rollout is asked for, and RolloutState how far it is: of package rollout, not decoded.
	Rollout, RolloutState kv.Entry[string]
	// Hosts are the members and all nodes that report something, by name.
	Hosts map[string]*Host
	// Damaged are the documents that cannot be read, by key below the cluster's
	// prefix, with kv.ErrDamaged or kv.ErrNewer; those of the changes also with
	// consul.ErrDenied. What they hold counts as absent.
	Damaged map[string]error
	// Indexes are those of the documents that do not belong to one host, by key;
	// what does not exist has none.
	Indexes map[string]uint64

	// Stages are the documents of the stages by name; only a fleet.Watcher that follows
	// PrefixStages fills them in.
	Stages map[string]StageDocuments
	// ActiveRuns are the marks of the runs in progress by id, see package runs; only a fleet.Watcher
	// that follows PrefixRuns fills them in. They may be newer than the hosts.
	ActiveRuns map[string]kv.Entry[string]

	Changes AuditLog // the last changes that commands made; only a fleet.Watcher fills them in

	Stored    Control    // Control as it is stored, with holds that have ended
	Need      Need       // what was read
	Documents *kv.Result // what the documents of the whole cluster were read from

	nodes []string // of the members, in order; nil: not computed yet
}

// StageDocuments are the documents of one stage, not decoded; see package stage.
type StageDocuments struct {
	State, Stops kv.Entry[string]
}

// Host is what is known about one host.
type Host struct {
	Node     string
	Member   bool   // it has a member record
	Record   Record // empty also when the record is damaged
	Reported bool   // it has reported something
	Report   Report
	Index    uint64           // of the report
	Grants   kv.Entry[string] // not decoded; of package change
	Results  kv.Entry[string] // not decoded; of package runs

	Address    string
	Datacenter string
	NodeMeta   map[string]string
	// Services are the host's instances by service and health; with NeedServices
	// alone only the names are known. jorc's own service is among them.
	Services map[string]Tally
	// Failing are the critical checks beside gossip's and jorc's own, with
	// NeedInstances.
	Failing   []consul.CheckState
	Condition Condition

	roles []string // with the derived ones; nil: not computed yet
}

// DamagedMember returns why the host's member record cannot be read.
func (s *State) DamagedMember(node string) error { return s.Damaged[MemberKey(node)] }

// DamagedHold returns why the hold of the host cannot be read. The host counts as
// held meanwhile.
func (s *State) DamagedHold(node string) error { return s.Damaged[HoldKey(node)] }

// DamagedReport returns why the host's report cannot be read.
func (s *State) DamagedReport(node string) error { return s.Damaged[ReportKey(node)] }

// DamagedHost returns why documents of the host cannot be read: its member record,
// its hold and its report, in this order.
func (s *State) DamagedHost(node string) (all []error) {
	if len(s.Damaged) == 0 {
		return nil
	}
	for _, err := range []error{s.DamagedMember(node), s.DamagedHold(node), s.DamagedReport(node)} {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// Nodes returns the names of the members, in order. They must not be changed.
func (s *State) Nodes() []string {
	if s.nodes != nil {
		return s.nodes
	}
	names := make([]string, 0, len(s.Hosts))
	for name, h := range s.Hosts {
		if h.Member {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Roles returns the roles of a host, the derived ones last. They must not be
// changed.
func (s *State) Roles(h *Host) []string {
	if h.roles != nil {
		return h.roles
	}
	return s.Leaders.rolesOf(h.Node, h.Record.Roles)
}

// Managers returns the names of the managers, in order.
func (s *State) Managers() []string {
	all := slices.Clone(s.Leaders.Manager)
	for node, h := range s.Hosts {
		if slices.Contains(h.Record.Roles, RoleManager) {
			all = append(all, node)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Members returns the members whose records can be read, in order of their
// names. The ones that filter does not match are left out; nil matches all.
func (s *State) Members(filter *Filter) []Member {
	nodes := s.Nodes()
	all := make([]Member, 0, len(nodes))
	for _, node := range nodes {
		if s.DamagedMember(node) != nil {
			continue
		}
		if m := s.member(s.Hosts[node]); filter == nil || filter.Match(&m) {
			all = append(all, m)
		}
	}
	return all
}

// MemberOf returns one of the state's hosts as Members shows it, whether it is a member or not.
func (s *State) MemberOf(node string) Member { return s.member(s.Hosts[node]) }

// member is the host as commands and filters see it.
func (s *State) member(h *Host) Member {
	roles := s.Roles(h)
	m := Member{
		Node: h.Node, Address: h.Address, Datacenter: h.Datacenter, Zone: h.Record.Zone, Roles: roles,
		Params: derive(h.Record.Params, roles), Meta: h.Record.Meta, NodeMeta: h.NodeMeta,
		Services: make([]string, 0, len(h.Services)), Status: make(map[string]string, len(h.Report.States)),
		Version: h.Report.Version, Workflows: h.Record.Workflows, Disturbing: h.Record.Disturbing, Provides: h.Record.Provides, Requires: h.Record.Requires, Condition: h.Condition,
	}
	if s.Need&(NeedHealth|NeedInstances) != 0 {
		m.Health = h.Condition.Health
	}
	if s.Need&(NeedAgent|NeedInstances) != 0 {
		m.Agent = h.Condition.Agent
	}
	if m.Meta == nil {
		m.Meta = profile.Params{}
	}
	if m.NodeMeta == nil {
		m.NodeMeta = map[string]string{}
	}
	for name := range h.Services {
		m.Services = append(m.Services, name)
	}
	slices.Sort(m.Services)
	for category, state := range h.Report.States {
		m.Status[category] = state.State
	}
	return m
}

// Filter returns the cluster's own filter, the param cluster/filter, which says
// who belongs to the cluster when it runs, elects and waits. Without it, every
// member does. It returns a *FilterError.
func (s *State) Filter() (*Filter, error) { return FilterOf(s.Profile) }

// Candidates returns the members as an election sees them: the ones that the
// cluster's own filter leaves out are not eligible. A record that cannot be read
// keeps no other member from being chosen.
func (s *State) Candidates(f *Filter) []Candidate {
	nodes := s.Nodes()
	all := make([]Candidate, len(nodes))
	for i, node := range nodes {
		m := s.member(s.Hosts[node])
		all[i] = m.candidate(s.Profile)
		all[i].Unreadable = s.DamagedMember(node)
		all[i].Eligible = all[i].Eligible && (all[i].Unreadable != nil || f.Match(&m))
	}
	return all
}

// Unreadable calls each with every document that cannot be read, in order of
// their keys.
func (s *State) Unreadable(each func(key string, err error)) {
	for _, key := range slices.Sorted(maps.Keys(s.Damaged)) {
		each(key, s.Damaged[key])
	}
}

// FirstDamaged returns why the first document cannot be read, reports left out:
// one host's report must not keep a command from showing the others.
func (s *State) FirstDamaged() (first error) {
	s.Unreadable(func(key string, err error) {
		if first == nil && !strings.HasPrefix(key, PrefixReports) {
			first = err
		}
	})
	return first
}

// DamagedCluster returns why the first document of the whole cluster cannot be read;
// those of one host are left out.
func (s *State) DamagedCluster() (first error) {
	s.Unreadable(func(key string, err error) {
		if _, ofHost := NodeOf(key); first == nil && !ofHost {
			first = err
		}
	})
	return first
}

// ProbeResult is what the orchestrator's probe says about one host.
type ProbeResult struct {
	Probe  Probe
	Before Liveness // what was known before
}

// WithProbes returns the state with the conditions that follow from probes.
func (s *State) WithProbes(probes map[string]ProbeResult) State {
	next := *s
	if len(probes) == 0 {
		return next
	}
	next.Hosts = maps.Clone(s.Hosts)
	for node, p := range probes {
		if h := next.Hosts[node]; h != nil {
			probed := *h
			probed.Condition = h.Condition.probed(p)
			next.Hosts[node] = &probed
		}
	}
	return next
}

// WithGrants returns the state with documents of what hosts are granted, as they were written since.
func (s *State) WithGrants(written map[string]kv.Entry[string]) State {
	next := *s
	next.Hosts = maps.Clone(s.Hosts)
	for node, grants := range written {
		if h := next.Hosts[node]; h != nil {
			granted := *h
			granted.Grants = grants
			next.Hosts[node] = &granted
		}
	}
	return next
}

// failing are the critical checks of a host beside gossip's and jorc's own.
func failing(checks []consul.CheckState) []consul.CheckState {
	var all []consul.CheckState
	for _, c := range checks {
		if c.Status == consul.HealthCritical && !consul.IsMaintenance(c.CheckID) && c.CheckID != consul.GossipCheck && c.ServiceName != catalog.PresenceName {
			all = append(all, c)
		}
	}
	return all
}

// Tally counts instances of a service by health.
type Tally struct {
	Passing     int `json:"passing,omitempty"`
	Warning     int `json:"warning,omitempty"`
	Critical    int `json:"critical,omitempty"`
	Maintenance int `json:"maintenance,omitempty"`
}

// Total is the number of instances.
func (t Tally) Total() int { return t.Passing + t.Warning + t.Critical + t.Maintenance }

// Functional is the number of instances that answer in Consul's DNS.
func (t Tally) Functional() int { return t.Passing + t.Warning }

func (t Tally) Plus(o Tally) Tally {
	return Tally{t.Passing + o.Passing, t.Warning + o.Warning, t.Critical + o.Critical, t.Maintenance + o.Maintenance}
}

func (t Tally) String() string {
	if t.Total() == 0 {
		return "no instance"
	}
	text := fmt.Sprintf("%d of %d functional", t.Functional(), t.Total())
	for _, c := range []struct {
		n    int
		word string
	}{{t.Warning, "warning"}, {t.Critical, "critical"}, {t.Maintenance, "maintenance"}} {
		if c.n > 0 {
			text += fmt.Sprintf(", %d %s", c.n, c.word)
		}
	}
	return text
}

// tally counts the instances of a host by the worst check of each; a check of
// the node counts for all of them. Maintenance counts before critical: it says
// why the checks fail.
func tally(services []consul.Instance, checks []consul.CheckState) map[string]Tally {
	if len(services) == 0 {
		return nil
	}
	order := []string{"", consul.HealthPassing, consul.HealthWarning, consul.HealthCritical, consul.HealthMaint}
	worst := func(a, b string) string {
		if slices.Index(order, b) > slices.Index(order, a) {
			return b
		}
		return a
	}
	node, at := consul.HealthPassing, map[string]string{}
	for _, c := range checks {
		status := c.Status
		if consul.IsMaintenance(c.CheckID) {
			status = consul.HealthMaint
		}
		if c.ServiceID == "" {
			node = worst(node, status)
		} else {
			at[c.ServiceID] = worst(at[c.ServiceID], status)
		}
	}
	all := make(map[string]Tally, len(services))
	for _, s := range services {
		t := all[s.Service]
		switch worst(node, at[s.ID]) {
		case consul.HealthMaint:
			t.Maintenance++
		case consul.HealthCritical:
			t.Critical++
		case consul.HealthWarning:
			t.Warning++
		default:
			t.Passing++
		}
		all[s.Service] = t
	}
	return all
}

// Member is one member as commands and filters show it.
type Member struct {
	Node       string            `json:"node"`
	Address    string            `json:"address"`
	Datacenter string            `json:"datacenter"`
	Zone       string            `json:"zone"`
	Roles      []string          `json:"roles"`  // derived ones last
	Params     profile.Params    `json:"params"` // its own; each role R shows as cluster/R = true
	Meta       profile.Params    `json:"meta"`
	NodeMeta   map[string]string `json:"node_meta"`
	Services   []string          `json:"services"`
	Workflows  []string          `json:"workflows"` // that it defines; nil: unknown
	Version    string            `json:"version"`
	Status     map[string]string `json:"status"` // category → state
	Health     string            `json:"health"` // passing, warning, critical, maintenance; empty without a host
	Agent      string            `json:"agent"`  // up, down

	Provides []string      `json:"-"`
	Requires []Requirement `json:"-"`
	// Disturbing are the Workflows of which a run takes the host out of service.
	Disturbing []string `json:"-"`

	Condition Condition `json:"-"` // with NeedHealth and NeedAgent
}

// RepairHint says what to do about err when it is of a damaged document of a cluster
// and does not say so itself; else it is empty.
func RepairHint(err error) string {
	text := err.Error()
	if !errors.Is(err, kv.ErrDamaged) || strings.Contains(text, "'jorc ") {
		return ""
	}
	for _, r := range []struct{ key, remedy string }{ // by the end of the key, or what is in it
		{`/current/control":`, "'jorc cluster import --replace FILE' restores it; without a backup 'consul kv delete' of that key ends all its pauses and holds"},
		{`/current_version":`, "'jorc update trigger VERSION' writes it again"},
		{`/current/leaders":`, "an agent whose member may lead writes it again within a minute; 'jorc cluster leader --count N' does so at once"},
		{`/member":`, "its agent writes it again; without one 'jorc cluster join --node HOST' does"},
		{`/nodes/`, "'jorc status repair' makes it again"},
		{`/profile":`, "'jorc cluster import --replace FILE' restores it from a backup"},
		{`/hold":`, "'jorc cluster hold --node HOST' or 'unhold' writes it again"},
		{`/rollout":`, "'jorc update trigger VERSION' writes a new one"},
		{`/changes":`, "the next change that a command makes begins a new log"},
		{`/turns":`, "'consul kv delete' of that key lets the orchestrator write it again"},
		{`/stops":`, "'consul kv delete' of that key forgets which changes are stopped"},
	} {
		if strings.Contains(text, r.key) {
			return r.remedy
		}
	}
	return ""
}

// Without returns the state for a reader who may not see some hosts and services, as if
// they did not exist. The health of a host that runs one of the services is left out, too:
// it follows from the checks of all of its services. Changes are left out.
func (s *State) Without(hosts, services map[string]bool) *State {
	next := *s
	next.nodes, next.Changes = nil, AuditLog{}
	next.Hosts = make(map[string]*Host, len(s.Hosts))
	for node, h := range s.Hosts {
		if !hosts[node] {
			next.Hosts[node] = h.without(services)
		}
	}
	next.Leaders.Leader = namesWithout(s.Leaders.Leader, hosts)
	next.Leaders.Manager = namesWithout(s.Leaders.Manager, hosts)
	next.Leaders.Retired = slices.DeleteFunc(slices.Clone(s.Leaders.Retired), func(r Retired) bool { return hosts[r.Node] })
	next.Control.Nodes = maps.Clone(s.Control.Nodes)
	maps.DeleteFunc(next.Control.Nodes, func(node string, _ Hold) bool { return hosts[node] })
	next.Damaged = maps.Clone(s.Damaged)
	maps.DeleteFunc(next.Damaged, func(key string, _ error) bool {
		node, ok := NodeOf(key)
		return ok && hosts[node]
	})
	return &next
}

// without is the host without some services.
func (h *Host) without(services map[string]bool) *Host {
	next := *h
	for name := range h.Services {
		if services[name] {
			next.Condition = next.Condition.withoutHealth()
		}
	}
	next.Services = maps.Clone(h.Services)
	maps.DeleteFunc(next.Services, func(name string, _ Tally) bool { return services[name] })
	next.Failing = slices.DeleteFunc(slices.Clone(h.Failing), func(c consul.CheckState) bool { return services[c.ServiceName] })
	next.Record.Provides = namesWithout(h.Record.Provides, services)
	next.Record.Requires = slices.DeleteFunc(slices.Clone(h.Record.Requires), func(r Requirement) bool { return services[r.Service()] })
	return &next
}

func namesWithout(names []string, hidden map[string]bool) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return hidden[name] })
}
