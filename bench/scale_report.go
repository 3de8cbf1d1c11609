package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Targets of simulated fleets, per node where nothing else is said.
const (
	maxChangeWrites  = 2    // successful ones, of a version change
	maxChangeReads   = 8    // of a version change
	maxChangeKB      = 10   // read, of a version change
	maxRolloutMillis = 5    // of a rollout
	maxRolloutWrites = 3    // successful ones, of a rollout
	maxRequests      = 12   // of a change of any kind
	maxRolloutKB     = 15   // read, of a rollout
	maxIdleRequests  = 4    // per agent and minute
	maxIdleQueries   = 4    // that block, per agent
	maxGrowth        = 1.25 // of what a node costs, from the smallest fleet to the largest
	maxIdleCycle     = 20   // ms, of the orchestrator alone, nothing changed
	maxCycle         = 60   // ms, of the orchestrator alone, one node changed
	maxMemory        = 200  // MB, of the orchestrator alone
	maxValue         = 512  // KB
)

// Targets for fleets of some sizes.
var (
	maxNext = map[int]float64{100: 50, 1000: 200, 5000: 500} // ms until the next node begins
	maxRun  = map[int]float64{1000: 3}                       // s until the last answer of a run
)

// scaleRow is one figure for each size of fleet.
type scaleRow struct {
	what   string
	unit   string
	of     func(f fleetResult) float64
	limit  float64         // of each size; below zero: none
	sizes  map[int]float64 // limits of some sizes
	steady bool            // what a node costs must not grow
}

func per(f fleetResult, v float64) float64 { return v / float64(f.size) }

// millisPer is a time per node.
func millisPer(size int, d time.Duration) float64 {
	return float64(d) / float64(time.Millisecond) / float64(size)
}

func (w window) perMinute(v float64) float64 { return v / w.span.Minutes() }

// share is a quantile, or 0 for no samples: a table has no NaN.
func (s samples) share(q float64) float64 {
	if len(s) == 0 {
		return 0
	}
	return s.quantile(q)
}

func (s samples) median() float64 { return s.share(0.5) }
func (s samples) most() float64   { return s.share(1) }

func versionRows() []scaleRow {
	return []scaleRow{
		{what: "all agents started, and members", unit: "s", of: func(f fleetResult) float64 { return f.join.took.Seconds() }, limit: noTarget},
		{what: "first version: until all have converged", unit: "s", of: func(f fleetResult) float64 { return f.first.took.Seconds() }, limit: noTarget},
		{what: "version change: until all have converged", unit: "s", of: func(f fleetResult) float64 { return f.change.took.Seconds() }, limit: noTarget},
		{
			what: "— the same, per node", unit: "ms", limit: noTarget, steady: true,
			of: func(f fleetResult) float64 { return millisPer(f.size, f.change.took) },
		},
		{
			what: "successful writes per node", unit: "", limit: maxChangeWrites, steady: true,
			of: func(f fleetResult) float64 { return per(f, f.change.ok()) },
		},
		{what: "conflicts, tried again, per node", unit: "", limit: noTarget, of: func(f fleetResult) float64 { return per(f, f.change.asked.Conflicts) }},
		{what: "reads per node", unit: "", limit: maxChangeReads, steady: true, of: func(f fleetResult) float64 { return per(f, f.change.asked.Reads) }},
		{
			what: "bytes read per node", unit: "KB", limit: maxChangeKB, steady: true,
			of: func(f fleetResult) float64 { return per(f, f.change.asked.Received) / 1000 },
		},
		{what: "agent's processor time per node", unit: "ms", limit: noTarget, steady: true, of: func(f fleetResult) float64 { return millisPer(f.size, f.change.agents) }},
		{what: "Consul's processor time per node", unit: "ms", limit: noTarget, steady: true, of: func(f fleetResult) float64 { return millisPer(f.size, f.change.consul) }},
		{what: "processor time of the host's Consul agent", unit: "ms", limit: noTarget, of: func(f fleetResult) float64 { return millisPer(f.size, f.change.clients) }},
		{what: "RSS per agent", unit: "MB", limit: noTarget, steady: true, of: func(f fleetResult) float64 { return f.memory }},
		{what: "RSS of the Consul server", unit: "MB", limit: noTarget, of: func(f fleetResult) float64 { return f.consul }},
		{what: "RSS of a Consul agent in front of them", unit: "MB", limit: noTarget, of: func(f fleetResult) float64 { return f.client }},
	}
}

