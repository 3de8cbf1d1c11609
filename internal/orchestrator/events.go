package orchestrator

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/event"
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
			d.add(Event{Kind: event.MemberLeft, Node: name, Text: name + " is no longer a member", Before: old.summary()})
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
		d.add(Event{Kind: event.ClusterCreated, Text: "the cluster was created"})
	case a.Exists && !b.Exists:
		d.add(Event{Kind: event.ClusterDeleted, Text: "the cluster's profile is gone"})
	case a.Profile != b.Profile:
		d.changed(Event{Kind: event.ClusterChanged, Text: "the profile was changed", AuthorUnknown: d.unknown(cluster.KeyProfile)}, a.Profile, b.Profile)
	}
	paused := Event{Kind: event.ClusterPaused, Text: "the cluster is paused: " + b.Paused, AuthorUnknown: d.unknown(cluster.KeyControl)}
	switch {
	case b.Paused != "" || a.Paused == "":
	case d.ended["pause "+a.Paused]:
		paused = Event{Kind: event.HoldEnded, Text: "the pause ended by itself: " + a.Paused}
	default:
		paused.Kind, paused.Text = event.ClusterResumed, "the cluster is paused no more"
	}
	d.changed(paused, a.Paused, b.Paused)
	observe := Event{Kind: event.ClusterChanged, Text: "the orchestrator decides again", AuthorUnknown: d.unknown(cluster.KeyControl)}
	switch {
	case b.ObserveOnly != "":
		observe.Text = "the orchestrator only observes: " + b.ObserveOnly
	case d.ended["observe-only "+a.ObserveOnly]:
		observe = Event{Kind: event.HoldEnded, Text: "observe-only mode ended by itself: " + a.ObserveOnly}
	}
	d.changed(observe, a.ObserveOnly, b.ObserveOnly)
	d.holds(a.Holds, b.Holds)
	d.freezes(a.Freezes, b.Freezes)
	d.changed(Event{Kind: event.ClusterChanged, Text: text.Count(b.LeaderCount, "member is to lead", "members are to lead")}, strconv.Itoa(a.LeaderCount), strconv.Itoa(b.LeaderCount))
	desired := Event{Kind: event.DesiredVersionChanged, Text: fmt.Sprintf("the desired version is %s", orNone(b.Desired))}
	if b.Desired != "" {
		desired.Change = cluster.ChangeID(cluster.KindVersion, b.Desired)
	}
	d.changed(desired, a.Desired, b.Desired)
	d.list(Event{Kind: event.LeadersChanged, Text: "leaders: " + orNone(strings.Join(b.Leaders, ", "))}, a.Leaders, b.Leaders)
	d.list(Event{Kind: event.ManagersChanged, Text: "managers: " + orNone(strings.Join(b.Managers, ", "))}, a.Managers, b.Managers)
	for _, name := range slices.Sorted(maps.Keys(union(a.Trouble, b.Trouble))) {
		d.trouble("", name, a.Trouble[name], b.Trouble[name])
	}
}

// holds adds one event for each hold that ended by itself, and one for all other changes.
func (d *difference) holds(before, after []string) {
	rest := slices.DeleteFunc(slices.Clone(before), func(hold string) bool {
		ended := d.ended[hold] && !slices.Contains(after, hold)
		if ended {
			d.changed(Event{Kind: event.HoldEnded, Text: "a hold ended by itself: " + hold}, hold, "")
		}
		return ended
	})
	d.list(Event{Kind: event.ClusterChanged, Text: "holds were changed"}, rest, after)
}

func (d *difference) freezes(before, after []string) {
	n := len(d.events)
	for _, f := range before {
		if !slices.Contains(after, f) {
			d.add(Event{Kind: event.FreezeEnded, Before: f, Text: "no longer in force: " + f})
		}
	}
	for _, f := range after {
		if !slices.Contains(before, f) {
			d.add(Event{Kind: event.FreezeBegan, After: f, Text: "nothing new that takes hosts out of service begins: " + f})
		}
	}
	if len(d.events) == n {
		d.list(Event{Kind: event.ClusterChanged, Text: "the freezes in force were changed"}, before, after)
	}
}

