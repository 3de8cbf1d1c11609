package orchestrator

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/lease"
	"github.com/jorc/jorc/internal/metrics"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/stage"
	"github.com/jorc/jorc/internal/text"
)

// fleetMetrics returns the metrics of an orchestrated cluster. All have the label cluster
// first. Times are given as timestamps: time() minus the value is an age.
func fleetMetrics() map[string]metrics.Desc {
	descs := map[string]metrics.Desc{}
	for name, d := range map[string]struct {
		help   string
		labels []string
	}{
		"jorc_cluster_last_observed_timestamp_seconds": {"When the last successful cycle read the cluster: the age of all metrics of the fleet.", nil},
		"jorc_cluster_paused":                          {"Whether the cluster is paused.", nil},
		"jorc_cluster_observe_only":                    {"Whether the orchestrator only observes.", nil},
		"jorc_cluster_leaders":                         {"Members that lead.", nil},
		"jorc_cluster_leaders_wanted":                  {"How many members are to lead.", nil},
		"jorc_cluster_held_members":                    {"Members that are held.", nil},
		"jorc_cluster_damaged_documents":               {"Documents in Consul that cannot be read, by kind; host: of single hosts.", []string{"kind"}},
		"jorc_desired_version_info":                    {"Always 1; the label is the desired version.", []string{"version"}},
		"jorc_members": {"Members by version, health and role; once for each role of a member, manager, leader and worker included. " +
			"Versions and roles beyond the most frequent count as other.", []string{"version", "health", "role"}},
		"jorc_hosts":                {"Members by liveness.", []string{"liveness"}},
		"jorc_hosts_out_of_service": {"Members out of service, by reason.", []string{"reason"}},
		"jorc_host_out_of_service_start_timestamp_seconds": {"Since when a host is out of service; at most 50 hosts, the longest first.", []string{"host", "reason"}},
		"jorc_budget_hosts_allowed":                        {"How many hosts may be out of service by a limit of the budget: of the cluster, a role, or how many zones. At most 20 roles.", []string{"limit", "name"}},
		"jorc_budget_hosts_out":                            {"How many hosts, or zones, are out of service by that limit.", []string{"limit", "name"}},
		"jorc_budget_used_by_failed":                       {"Whether failed hosts use up a limit of the budget, so that nothing that disturbs begins.", []string{"limit", "name"}},
		"jorc_change_info":                                 {"Always 1; the labels are a change and its state. A version is one change, and so are the files of each stage; at most 50 stages.", []string{"kind", "change", "state"}},
		"jorc_change_hosts":                                {"Hosts of a change by what they do. All runs in progress count together, with an empty change, and so do all leases.", []string{"kind", "change", "state"}},
		"jorc_change_stopped":                              {"Whether a change is stopped, by what: jorc after a failure or a missed deadline, or an operator, who can stop a version.", []string{"kind", "change", "by"}},
		"jorc_change_waiting":                              {"1 for what a change in progress waits for; all 0 when it is over.", []string{"kind", "change", "reason"}},
		"jorc_change_start_timestamp_seconds":              {"When the version was triggered, or the first host took the new files; missing: no files are on their way.", []string{"kind", "change"}},
		"jorc_change_last_progress_timestamp_seconds":      {"When the change reached the last host, or when hosts could begin again after that.", []string{"kind", "change"}},
		"jorc_change_wait_start_timestamp_seconds":         {"Since when a change waits and none of its hosts begins or ends; of runs and leases the one that has waited longest. Missing: none waits.", []string{"kind", "change"}},
		"jorc_runs":                               {"Runs in progress, by state.", []string{"state"}},
		"jorc_rule_last_run_timestamp_seconds":    {"When a rule with a schedule last started a run; missing: never. At most 50 rules.", []string{"rule"}},
		"jorc_rule_next_run_timestamp_seconds":    {"When a rule with a schedule is to start a run next; in the past: it is overdue.", []string{"rule"}},
		"jorc_rule_last_missed_timestamp_seconds": {"When a due time of a rule was last found to be missed; missing: never.", []string{"rule"}},
		"jorc_rule_missed_total":                  {"How often due times of a rule were missed; several in a row count once.", []string{"rule"}},
	} {
		t := metrics.Gauge
		if strings.HasSuffix(name, "_total") {
			t = metrics.Counter
		}
		descs[name] = metrics.Desc{Name: name, Help: d.help, Type: t, Labels: append([]string{"cluster"}, d.labels...)}
	}
	return descs
}

// MetricNames returns the names of the metrics that Collect adds.
func MetricNames() []string { return slices.Sorted(maps.Keys(fleetMetrics())) }