func idleRows() []scaleRow {
	return []scaleRow{
		{what: "Raft writes, all agents together", unit: "", limit: 0, of: func(f fleetResult) float64 { return f.idle.writes }},
		{what: "Consul's own meanwhile", unit: "", limit: noTarget, of: func(f fleetResult) float64 { return f.idle.own }},
		{
			what: "requests per agent and minute", unit: "", limit: maxIdleRequests, steady: true,
			of: func(f fleetResult) float64 { return per(f, f.idle.perMinute(f.idle.asked.requests())) },
		},
		{what: "queries of an agent that block", unit: "", limit: maxIdleQueries, of: func(f fleetResult) float64 { return float64(f.watches) }},
		{
			what: "agents' processor time", unit: "% of a core", limit: noTarget,
			of: func(f fleetResult) float64 { return 100 * float64(f.idle.agents) / float64(f.idle.span) },
		},
	}
}

func rolloutRows() []scaleRow {
	return []scaleRow{
		{what: "until the rollout is done", unit: "s", limit: noTarget, of: func(f fleetResult) float64 { return f.rollout.took.Seconds() }},
		{
			what: "— the same, per node", unit: "ms", limit: maxRolloutMillis, steady: true,
			of: func(f fleetResult) float64 { return millisPer(f.size, f.rollout.took) },
		},
		{
			what: "jorc's successful writes per node", unit: "", limit: maxRolloutWrites, steady: true,
			of: func(f fleetResult) float64 { return per(f, f.rollout.ok()-f.rollout.served) },
		},
		{what: "— of them the agent's own", unit: "", limit: noTarget, of: func(f fleetResult) float64 { return per(f, f.rollout.asked.Writes) }},
		{what: "— of them the orchestrator's", unit: "", limit: noTarget, of: func(f fleetResult) float64 {
			return per(f, max(0, f.rollout.ok()-f.rollout.served-f.rollout.asked.Writes))
		}},
		{what: "Consul agents' for maintenance mode, per node", unit: "", limit: noTarget, of: func(f fleetResult) float64 { return per(f, f.rollout.served) }},
		{what: "conflicts, tried again, per node", unit: "", limit: noTarget, steady: true, of: func(f fleetResult) float64 { return per(f, f.rollout.asked.Conflicts) }},
		{what: "requests per node", unit: "", limit: maxRequests, steady: true, of: func(f fleetResult) float64 { return per(f, f.rollout.asked.requests()) }},
		{
			what: "bytes read per node", unit: "KB", limit: maxRolloutKB, steady: true,
			of: func(f fleetResult) float64 { return per(f, f.rollout.asked.Received) / 1000 },
		},
		{what: "agent's processor time per node", unit: "ms", limit: noTarget, steady: true, of: func(f fleetResult) float64 { return millisPer(f.size, f.rollout.agents) }},
		{what: "Consul's processor time per node", unit: "ms", limit: noTarget, steady: true, of: func(f fleetResult) float64 { return millisPer(f.size, f.rollout.consul) }},
		{what: "processor time of the host's Consul agent", unit: "ms", limit: noTarget, of: func(f fleetResult) float64 { return millisPer(f.size, f.rollout.clients) }},
		{what: "place free until the next node begins, p50", unit: "ms", limit: noTarget, sizes: maxNext, of: func(f fleetResult) float64 { return f.rollout.next.median() }},
		{what: "place free until the next node begins, p95", unit: "ms", limit: noTarget, of: func(f fleetResult) float64 { return f.rollout.next.share(0.95) }},
		{what: "— floor: the same reads and writes without jorc, p50", unit: "ms", limit: noTarget, of: func(f fleetResult) float64 { return f.rollout.floor.median() }},
		{what: "orchestrator's cycle, p50", unit: "ms", limit: noTarget, of: func(f fleetResult) float64 { return f.rollout.cycles.median() }},
		{what: "orchestrator's cycle, longest", unit: "ms", limit: noTarget, of: func(f fleetResult) float64 { return f.rollout.cycles.most() }},
		{what: "orchestrator's RSS", unit: "MB", limit: noTarget, of: func(f fleetResult) float64 { return f.rollout.rss }},
	}
}

