package main

import (
	"fmt"
	"strings"
	"time"
)

func (r *scaleReport) markdown() string {
	var b strings.Builder
	b.WriteString("# Scale\n\nWritten by `make bench-scale`; do not edit.\n\n")
	if r.Quick {
		b.WriteString("**A quick run: small fleets, nothing to quote.**\n\n")
	}
	b.WriteString(r.Machine.markdown())
	fmt.Fprintf(&b, "The run took %s. All agents, Consul and the orchestrator shared the machine: times are those of a busy\n"+
		"processor and vary with it, as conflicts do. Other counts hardly vary. The ratio is the largest fleet's\n"+
		"figure divided by the smallest's.\n\n", r.Took.Round(time.Second))
	if len(r.Fleets) > 0 {
		b.WriteString("## A version for all nodes at once\n\n`jorc update trigger VERSION`, without a policy; each node runs a workflow and a validation of one task that does nothing.\n\n")
		b.WriteString(r.table(versionRows()))
		fmt.Fprintf(&b, "\n## Idle\n\nNothing changes for %s.\n\n", r.Fleets[0].idle.took.Round(time.Second))
		b.WriteString(r.table(idleRows()))
		fmt.Fprintf(&b, "\n## A rollout\n\n`jorc update trigger VERSION --max-parallel %s`, the same tasks, and a separate jorc that orchestrates.\n\n", parallel)
		b.WriteString(r.table(rolloutRows()))
		b.WriteString(hardestCase)
	}
	if s := r.Stored; s != nil {
		fmt.Fprintf(&b, "\n## The orchestrator alone\n\n%d nodes in KV, catalog and gossip, without agents.\n\n", s.nodes)
		b.WriteString(s.table())
	}
	b.WriteString(scaleMeasured)
	b.WriteString(r.onPaper())
	return b.String()
}

const hardestCase = `
Tasks that take no time are the hardest case: the orchestrator and Consul are all that a host waits for. A node of a larger fleet waits longer for its
grant here, and its blocking queries are asked again meanwhile, after 2, 4, 8 seconds and so on (docs/adr/0003-growing-waits.md).
`

const scaleMeasured = `
## Method

- The agents run the product's code: ` + "`agent.Simulate`" + ` is a host's part in its cluster (membership, elections, runs, convergence, grants)
  without services and templates. Each has a Consul client with connections of its own from an address of its own in
  127.0.0.0/16, and a state directory. All run in one process; the RSS of an agent is the growth of that process divided by the agents.
- State directories are in memory. Hosts have a disk each; a thousand on the one disk of this machine would measure how many fsyncs a second
  it can do: some forty for each node and version. With ` + "`-dir DIR`" + ` they are on a disk.
- Consul is real, one server, with its state in memory, without coordinates. In a datacenter each host has a Consul agent, which holds the
  host's connections; here the server does, so its RSS and processor time are more than a real server's.
- The nodes are in the catalog because they gossip: one socket answers for all of them. Their presence check and, during a rollout, their
  maintenance mode are written to the catalog as their Consul agents would: two writes per node, in a line of their own.
- Writes are entries of the Raft log beyond those of a second Consul without a fleet. Conflicts are compare-and-swap operations that another
  writer preceded; they pass through Raft, too, are counted on the wire, and are not among the successful ones.
- A place is free when a node has converged, validated, reported and ended its maintenance; with a limit of n the node that begins as the (i+n)-th
  takes the place of the i-th that ended.
- Reproduce with ` + "`make bench-scale`" + `; ` + "`go run ./bench -scale -quick`" + ` takes a minute or two, ` + "`-fleets N,N`" + ` picks sizes,
  ` + "`-parts PARTS`" + ` parts, ` + "`-requests`" + ` lists requests by kind.
`

// published are figures of Consul's makers.
const (
	publishedWrites = 3780 // KV puts a second
	publishedReads  = 7525 // KV gets a second, default consistency, one client
	publishedAgents = 5000 // recommended in a datacenter
	onPaper         = 50_000
)

// onPaper extrapolates the figures to a fleet that was not measured.
func (r *scaleReport) onPaper() string {
	if len(r.Fleets) == 0 {
		return ""
	}
	f := r.Fleets[len(r.Fleets)-1]
	writes, reads := per(f, f.change.ok()), per(f, f.change.asked.reads)
	rolled := per(f, f.rollout.ok()+f.rollout.asked.conflicts)
	seconds := func(each, rate float64) string { return number(each * onPaper / rate) }
	cycle := "–"
	if r.Stored != nil {
		cycle = number(r.Stored.unchanged.median() * onPaper / float64(r.Stored.nodes) / 1000)
	}
	return fmt.Sprintf(`
## %d nodes, on paper

Extrapolated, not measured. What Consul's makers publish:

- %d KV puts and %d gets a second on three servers of 8 cores with SSDs, from one client (hashicorp/consul, `+"`bench/results-0.7.1.md`"+`;
  old, and newer machines do more). They publish no figure for queries that block.
- At most %d agents in one datacenter, for the sake of gossip and of how long an outage takes to recover from; a file limit of twice the number
  of clients (developer.hashicorp.com/consul/docs/manage/scale). They have shown 10,000 nodes with five servers (hashicorp.com/cgsb).

With the counts of the largest fleet above, where they stay per node:

| what | for %d nodes |
|---|---|
| a version for all nodes: writes, at the published rate | %s s |
| the same: reads | %s s |
| a rollout: all that passes through Raft, conflicts included | %s s |
| the orchestrator's cycle in which nothing changed, in proportion | %s s |
| queries that block | about %d |

What breaks first, in this order:

1. **Gossip and recovery**, at %d agents by Consul's own advice. It is the reason to stop there, whatever jorc does.
2. **Full reads.** A new orchestrator reads every member's and node's document once, some 1 KB each: 50 MB, in pieces, at each change of the orchestrator.
3. **A version without a policy** wakes all agents in the same moment: at the published rate of reads the last comes
   minutes after the first. A policy spreads them.
4. **The orchestrator** is one process: fifty grants go into a transaction, and each report wakes it once.
5. **The cycle** grows in proportion: the interval of 10 s holds until a cycle takes about that long.

What to do: several clusters, each in a Consul datacenter of its own of at most %d nodes, so that %d nodes are %d of them, with the same version
triggered in one after the other; batches or zones in each; windows long enough: at 10%% in parallel and ten minutes a node, any fleet takes 100 minutes,
and jorc's own work is a small part of it.
`, onPaper, publishedWrites, publishedReads, publishedAgents, onPaper,
		seconds(writes, publishedWrites), seconds(reads, publishedReads), seconds(rolled, publishedWrites), cycle, onPaper*f.watches,
		publishedAgents, publishedAgents, onPaper, onPaper/publishedAgents)
}