// Collect adds the metrics of the cluster as the last cycle saw it; nothing while this
// agent does not orchestrate it. It does no I/O.
func (o *Orchestrator) Collect(out *metrics.Exposition) {
	seen := o.lastObserved()
	if seen == nil {
		return
	}
	f := clusterMetrics{cluster: o.o.Cluster, descs: fleetMetrics(), out: out}
	f.collectCluster(seen)
	versions := []string{seen.view.Cluster.Desired}
	stored, members, known := seen.rollout(o.rollouts)
	if d := stored.Document; known && stored.Exists {
		f.collectVersion(d, rollout.Summarize(d, members, time.Now()))
		versions = append(versions, d.Version, d.Previous)
	}
	f.collectMembers(seen, versions)
	if known && seen.state.Control.Budget != nil {
		f.collectBudget(o.count(&seen.state, members, seen.view.Life))
	}
	f.collectFiles(o.store, seen)
	f.collectLeases(&seen.state)
	if progress := o.lastRuns(); progress != nil {
		f.collectRuns(*progress)
	}
}

// clusterMetrics adds the metrics of one cluster.
type clusterMetrics struct {
	cluster string
	descs   map[string]metrics.Desc
	out     *metrics.Exposition
}

func (f clusterMetrics) send(name string, value float64, labels ...string) {
	f.out.Add(f.descs[name], value, append([]string{f.cluster}, labels...)...)
}

func (f clusterMetrics) truth(name string, is bool, labels ...string) {
	value := 0.0
	if is {
		value = 1
	}
	f.send(name, value, labels...)
}

// moment sends a time in seconds since 1970; one that is not known is left out.
func (f clusterMetrics) moment(name string, t time.Time, labels ...string) {
	if !t.IsZero() {
		f.send(name, float64(t.UnixMilli())/1000, labels...)
	}
}

func (f clusterMetrics) collectCluster(o *observation) {
	c := o.state.Control
	f.moment("jorc_cluster_last_observed_timestamp_seconds", o.at)
	f.truth("jorc_cluster_paused", c.Paused != nil)
	f.truth("jorc_cluster_observe_only", c.ObserveOnly != nil)
	f.send("jorc_cluster_leaders", float64(len(o.view.Cluster.Leaders)))
	f.send("jorc_cluster_leaders_wanted", float64(o.view.Cluster.LeaderCount))
	f.send("jorc_cluster_held_members", float64(o.held()))
	for kind, n := range o.damaged() {
		f.send("jorc_cluster_damaged_documents", float64(n), kind)
	}
	if desired := o.view.Cluster.Desired; desired != "" {
		f.send("jorc_desired_version_info", 1, desired)
	}
}

func (f clusterMetrics) collectMembers(o *observation, versions []string) {
	for k, n := range o.members(versions...) {
		f.send("jorc_members", float64(n), k.version, k.health, k.role)
	}
	life := o.view.Aggregate().Life
	for _, l := range []cluster.Liveness{cluster.LivenessUp, cluster.LivenessSuspect, cluster.LivenessDown, cluster.LivenessAbsent, cluster.LivenessUnmonitored} {
		f.send("jorc_hosts", float64(life[string(l)]), string(l))
	}
	out := o.out()
	count := map[pace.OutReason]int{}
	for i, h := range out {
		count[h.reason]++
		if i < maxOutHosts {
			f.moment("jorc_host_out_of_service_start_timestamp_seconds", h.since, h.node, string(h.reason))
		}
	}
	for _, reason := range []pace.OutReason{pace.OutGrant, pace.OutDown, pace.OutCritical, pace.OutMaintenance} {
		f.send("jorc_hosts_out_of_service", float64(count[reason]), string(reason))
	}
}

func (f clusterMetrics) collectBudget(a *pace.Account) {
	roles, failures := 0, a.Failures()
	for _, u := range a.Uses() {
		if u.Kind == pace.OfRole {
			if roles++; roles > maxRoleLabels {
				continue
			}
		}
		name := text.Truncate(u.Name, maxLabelBytes)
		f.send("jorc_budget_hosts_allowed", float64(u.Allowed), u.Kind, name)
		f.send("jorc_budget_hosts_out", float64(u.Out), u.Kind, name)
		failed := slices.ContainsFunc(failures, func(f pace.Failure) bool { return f.Limit == u.Limit })
		f.truth("jorc_budget_used_by_failed", failed, u.Kind, name)
	}
}