func runRows() []scaleRow {
	return []scaleRow{
		{what: "an agent's answer, p50", unit: "ms", limit: noTarget, of: func(f fleetResult) float64 { return f.run.answers.median() }},
		{what: "an agent's answer, p99", unit: "ms", limit: noTarget, of: func(f fleetResult) float64 { return f.run.answers.share(0.99) }},
		{what: "until the last answer", unit: "s", limit: noTarget, sizes: maxRun, of: func(f fleetResult) float64 { return f.run.took.Seconds() }},
		{what: "— the same, per node", unit: "ms", limit: noTarget, steady: true, of: func(f fleetResult) float64 { return millisPer(f.size, f.run.took) }},
		{what: "jorc's successful writes per node", unit: "", limit: noTarget, steady: true, of: func(f fleetResult) float64 { return per(f, f.run.ok()) }},
		{what: "requests per node", unit: "", limit: maxRequests, steady: true, of: func(f fleetResult) float64 { return per(f, f.run.asked.requests()) }},
		{what: "bytes read per node", unit: "KB", limit: noTarget, steady: true, of: func(f fleetResult) float64 { return per(f, f.run.asked.Received) / 1000 }},
		{what: "agent's processor time per node", unit: "ms", limit: noTarget, steady: true, of: func(f fleetResult) float64 { return millisPer(f.size, f.run.agents) }},
		{what: "Consul's processor time per node", unit: "ms", limit: noTarget, steady: true, of: func(f fleetResult) float64 { return millisPer(f.size, f.run.consul) }},
	}
}

func stageRows() []scaleRow {
	return []scaleRow{
		{what: "until the stage is done", unit: "s", limit: noTarget, of: func(f fleetResult) float64 { return f.stage.took.Seconds() }},
		{what: "— the same, per node", unit: "ms", limit: noTarget, steady: true, of: func(f fleetResult) float64 { return millisPer(f.size, f.stage.took) }},
		{what: "jorc's successful writes per node", unit: "", limit: noTarget, steady: true, of: func(f fleetResult) float64 { return per(f, f.stage.ok()) }},
		{what: "conflicts, tried again, per node", unit: "", limit: noTarget, steady: true, of: func(f fleetResult) float64 { return per(f, f.stage.asked.Conflicts) }},
		{what: "requests per node", unit: "", limit: maxRequests, steady: true, of: func(f fleetResult) float64 { return per(f, f.stage.asked.requests()) }},
		{what: "bytes read per node", unit: "KB", limit: noTarget, steady: true, of: func(f fleetResult) float64 { return per(f, f.stage.asked.Received) / 1000 }},
		{what: "agent's processor time per node", unit: "ms", limit: noTarget, steady: true, of: func(f fleetResult) float64 { return millisPer(f.size, f.stage.agents) }},
		{what: "Consul's processor time per node", unit: "ms", limit: noTarget, steady: true, of: func(f fleetResult) float64 { return millisPer(f.size, f.stage.consul) }},
	}
}

func stormRows() []scaleRow {
	return []scaleRow{
		{what: "from the return until all run the version", unit: "s", limit: maxStorm, of: func(f fleetResult) float64 { return f.storm.took.Seconds() }},
		{what: "requests per agent after the return, in " + stormWindow.String(), unit: "", limit: maxStormAsked, of: func(f fleetResult) float64 { return per(f, f.storm.asked.requests()) }},
		{what: "answers to another, p50", unit: "ms", limit: noTarget, of: func(f fleetResult) float64 { return f.storm.answers.median() }},
		{what: "— p99", unit: "ms", limit: noTarget, of: func(f fleetResult) float64 { return f.storm.answers.share(0.99) }},
		{what: "— the longest", unit: "ms", limit: maxStormAnswer, of: func(f fleetResult) float64 { return f.storm.answers.most() }},
	}
}

// table lays rows out, a column for each fleet.
func (r *scaleReport) table(rows []scaleRow) string {
	head := []string{"what", "unit"}
	for _, f := range r.Fleets {
		head = append(head, fmt.Sprintf("%d agents", f.size))
	}
	table := [][]string{append(head, "ratio", "target", "met")}
	for _, row := range rows {
		cells := []string{row.what, row.unit}
		for _, f := range r.Fleets {
			cells = append(cells, number(row.of(f)))
		}
		table = append(table, append(cells, r.verdict(row)...))
	}
	return layout(table)
}

