package orchestrator

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/stage"
	"github.com/jorc/jorc/internal/text"
)

// Difference returns what is different in now from before: the cluster first, then
// the members by name, then the services by name. Whatever differs yields an
// event, except the times since when something is so. The events have neither
// number nor time.
func Difference(before, now View) []Event {
	return differenceOf(before, now, slices.Sorted(maps.Keys(union(before.Nodes, now.Nodes))), nil, nil)
}

// differenceOf is Difference where all members but names, which are in order, are
// as they were. attributed reports whether it is recorded who wrote the document at a
// key last; nil: that is not known. ended are the texts of holds that ended by themselves.
func differenceOf(before, now View, names []string, attributed func(key string) bool, ended map[string]bool) []Event {
	d := difference{attributed: attributed, ended: ended}
	d.cluster(before.Cluster, now.Cluster)
	for _, name := range names {
		old, was := before.Nodes[name]
		next, is := now.Nodes[name]
		switch {
		case !was:
			d.joined(name, next)
		case !is:
			d.add(Event{Kind: MemberLeft, Node: name, Text: name + " is no longer a member", Before: old.summary()})
		default:
			d.node(name, old, next)
		}
	}
	d.services(before, now, names)
	return d.events
}

type difference struct {
	events     []Event
	attributed func(key string) bool
	ended      map[string]bool
}

// unknown reports whether it is not recorded who wrote the document at key last.
func (d *difference) unknown(key string) bool { return d.attributed != nil && !d.attributed(key) }

func (d *difference) add(e Event) { d.events = append(d.events, e.Bounded()) }

// changed adds an event when two values differ.
func (d *difference) changed(e Event, before, after string) {
	if before != after {
		e.Before, e.After = before, after
		d.add(e)
	}
}

func (d *difference) cluster(a, b ClusterView) {
	switch {
	case !a.Exists && b.Exists:
		d.add(Event{Kind: ClusterCreated, Text: "the cluster was created"})
	case a.Exists && !b.Exists:
		d.add(Event{Kind: ClusterDeleted, Text: "the cluster's profile is gone"})
	case a.Profile != b.Profile:
		d.changed(Event{Kind: ClusterChanged, Text: "the profile was changed", AuthorUnknown: d.unknown(cluster.KeyProfile)}, a.Profile, b.Profile)
	}
	paused := Event{Kind: ClusterPaused, Text: "the cluster is paused: " + b.Paused, AuthorUnknown: d.unknown(cluster.KeyControl)}
	switch {
	case b.Paused != "" || a.Paused == "":
	case d.ended["pause "+a.Paused]:
		paused = Event{Kind: HoldEnded, Text: "the pause ended by itself: " + a.Paused}
	default:
		paused.Kind, paused.Text = ClusterResumed, "the cluster is paused no more"
	}
	d.changed(paused, a.Paused, b.Paused)
	observe := Event{Kind: ClusterChanged, Text: "the orchestrator decides again", AuthorUnknown: d.unknown(cluster.KeyControl)}
	switch {
	case b.ObserveOnly != "":
		observe.Text = "the orchestrator only observes: " + b.ObserveOnly
	case d.ended["observe-only "+a.ObserveOnly]:
		observe = Event{Kind: HoldEnded, Text: "observe-only mode ended by itself: " + a.ObserveOnly}
	}
	d.changed(observe, a.ObserveOnly, b.ObserveOnly)
	d.holds(a.Holds, b.Holds)
	d.freezes(a.Freezes, b.Freezes)
	d.changed(Event{Kind: ClusterChanged, Text: text.Count(b.LeaderCount, "member is to lead", "members are to lead")}, strconv.Itoa(a.LeaderCount), strconv.Itoa(b.LeaderCount))
	d.changed(Event{Kind: DesiredVersionChanged, Text: fmt.Sprintf("the desired version is %s", orNone(b.Desired))}, a.Desired, b.Desired)
	d.list(Event{Kind: LeadersChanged, Text: "leaders: " + orNone(strings.Join(b.Leaders, ", "))}, a.Leaders, b.Leaders)
	d.list(Event{Kind: ManagersChanged, Text: "managers: " + orNone(strings.Join(b.Managers, ", "))}, a.Managers, b.Managers)
	for _, name := range slices.Sorted(maps.Keys(union(a.Trouble, b.Trouble))) {
		d.trouble("", name, a.Trouble[name], b.Trouble[name])
	}
}

