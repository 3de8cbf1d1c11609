package orchestrator

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/text"
)

// View is a cluster as it was observed at one moment. The zero View is that of
// a cluster which does not exist. Its maps and slices belong to it.
type View struct {
	Cluster ClusterView         `json:"cluster"`
	Nodes   map[string]NodeView `json:"nodes"` // the members, by name
}

// ClusterView is what a view says of the cluster as a whole.
type ClusterView struct {
	Exists      bool     `json:"exists"`  // it has a profile
	Profile     string   `json:"profile"` // digest of the profile's text
	Desired     string   `json:"desired"` // the desired version; empty: none
	Leaders     []string `json:"leaders"`
	Managers    []string `json:"managers"`
	LeaderCount int      `json:"leader_count"`      // how many are to lead
	Paused      string   `json:"paused"`            // why it is paused; empty: it is not
	ObserveOnly string   `json:"observe_only"`      // why the orchestrator only observes; empty: it decides
	Holds       []string `json:"holds"`             // what is held, and why
	Freezes     []string `json:"freezes,omitempty"` // that are in force
	// Trouble names the documents that could not be read, and why: what they say
	// is as it was before.
	Trouble map[string]string `json:"trouble"`
}

// Life returns since when the host's liveness and its health are as they are; zero: that is not known. It is
// a change.Life.
func (v View) Life(node string) (liveness, health time.Time) {
	n := v.Nodes[node]
	return n.LifeSince, n.HealthSince
}

// NodeView is what a view says of one member. It holds no output of checks nor any
// other text that changes all the time.
type NodeView struct {
	Address    string                   `json:"address,omitempty"`
	Datacenter string                   `json:"datacenter,omitempty"`
	Zone       string                   `json:"zone,omitempty"`
	Roles      []string                 `json:"roles,omitempty"`  // derived ones last
	Params     string                   `json:"params,omitempty"` // digest of its own params
	Meta       string                   `json:"meta,omitempty"`   // digest
	Needs      string                   `json:"needs,omitempty"`  // digest of what it provides and requires
	Life       cluster.Liveness         `json:"life,omitempty"`   // up, suspect, down; empty: no host in the catalog
	Agent      string                   `json:"agent,omitempty"`  // jorc's own: up, down
	Health     string                   `json:"health,omitempty"` // passing, warning, critical, maintenance; empty without a host
	Version    string                   `json:"version,omitempty"`
	States     map[string]StateView     `json:"states,omitempty"`    // by category
	Services   map[string]cluster.Tally `json:"services,omitempty"`  // by name
	HoldFile   string                   `json:"hold_file,omitempty"` // what the file on the host says that holds it
	Lease      string                   `json:"lease,omitempty"`     // that it has a lease, and why; empty: it has none
	Trouble    string                   `json:"trouble,omitempty"`   // why what it reports could not be read: it is as it was before

	// LifeSince and HealthSince are when an orchestrator saw Life and Health as
	// they are for the first time. Alone they make no difference.
	LifeSince   time.Time `json:"life_since,omitzero"`
	HealthSince time.Time `json:"health_since,omitzero"`
}

// StateView is a node's state in one category.
type StateView struct {
	State   string `json:"state"`
	Version string `json:"version,omitempty"` // that it is about
	Suspect string `json:"suspect,omitempty"` // why success is doubtful
}

func (s StateView) String() string {
	if s.Suspect != "" {
		sure := s
		sure.Suspect = ""
		return sure.String() + ", suspect: " + s.Suspect
	}
	if s.Version == "" {
		return s.State
	}
	return s.State + " at " + s.Version
}

// sentence is String after the name of the category.
func (s StateView) sentence() string {
	if s.State == "" {
		return "is no longer reported"
	}
	return cluster.StateVerb(s.State) + strings.TrimPrefix(s.String(), s.State)
}

// Names returns the members' names in order.
func (v View) Names() []string { return slices.Sorted(maps.Keys(v.Nodes)) }