// collectVersion adds the rollout of the desired version.
func (f clusterMetrics) collectVersion(d rollout.Document, s rollout.Summary) {
	name := text.Truncate(d.Version, maxLabelBytes)
	f.send("jorc_change_info", 1, cluster.KindVersion, name, strings.ReplaceAll(d.State(), " ", "_"))
	f.hosts(cluster.KindVersion, name, s.Counts)
	paused := d.State() == rollout.Paused
	f.truth("jorc_change_stopped", paused && s.PausedByJorc, cluster.KindVersion, name, "jorc")
	f.truth("jorc_change_stopped", paused && !s.PausedByJorc, cluster.KindVersion, name, "operator")
	f.waits(cluster.KindVersion, name, s.Blocker)
	f.moment("jorc_change_start_timestamp_seconds", d.Started, cluster.KindVersion, name)
	f.moment("jorc_change_last_progress_timestamp_seconds", s.LastProgress, cluster.KindVersion, name)
}

// hosts adds how far a change is.
func (f clusterMetrics) hosts(kind, name string, n pace.Counts) {
	for state, n := range map[string]int{
		"waiting": n.Waiting, "working": n.Working, "done": n.Done, "failed": n.Failed, "down": n.Down, "held": n.Held, "given_up": n.GivenUp,
	} {
		f.send("jorc_change_hosts", float64(n), kind, name, state)
	}
}

// waits adds what a change waits for.
func (f clusterMetrics) waits(kind, name string, all ...pace.Blocker) {
	for _, b := range pace.Blockers() {
		f.truth("jorc_change_waiting", slices.Contains(all, b), kind, name, string(b))
	}
}

// collectFiles adds the first stages by name. One whose documents cannot be read is left out.
func (f clusterMetrics) collectFiles(store *kv.Store, o *observation) {
	hosts := stage.HostsOf(&o.state)
	names := slices.Sorted(maps.Keys(hosts))
	for _, name := range names[:min(len(names), maxStages)] {
		d, err := stage.New(store).Parse(name, o.state.Stages[name])
		if err != nil {
			continue
		}
		s := stage.Summarize(d, stage.State{Stage: name, Hosts: hosts[name], Halted: idleReason(&o.state), Freezes: o.state.Control.Freezes}, time.Now())
		f.send("jorc_change_info", 1, cluster.KindFiles, name, s.State)
		f.hosts(cluster.KindFiles, name, s.Counts)
		f.truth("jorc_change_stopped", s.State == stage.StateStopped, cluster.KindFiles, name, "jorc")
		f.waits(cluster.KindFiles, name, s.Blocker)
		f.moment("jorc_change_start_timestamp_seconds", s.Since, cluster.KindFiles, name)
		f.moment("jorc_change_last_progress_timestamp_seconds", pace.Latest(s.LastProgress, o.began), cluster.KindFiles, name)
		f.moment("jorc_change_wait_start_timestamp_seconds", s.WaitingSince, cluster.KindFiles, name)
	}
}

// collectLeases adds all leases together.
func (f clusterMetrics) collectLeases(s *cluster.State) {
	var counts pace.Counts
	var blockers []pace.Blocker
	var since time.Time
	for _, node := range s.Nodes() {
		l, _, ok := change.LeaseIn(s.Hosts[node])
		if !ok {
			continue
		}
		shown := lease.Show(l)
		counts.Add(shown.Progress().State)
		if shown.State == lease.ShownWaiting {
			since = pace.Earliest(since, shown.Since)
			blockers = append(blockers, shown.Blocker())
		}
	}
	f.hosts(cluster.KindLease, "", counts)
	f.waits(cluster.KindLease, "", blockers...)
	f.moment("jorc_change_wait_start_timestamp_seconds", since, cluster.KindLease, "")
}

// collectRuns adds all runs in progress together, and the rules with a schedule.
func (f clusterMetrics) collectRuns(p runs.Progress) {
	for _, state := range []runs.State{runs.NeedsApproval, runs.Pending, runs.Running} {
		f.send("jorc_runs", float64(p.States[state]), strings.ReplaceAll(string(state), "-", "_"))
	}
	f.hosts(cluster.KindRun, "", p.Jobs.Hosts())
	f.truth("jorc_change_stopped", p.Stopped, cluster.KindRun, "", "jorc")
	f.waits(cluster.KindRun, "", p.Blockers...)
	f.moment("jorc_change_wait_start_timestamp_seconds", p.WaitingSince, cluster.KindRun, "")
	for _, s := range p.Schedules[:min(len(p.Schedules), maxRules)] {
		rule := text.Truncate(s.Rule, maxLabelBytes)
		f.moment("jorc_rule_last_run_timestamp_seconds", s.LastRun, rule)
		f.moment("jorc_rule_next_run_timestamp_seconds", s.NextRun, rule)
		f.moment("jorc_rule_last_missed_timestamp_seconds", s.MissNoticed, rule)
		f.send("jorc_rule_missed_total", float64(s.Missed), rule)
	}
}