// holds adds one event for each hold that ended by itself, and one for all other changes.
func (d *difference) holds(before, after []string) {
	rest := slices.DeleteFunc(slices.Clone(before), func(hold string) bool {
		ended := d.ended[hold] && !slices.Contains(after, hold)
		if ended {
			d.changed(Event{Kind: HoldEnded, Text: "a hold ended by itself: " + hold}, hold, "")
		}
		return ended
	})
	d.list(Event{Kind: ClusterChanged, Text: "holds were changed"}, rest, after)
}

func (d *difference) freezes(before, after []string) {
	n := len(d.events)
	for _, f := range before {
		if !slices.Contains(after, f) {
			d.add(Event{Kind: FreezeEnded, Before: f, Text: "no longer in force: " + f})
		}
	}
	for _, f := range after {
		if !slices.Contains(before, f) {
			d.add(Event{Kind: FreezeBegan, After: f, Text: "nothing new that takes hosts out of service begins: " + f})
		}
	}
	if len(d.events) == n {
		d.list(Event{Kind: ClusterChanged, Text: "the freezes in force were changed"}, before, after)
	}
}

func (d *difference) list(e Event, before, after []string) {
	if !slices.Equal(before, after) {
		e.Before, e.After = strings.Join(before, ", "), strings.Join(after, ", ")
		d.add(e)
	}
}

func (d *difference) trouble(node, name, before, after string) {
	text, kind := fmt.Sprintf("%s cannot be read: %s; what was known before is kept", name, after), DocumentDamaged
	if after == "" {
		text, kind = fmt.Sprintf("%s can be read again", name), DocumentReadable
	}
	d.changed(Event{Kind: kind, Node: node, Text: text}, before, after)
}

func (d *difference) joined(name string, n NodeView) {
	d.add(Event{Kind: MemberJoined, Node: name, Text: name + " is a member: " + n.summary(), After: n.summary()})
	if n.Life == cluster.LivenessDown || n.Life == cluster.LivenessSuspect {
		d.liveness(name, "", n.Life)
	}
	if n.Trouble != "" {
		d.trouble(name, "what "+name+" reports", "", n.Trouble)
	}
}

// summary is what an event says of a member that came or went.
func (n NodeView) summary() string {
	parts := []string{"roles " + orNone(strings.Join(n.Roles, ","))}
	for _, p := range []struct{ name, value string }{{"zone", n.Zone}, {"address", n.Address}, {"version", n.Version}, {"health", n.Health}} {
		if p.value != "" {
			parts = append(parts, p.name+" "+p.value)
		}
	}
	return strings.Join(parts, ", ")
}

// healthText says what the checks of a host say.
func healthText(health string) string {
	switch health {
	case "":
		return "has no health: it is not in Consul's catalog"
	case cluster.HealthMaintenance:
		return "is in maintenance"
	}
	return "is " + health
}

func (d *difference) node(name string, a, b NodeView) {
	d.member(name, a, b)
	if a.Life != b.Life {
		d.liveness(name, a.Life, b.Life)
	}
	kind, text := AgentUp, "its jorc agent is up"
	if b.Agent != "up" {
		kind, text = AgentDown, "its jorc agent is down"
	}
	d.changed(Event{Kind: kind, Node: name, Text: name + ": " + text}, a.Agent, b.Agent)
	d.changed(Event{Kind: HealthChanged, Node: name, Text: name + " " + healthText(b.Health)}, a.Health, b.Health)
	d.changed(Event{Kind: VersionChanged, Node: name, Text: fmt.Sprintf("%s runs %s", name, orNone(b.Version))}, a.Version, b.Version)
	for _, c := range slices.Sorted(maps.Keys(union(a.States, b.States))) {
		if old, next := a.States[c], b.States[c]; old != next {
			e := Event{Kind: StateChanged, Node: name, Category: c, Text: fmt.Sprintf("%s: %s %s", name, c, next.sentence())}
			d.changed(e, old.String(), next.String())
		}
	}
	held := name + ": its hold file is gone"
	if b.HoldFile != "" {
		held = name + " is " + b.HoldFile
	}
	d.changed(Event{Kind: MemberChanged, Node: name, Text: held}, a.HoldFile, b.HoldFile)
	leased := Event{Kind: LeaseEnded, Node: name, Text: name + ": its lease is over"}
	if b.Lease != "" {
		leased.Kind, leased.Text = LeaseBegan, name+" goes out of service: "+b.Lease
	}
	d.changed(leased, a.Lease, b.Lease)
	if a.Trouble != b.Trouble {
		d.trouble(name, "what "+name+" reports", a.Trouble, b.Trouble)
	}
}