// Services adds up the services of all members, by name.
func (v View) Services() map[string]cluster.Tally {
	all := map[string]cluster.Tally{}
	for _, n := range v.Nodes {
		for name, t := range n.Services {
			all[name] = all[name].Plus(t)
		}
	}
	return all
}

// Since carries the times of old over to v, and sets those of what is new to
// now, in whole seconds.
func (v View) Since(old View, now time.Time) {
	now = now.UTC().Truncate(time.Second)
	for name, n := range v.Nodes {
		before, known := old.Nodes[name]
		n.LifeSince, n.HealthSince = now, now
		if known && before.Life == n.Life {
			n.LifeSince = before.LifeSince
		}
		if known && before.Health == n.Health {
			n.HealthSince = before.HealthSince
		}
		v.Nodes[name] = n
	}
}

// Aggregate is what a view adds up to.
type Aggregate struct {
	Nodes    int            `json:"nodes"`
	Life     map[string]int `json:"life"` // up, suspect, down; none: without a host
	Agents   map[string]int `json:"agents"`
	Health   map[string]int `json:"health"`
	Versions map[string]int `json:"versions"`
	Roles    map[string]int `json:"roles"`
	Zones    map[string]int `json:"zones"`
	Trouble  int            `json:"trouble"` // nodes of which something could not be read
}

// AggregateNone is the word under which an Aggregate counts what is missing.
const AggregateNone = "none"

func newAggregate() Aggregate {
	return Aggregate{
		Life: map[string]int{}, Agents: map[string]int{}, Health: map[string]int{},
		Versions: map[string]int{}, Roles: map[string]int{}, Zones: map[string]int{},
	}
}

// Aggregate counts the members of v. The maps are never nil.
func (v View) Aggregate() Aggregate {
	a := newAggregate()
	for _, n := range v.Nodes {
		a.add(n)
	}
	return a
}

// AggregateOf counts the members of s.
func AggregateOf(s *cluster.State) Aggregate {
	a := newAggregate()
	for node, h := range s.Hosts {
		if !h.Member {
			continue
		}
		n := NodeView{
			Zone: h.Record.Zone, Roles: s.Roles(h), Version: h.Report.Version,
			Life: h.Condition.Liveness, Agent: h.Condition.Agent, Health: h.Condition.Health,
		}
		if damaged := s.DamagedHost(node); len(damaged) > 0 {
			n.Trouble = damaged[0].Error()
		}
		a.add(n)
	}
	return a
}

