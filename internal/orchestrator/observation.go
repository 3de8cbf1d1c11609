package orchestrator

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/text"
)

// observation is what the last successful cycle saw. The fleet metrics are made of
// it when they are scraped.
type observation struct {
	at    time.Time
	state cluster.State
	view  View
	began time.Time // of the term

	// agentDown is since when the agents of hosts that are up have been down, as far as
	// this orchestrator saw it.
	agentDown map[string]time.Time
}

// observe returns the observation of a cycle; before is the previous one of the same
// term, or nil.
func observe(s cluster.State, v View, before *observation, began, now time.Time) *observation {
	o := &observation{at: now, state: s, view: v, began: began, agentDown: map[string]time.Time{}}
	for node, n := range v.Nodes {
		if n.Agent != cluster.AgentDown || n.Life.Detached() {
			continue
		}
		o.agentDown[node] = now
		if before != nil {
			if since, down := before.agentDown[node]; down {
				o.agentDown[node] = since
			}
		}
	}
	return o
}

// Bounds of the values of labels. Any host may report any version and claim any
// role, and the number of series must not follow from that.
const (
	maxVersionLabels = 10 // beside the versions of the rollout
	maxRoleLabels    = 20 // beside the derived ones
	maxLabelBytes    = 100
	maxOutHosts      = 50
	maxRules         = 50
	maxStages        = 50

	otherLabel = "other"
)

// labels are the values of one label: names beyond the bound are counted together.
type labels map[string]bool

// newLabels returns the names in always and the most frequent ones of counts.
func newLabels(counts map[string]int, most int, always ...string) labels {
	l := labels{}
	for _, name := range always {
		l[text.Truncate(name, maxLabelBytes)] = true
	}
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Or(counts[b]-counts[a], cmp.Compare(a, b)) })
	for _, name := range names {
		if most > 0 && !l[name] {
			l[name] = true
			most--
		}
	}
	return l
}

func (l labels) of(name string) string {
	if name = text.Truncate(name, maxLabelBytes); l[name] {
		return name
	}
	return otherLabel
}

// memberKey are the labels of one series of jorc_members.
type memberKey struct{ version, health, role string }

// members counts the members by version, health and role. A member counts once for
// each of its roles, the derived ones included.
func (o *observation) members(versions ...string) map[memberKey]int {
	a := o.view.Aggregate()
	byVersion := newLabels(shortened(a.Versions), maxVersionLabels, append(versions, AggregateNone)...)
	byRole := newLabels(shortened(a.Roles), maxRoleLabels, cluster.RoleManager, cluster.RoleLeader, cluster.RoleWorker)
	all := map[memberKey]int{}
	for _, n := range o.view.Nodes {
		counted := map[memberKey]bool{}
		for _, role := range n.Roles {
			k := memberKey{byVersion.of(orNone(n.Version)), orNone(n.Health), byRole.of(role)}
			if !counted[k] {
				counted[k] = true
				all[k]++
			}
		}
	}
	return all
}

func shortened(counts map[string]int) map[string]int {
	all := make(map[string]int, len(counts))
	for name, n := range counts {
		all[text.Truncate(name, maxLabelBytes)] += n
	}
	return all
}

// outHost is a host that is out of service.
type outHost struct {
	node   string
	reason pace.OutReason
	since  time.Time
}

// out returns the hosts that are out of service, the longest first. A logical member
// never had a host.
func (o *observation) out() []outHost {
	var all []outHost
	for node, n := range o.view.Nodes {
		h := o.state.Hosts[node]
		if h == nil || n.Life == cluster.LivenessAbsent && n.Version == "" {
			continue
		}
		granted := h.Report.Answered(cluster.VersionChange)
		host := outHost{node: node, reason: h.Condition.OutOfService(granted.Open())}
		switch host.reason {
		case pace.InService:
			continue
		case pace.OutGrant:
			host.since = granted.Since
		case pace.OutDown:
			if host.since = n.LifeSince; !n.Life.Detached() {
				host.since = o.agentDown[node]
			}
		default:
			host.since = n.HealthSince
		}
		all = append(all, host)
	}
	slices.SortFunc(all, func(a, b outHost) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.node, b.node)) })
	return all
}

// held counts the members that are held.
func (o *observation) held() (n int) {
	for node, v := range o.view.Nodes {
		if _, held := o.state.Control.Held(node, v.Roles); held || v.HoldFile != "" {
			n++
		}
	}
	return n
}

// damagedKinds names the documents whose damage is counted.
var damagedKinds = map[string]string{
	cluster.KeyProfile: "profile", cluster.KeyControl: "control", cluster.KeyLeaders: "leaders",
	cluster.KeyVersion: "rollout", cluster.KeyVersionState: "rollout_state", cluster.KeyDesired: "desired_version", cluster.KeyChanges: "changes",
}

// damaged counts the documents that cannot be read, by kind.
func (o *observation) damaged() map[string]int {
	all := map[string]int{"host": 0}
	for _, kind := range damagedKinds {
		all[kind] = 0
	}
	for key := range o.state.Damaged {
		all[cmp.Or(damagedKinds[key], "host")]++
	}
	return all
}

// rollout returns what is stored of the rollout, and the members as it sees them; ok is false
// while that cannot be read, or it is not known who the members are.
func (o *observation) rollout(r *rollout.Rollouts) (stored rollout.Stored, members rollout.State, ok bool) {
	stored, err := r.StoredIn(&o.state, change.Ledger{})
	if err != nil {
		return stored, members, false
	}
	members, err = rollout.StateOf(&o.state, stored)
	members.PlannedSince = o.began
	return stored, members, err == nil
}