// member compares what a member says of itself; who leads is an event of the cluster.
func (d *difference) member(name string, a, b NodeView) {
	var what, before, after []string
	for _, f := range []struct{ name, a, b string }{
		{"address", a.Address, b.Address},
		{"datacenter", a.Datacenter, b.Datacenter},
		{"zone", a.Zone, b.Zone},
		{"roles", strings.Join(a.own(), ","), strings.Join(b.own(), ",")},
		{"params", a.Params, b.Params},
		{"meta", a.Meta, b.Meta},
		{"needs", a.Needs, b.Needs},
	} {
		if f.a != f.b {
			what = append(what, f.name)
			before, after = append(before, f.name+" "+orNone(f.a)), append(after, f.name+" "+orNone(f.b))
		}
	}
	if len(what) > 0 {
		d.add(Event{
			Kind: MemberChanged, Node: name, Text: fmt.Sprintf("%s: other %s", name, strings.Join(what, ", ")),
			Before: strings.Join(before, ", "), After: strings.Join(after, ", "),
		})
	}
}

// own are the roles that do not follow from who leads.
func (n NodeView) own() []string {
	return slices.DeleteFunc(slices.Clone(n.Roles), func(r string) bool { return r == "leader" || r == "worker" })
}

func (d *difference) liveness(name string, before, after cluster.Liveness) {
	e := Event{Node: name, Before: string(before), After: string(after)}
	switch after {
	case cluster.LivenessUp:
		e.Kind, e.Text = NodeUp, name+" is up"
	case cluster.LivenessSuspect:
		e.Kind, e.Text = NodeSuspect, name+" is suspect: gossip does not hear it, but the orchestrator reaches it"
	case cluster.LivenessDown:
		e.Kind, e.Text = NodeDown, name+" is down: neither gossip nor the orchestrator reaches it"
	default:
		e.Kind, e.Text = NodeGone, name+" is no longer in the catalog"
	}
	d.add(e)
}

// maxAlone bounds how many events there are of services that changed on one node
// alone: it does not fill the journal.
const maxAlone = 128

// services tells one event for each service of which some member's instances
// changed.
func (d *difference) services(before, now View, nodes []string) {
	where := map[string][]string{}
	for _, node := range nodes {
		a, b := before.Nodes[node].Services, now.Nodes[node].Services
		for name := range union(a, b) {
			if a[name] != b[name] {
				where[name] = append(where[name], node)
			}
		}
	}
	if len(where) == 0 {
		return
	}
	was, is := before.Services(), now.Services()
	told, more := map[string]int{}, map[string]int{} // by node, of services that are different on it alone
	for _, name := range slices.Sorted(maps.Keys(where)) {
		if at := where[name]; len(at) == 1 {
			if told[at[0]]++; told[at[0]] > maxAlone {
				more[at[0]]++
				continue
			}
		}
		a, b := was[name], is[name]
		e := Event{Service: name, Before: a.String(), After: b.String(), Kind: ServiceChanged}
		switch {
		case a.Functional() == 0 && b.Functional() > 0:
			e.Kind = ServiceUp
		case a.Functional() > 0 && b.Functional() == 0:
			e.Kind = ServiceDown
		}
		e.Text = fmt.Sprintf("%s: %s (on %s)", name, b, few(where[name], 5))
		d.add(e)
	}
	for _, node := range slices.Sorted(maps.Keys(more)) {
		d.add(Event{Kind: ServiceChanged, Node: node, Text: fmt.Sprintf("%d more services changed on %s alone", more[node], node)})
	}
}