// add counts one member.
func (a *Aggregate) add(n NodeView) {
	a.Nodes++
	a.Life[orNone(string(n.Life))]++
	a.Agents[orNone(n.Agent)]++
	a.Health[orNone(n.Health)]++
	a.Versions[orNone(n.Version)]++
	a.Zones[orNone(n.Zone)]++
	for _, r := range n.Roles {
		a.Roles[r]++
	}
	if n.Trouble != "" {
		a.Trouble++
	}
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func union[A, B any](a map[string]A, b map[string]B) map[string]struct{} {
	all := make(map[string]struct{}, len(a))
	for name := range a {
		all[name] = struct{}{}
	}
	for name := range b {
		all[name] = struct{}{}
	}
	return all
}

// Bounds of what one node adds to a view, in bytes.
const (
	maxWord     = 256 // an address, a zone, a role, …
	maxTrouble  = 500
	maxServices = 24 << 10 // of the names of its services, and what is counted of each
	perService  = 48       // what is counted
)

// Bounded returns n with what a view has room for. What is left out, or
// cut, is trouble of the node.
func (n NodeView) Bounded() NodeView {
	cut := 0
	word := func(s string) string {
		short := text.Truncate(s, maxWord)
		if short != s {
			cut++
		}
		return short
	}
	n.Address, n.Datacenter, n.Zone, n.Version = word(n.Address), word(n.Datacenter), word(n.Zone), word(n.Version)
	left, size := len(n.Services), 0
	kept := make(map[string]cluster.Tally, len(n.Services))
	for _, name := range slices.Sorted(maps.Keys(n.Services)) {
		if size += len(name) + perService; size <= maxServices && len(name) <= maxWord {
			kept[name] = n.Services[name]
			left--
		}
	}
	if left > 0 {
		n.troubled(fmt.Sprintf("%d of its %d services are left out: their names take more than %d KB, or one more than %d bytes: deregister services that it does not need",
			left, len(n.Services), maxServices>>10, maxWord))
		n.Services = kept
	}
	if cut > 0 {
		n.troubled(fmt.Sprintf("%d of its names are cut after %d bytes", cut, maxWord))
	}
	n.Trouble = text.Truncate(n.Trouble, maxTrouble)
	return n
}

func (n *NodeView) troubled(why string) {
	n.Trouble = strings.TrimPrefix(n.Trouble+"; "+why, "; ")
}

// fetch returns the state of the cluster as it is now; told: the watcher said that it changed, so what a pass has read
// since is not read again. Only what has changed is read.
func (t *term) fetch(ctx context.Context, told bool) (cluster.State, error) {
	read := t.watcher.State
	if told {
		read = t.watcher.Recent // a pass has read it
	}
	s, err := read(ctx)
	if err != nil {
		return s, err
	}
	for key, err := range map[string]error{cluster.KeyVersion: t.rollouts.CheckSpec(s.Rollout), cluster.KeyVersionState: t.rollouts.CheckState(s.RolloutState)} {
		if err != nil {
			s.Damaged = maps.Clone(s.Damaged)
			s.Damaged[key] = err
		}
	}
	return s, nil
}

// nodeView makes the view of a member. What cannot be read is as it was before.
func nodeView(s *cluster.State, node string, was NodeView, known bool) NodeView {
	h, n := s.Hosts[node], was
	var damaged []string
	if err := s.DamagedMember(node); err != nil {
		damaged = append(damaged, damageText(err))
	} else {
		n = NodeView{
			Address: h.Address, Datacenter: h.Datacenter, Zone: h.Record.Zone, Roles: s.Roles(h),
			Params: digest(h.Record.Params.Value().String()), Meta: digest(h.Record.Meta.Value().String()),
			Needs: digestJSON(h.Record.Provides, h.Record.Requires),
		}
		if known && s.Damaged[cluster.KeyLeaders] != nil {
			n.Roles = was.Roles
		}
		if n.Address == "" { // the node is no longer in the catalog
			n.Address, n.Datacenter = was.Address, was.Datacenter
		}
	}
	if err := s.DamagedHold(node); err != nil {
		damaged = append(damaged, damageText(err))
	}
	n.Life, n.Agent, n.Health = h.Condition.Liveness, h.Condition.Agent, h.Condition.Health
	if err := s.DamagedReport(node); err != nil {
		n.Version, n.States, n.HoldFile, n.Lease = was.Version, was.States, was.HoldFile, was.Lease
		damaged = append(damaged, damageText(err))
	} else {
		n.Version, n.States, n.HoldFile, n.Lease = h.Report.Version, stateViews(h.Report), h.Report.HeldByFile(), h.Leased()
	}
	n.Services = maps.Clone(h.Services)
	delete(n.Services, cluster.AgentService)
	if len(n.Services) == 0 {
		n.Services = nil
	}
	n.Trouble = strings.Join(damaged, "; ")
	return n.Bounded()
}

func stateViews(d cluster.Report) map[string]StateView {
	if len(d.States) == 0 {
		return nil
	}
	all := make(map[string]StateView, len(d.States))
	for category, s := range d.States {
		all[category] = StateView{State: s.State, Version: s.Version, Suspect: text.Truncate(s.Suspect, maxSuspect)}
	}
	return all
}

// maxSuspect bounds in bytes what a view says of a suspect state.
const maxSuspect = 200

// clusterView is what the state says of the cluster as a whole.
func clusterView(s *cluster.State, before ClusterView, now time.Time) ClusterView {
	c := ClusterView{
		Exists: s.Exists, Desired: s.Desired, Leaders: sorted(s.Leaders.Leader), Managers: sorted(s.Managers()), LeaderCount: s.Leaders.Count,
		Paused: holdText(s.Control.Paused), ObserveOnly: holdText(s.Control.ObserveOnly), Holds: holdTexts(s.Control), Freezes: freezeTexts(s.Control.Freezes, now),
	}
	if s.Exists {
		c.Profile = digestJSON(s.Profile)
	}
	for key, err := range s.Damaged {
		switch key {
		case cluster.KeyDesired:
			c.Desired = before.Desired
		case cluster.KeyProfile:
			c.Exists, c.Profile = before.Exists, before.Profile
		case cluster.KeyLeaders:
			c.Leaders, c.Managers, c.LeaderCount = before.Leaders, before.Managers, before.LeaderCount
		case cluster.KeyControl:
			c.Paused, c.ObserveOnly, c.Holds, c.Freezes = before.Paused, before.ObserveOnly, before.Holds, before.Freezes
		case cluster.KeyVersion, cluster.KeyVersionState, cluster.KeyChanges:
		default:
			continue // one host's
		}
		if c.Trouble == nil {
			c.Trouble = map[string]string{}
		}
		c.Trouble[key] = damageText(err)
	}
	return c
}

// damageText is what is said of a document that cannot be read.
func damageText(err error) string {
	if remedy := cluster.RepairHint(err); remedy != "" {
		return err.Error() + ": " + remedy
	}
	return err.Error()
}

func sorted(names []string) []string {
	if len(names) == 0 {
		return nil
	}
	return slices.Sorted(slices.Values(names))
}

// holdText says that something is held, and why.
func holdText(h *cluster.Hold) string {
	if h == nil {
		return ""
	}
	return h.String()
}

func holdTexts(c cluster.Control) (all []string) {
	add := func(what string, h cluster.Hold) {
		if h.Off {
			what += " excepted"
		}
		all = append(all, what+": "+h.String())
	}
	if c.Hold != nil {
		add("the cluster", *c.Hold)
	}
	for _, role := range slices.Sorted(maps.Keys(c.Roles)) {
		add(cluster.Scope{Role: role}.String(), c.Roles[role])
	}
	for _, node := range slices.Sorted(maps.Keys(c.Nodes)) {
		add(cluster.Scope{Node: node}.String(), c.Nodes[node])
	}
	return all
}

// endedHolds returns the texts of the view for what the state's control has and is over:
// it ended by itself.
func endedHolds(s *cluster.State) map[string]bool {
	ended := map[string]bool{}
	texts := func(c cluster.Control) []string {
		return append(holdTexts(c), "pause "+holdText(c.Paused), "observe-only "+holdText(c.ObserveOnly))
	}
	for _, text := range texts(s.Stored) {
		ended[text] = true
	}
	for _, text := range texts(s.Control) {
		delete(ended, text)
	}
	return ended
}

// freezeTexts names the freezes that are in force.
func freezeTexts(all pace.Freezes, now time.Time) (texts []string) {
	for _, f := range all {
		if f.Open(now) {
			texts = append(texts, f.String())
		}
	}
	return texts
}

// digest means a text that only its changes matter of; an empty object has none.
func digest(text string) string {
	if text == "{}" || text == "null" || text == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf("%x", sum[:6])
}

func digestJSON(values ...any) string {
	data, err := json.Marshal(values)
	if err != nil {
		data = fmt.Append(nil, values...) // it is stored as JSON, so it can be encoded
	}
	if string(data) == "[null,null]" {
		return ""
	}
	return digest(string(data))
}