// verdict is how much a figure grows, its target, and whether that was met.
func (r *scaleReport) verdict(row scaleRow) []string {
	if len(r.Fleets) == 0 {
		return []string{"–", "–", "–"}
	}
	first, last := row.of(r.Fleets[0]), row.of(r.Fleets[len(r.Fleets)-1])
	ratio, met := "–", true
	var targets []string
	if row.limit >= 0 {
		targets = append(targets, "≤ "+number(row.limit))
		met = !slices.ContainsFunc(r.Fleets, func(f fleetResult) bool { return row.of(f) > row.limit })
	}
	for _, f := range r.Fleets {
		if limit, ok := row.sizes[f.size]; ok {
			targets = append(targets, fmt.Sprintf("≤ %s at %d", number(limit), f.size))
			met = met && row.of(f) <= limit
		}
	}
	if row.steady && len(r.Fleets) > 1 && first > 0 {
		ratio = number(last / first)
		targets = append(targets, "ratio ≤ "+number(maxGrowth))
		met = met && last/first <= maxGrowth
	}
	if len(targets) == 0 {
		return []string{ratio, "–", "–"}
	}
	return []string{ratio, strings.Join(targets, ", "), yesNo(met)}
}

// yesNo is a cell of the column "met".
func yesNo(met bool) string {
	if met {
		return "yes"
	}
	return "**no**"
}

func (s storedResult) table() string {
	rows := [][]string{{"what", "unit", "p50", "longest", "target", "met", "n"}}
	add := func(what string, all samples, limit float64) {
		met, target := "–", "–"
		if limit >= 0 && len(all) > 0 {
			target, met = "≤ "+number(limit), yesNo(all.median() <= limit)
		}
		rows = append(rows, []string{what, "ms", number(all.median()), number(all.most()), target, met, fmt.Sprint(len(all))})
	}
	add("the first cycle, in which all nodes are new", s.first, noTarget)
	add("a cycle in which nothing changed", s.unchanged, maxIdleCycle)
	add("a cycle in which a node changed", s.changed, maxCycle)
	add("cycles at the beginning of a rollout", s.rollout, noTarget)
	size := number(float64(s.largest) / 1000)
	rows = append(rows,
		[]string{"largest value (`" + s.key + "`)", "KB", size, size, "≤ " + number(maxValue), yesNo(s.largest <= maxValue*1000), "1"},
		[]string{"all values", "KB", number(float64(s.bytes) / 1000), "–", "–", "–", "1"},
		[]string{"orchestrator's RSS", "MB", number(s.rss), number(s.rss), "≤ " + number(maxMemory), yesNo(s.rss <= maxMemory), "1"})
	return layout(rows)
}

func (d *dashboardResult) table() string {
	rows := [][]string{{"what", "unit", "p50", "longest", "target", "met", "n"}}
	times := func(what string, all samples, limit float64) {
		rows = append(rows, []string{what, "ms", number(all.median()), number(all.most()), "longest ≤ " + number(limit), yesNo(all.most() <= limit), fmt.Sprint(len(all))})
	}
	one := func(what, unit string, v, limit float64) {
		met, target := "–", "–"
		if limit >= 0 {
			target, met = "≤ "+number(limit), yesNo(v <= limit)
		}
		rows = append(rows, []string{what, unit, number(v), "–", target, met, "1"})
	}
	times("first page of a server that has just started", d.first, maxPage)
	times(fmt.Sprintf("a change of a host until all %d tabs have it", d.size.streams), d.reached, maxOnScreen)
	one("requests to Consul per change, one tab", "", d.oneChange, noTarget)
	one(fmt.Sprintf("— the same, %d tabs", d.size.streams), "", d.manyChange, changeSlack*d.oneChange)
	idle := d.size.idle.Round(time.Second)
	one(fmt.Sprintf("requests to Consul in %s without a change, one tab", idle), "", d.oneIdle, noTarget)
	one(fmt.Sprintf("— the same, %d tabs", d.size.streams), "", d.manyIdle, noTarget)
	one(fmt.Sprintf("RSS of the server, growth by %d tabs", d.size.streams), "MB", max(0, d.rssAfter-d.rssBefore), maxStreamsMB)
	one("RSS of the server", "MB", d.rssAfter, noTarget)
	return layout(rows)
}