// Kinds of events that Difference finds. Decisions have kinds of their own.
const (
	ClusterCreated        = "cluster_created"
	ClusterDeleted        = "cluster_deleted"
	ClusterChanged        = "cluster_changed" // profile, holds, observe only, how many lead
	ClusterPaused         = "cluster_paused"
	ClusterResumed        = "cluster_resumed"
	HoldEnded             = "hold_ended" // or a pause, or observe-only mode: by itself
	FreezeBegan           = "freeze_began"
	FreezeEnded           = "freeze_ended"
	DesiredVersionChanged = "desired_version_changed"
	LeadersChanged        = "leaders_changed"
	ManagersChanged       = "managers_changed"

	MemberJoined  = "member_joined"
	MemberLeft    = "member_left"
	MemberChanged = "member_changed"
	LeaseBegan    = "lease_began"
	LeaseEnded    = "lease_ended"

	NodeUp      = "node_up"
	NodeDown    = "node_down"
	NodeSuspect = "node_suspect"
	NodeGone    = "node_gone" // it is no longer in the catalog
	AgentUp     = "agent_up"
	AgentDown   = "agent_down"

	HealthChanged  = "health_changed"
	VersionChanged = "version_changed"
	StateChanged   = "state_changed"

	ServiceUp      = "service_up"   // it has functional instances again, or for the first time
	ServiceDown    = "service_down" // it has none longer
	ServiceChanged = "service_changed"

	DocumentDamaged  = "document_damaged"
	DocumentReadable = "document_readable" // again
)

// differenceKinds returns all kinds of events that Difference finds.
func differenceKinds() []string {
	return []string{
		ClusterCreated, ClusterDeleted, ClusterChanged, ClusterPaused, ClusterResumed, HoldEnded, FreezeBegan, FreezeEnded, DesiredVersionChanged, LeadersChanged, ManagersChanged,
		MemberJoined, MemberLeft, MemberChanged, LeaseBegan, LeaseEnded, NodeUp, NodeDown, NodeSuspect, NodeGone, AgentUp, AgentDown,
		HealthChanged, VersionChanged, StateChanged, ServiceUp, ServiceDown, ServiceChanged, DocumentDamaged, DocumentReadable,
	}
}

// Event is one observed difference between two views, or one decision.
type Event struct {
	Seq      uint64    `json:"seq"` // from 1, without gaps; given when it is journalled
	Time     time.Time `json:"time"`
	Kind     string    `json:"kind"`
	Node     string    `json:"node,omitempty"`
	Service  string    `json:"service,omitempty"`
	Category string    `json:"category,omitempty"` // of a state
	Text     string    `json:"text"`               // for people
	Before   string    `json:"before,omitempty"`
	After    string    `json:"after,omitempty"`
	// Change is the change that a command made, of an OperatorChange.
	Change *cluster.AuditEntry `json:"change,omitempty"`
	// AuthorUnknown: it is not recorded who made the change that was observed.
	AuthorUnknown bool `json:"author_unknown,omitempty"`
}

// maxText bounds Text, Before and After, in bytes.
const maxText = 1000

// Bounded returns e with texts of a length that a journal takes.
func (e Event) Bounded() Event {
	for _, s := range []*string{&e.Text, &e.Before, &e.After} {
		*s = text.Truncate(*s, maxText)
	}
	for _, s := range []*string{&e.Kind, &e.Node, &e.Service, &e.Category} {
		*s = text.Truncate(*s, maxText)
	}
	return e
}

// RolloutAdopted is the kind of event for a version that was written past the
// rollout.
const RolloutAdopted = "rollout_adopted"

// RolloutBudgeted is the kind of event for a rollout without a policy that the budget
// of the cluster paces from then on.
const RolloutBudgeted = "rollout_budgeted"

// Kinds of events about the orchestrator's own cycles.
const (
	OrchestratorFailing   = "orchestrator_failing" // three cycles in a row failed
	OrchestratorRecovered = "orchestrator_recovered"
)

// rolloutKind is the kind of event for a rollout's decision of a kind.
func rolloutKind(kind string) string { return "rollout_" + strings.ReplaceAll(kind, " ", "_") }

// Kinds returns all kinds of events that this version journals: what Difference
// finds and what is decided, sorted. A newer one may know more.
func Kinds() []string {
	all := append(differenceKinds(), OperatorChange, RolloutAdopted, RolloutBudgeted, OrchestratorFailing, OrchestratorRecovered)
	for _, kind := range rollout.DecisionKinds() {
		all = append(all, rolloutKind(kind))
	}
	all = append(all, runs.DecisionKinds()...)
	all = append(all, stage.Kinds()...)
	slices.Sort(all)
	return all
}