func (d *difference) list(e Event, before, after []string) {
	if !slices.Equal(before, after) {
		e.Before, e.After = strings.Join(before, ", "), strings.Join(after, ", ")
		d.add(e)
	}
}

func (d *difference) trouble(node, name, before, after string) {
	text, kind := fmt.Sprintf("%s cannot be read: %s; what was known before is kept", name, after), event.DocumentDamaged
	if after == "" {
		text, kind = fmt.Sprintf("%s can be read again", name), event.DocumentReadable
	}
	d.changed(Event{Kind: kind, Node: node, Text: text}, before, after)
}

func (d *difference) joined(name string, n NodeView) {
	d.add(Event{Kind: event.MemberJoined, Node: name, Text: name + " is a member: " + n.summary(), After: n.summary()})
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
	kind, text := event.AgentUp, "its jorc agent is up"
	if b.Agent != "up" {
		kind, text = event.AgentDown, "its jorc agent is down"
	}
	d.changed(Event{Kind: kind, Node: name, Text: name + ": " + text}, a.Agent, b.Agent)
	d.changed(Event{Kind: event.HealthChanged, Node: name, Text: name + " " + healthText(b.Health)}, a.Health, b.Health)
	d.changed(Event{Kind: event.VersionChanged, Node: name, Text: fmt.Sprintf("%s runs %s", name, orNone(b.Version))}, a.Version, b.Version)
	for _, c := range slices.Sorted(maps.Keys(union(a.States, b.States))) {
		if old, next := a.States[c], b.States[c]; old != next {
			e := Event{Kind: event.StateChanged, Node: name, Category: c, Text: fmt.Sprintf("%s: %s %s", name, c, next.sentence())}
			d.changed(e, old.String(), next.String())
		}
	}
	held := name + ": its hold file is gone"
	if b.HoldFile != "" {
		held = name + " is " + b.HoldFile
	}
	d.changed(Event{Kind: event.MemberChanged, Node: name, Text: held}, a.HoldFile, b.HoldFile)
	leased := Event{Kind: event.ChangeDone, Node: name, Change: cluster.LeaseChange(name), Text: name + ": its lease is over"}
	if b.Lease != "" {
		leased.Kind, leased.Text = event.ChangeBegan, name+" goes out of service: "+b.Lease
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
			Kind: event.MemberChanged, Node: name, Text: fmt.Sprintf("%s: other %s", name, strings.Join(what, ", ")),
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
		e.Kind, e.Text = event.NodeUp, name+" is up"
	case cluster.LivenessSuspect:
		e.Kind, e.Text = event.NodeSuspect, name+" is suspect: gossip does not hear it, but the orchestrator reaches it"
	case cluster.LivenessDown:
		e.Kind, e.Text = event.NodeDown, name+" is down: neither gossip nor the orchestrator reaches it"
	default:
		e.Kind, e.Text = event.NodeGone, name+" is no longer in the catalog"
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
		e := Event{Service: name, Before: a.String(), After: b.String(), Kind: event.ServiceChanged}
		switch {
		case a.Functional() == 0 && b.Functional() > 0:
			e.Kind = event.ServiceUp
		case a.Functional() > 0 && b.Functional() == 0:
			e.Kind = event.ServiceDown
		}
		e.Text = fmt.Sprintf("%s: %s (on %s)", name, b, text.Few(", ", where[name], 5))
		d.add(e)
	}
	for _, node := range slices.Sorted(maps.Keys(more)) {
		d.add(Event{Kind: event.ServiceChanged, Node: node, Text: fmt.Sprintf("%d more services changed on %s alone", more[node], node)})
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
	// Change is the id of the change that it is about, as 'jorc change show' takes it; empty: it is about none.
	Change string `json:"change,omitempty"`
	// Audit is what a command did, of an operator_change.
	Audit *cluster.AuditEntry `json:"audit,omitempty"`
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
	for _, s := range []*string{&e.Kind, &e.Node, &e.Service, &e.Category, &e.Change} {
		*s = text.Truncate(*s, maxText)
	}
	return e
}
