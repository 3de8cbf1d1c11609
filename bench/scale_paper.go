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
	fmt.Fprintf(&b, "The run took %s. All agents, their Consul agents, the Consul server and the orchestrator shared the machine: times are\n"+
		"those of a busy processor and vary with it, as conflicts do. Other counts hardly vary. The agents yield to the others (nice "+hostNice+"),\n"+
		"which have processors of their own in a fleet. The ratio is the largest fleet's figure divided by the smallest's.\n", r.Took.Round(time.Second))
	section := func(part, title, about string, rows []scaleRow) {
		if len(r.Fleets) > 0 && r.scale.look.has(part) {
			fmt.Fprintf(&b, "\n## %s\n\n%s\n\n%s", title, about, r.table(rows))
		}
	}
	section("change", "A version for all nodes at once", "`jorc update trigger VERSION`, without a policy; each node runs a workflow and a validation of one task that does nothing.", versionRows())
	section("idle", "Idle", fmt.Sprintf("Nothing changes for %s.", r.scale.idle), idleRows())
	section("rollout", "A rollout", "`jorc update trigger VERSION --max-parallel "+parallel.String()+"`, the same tasks, and a separate jorc that orchestrates."+hardestCase, rolloutRows())
	section("run", "A run", "`jorc cluster run "+runWorkflow+" --wait` on all members: one task that does nothing. An answer is the end of the task as the agent reports it, from the\n"+
		"moment the command asked; the last answer is there when the command ends.", runRows())
	section("stage", "Staged configuration", fmt.Sprintf("The same file of a stage changes on all hosts, `max_parallel = %q`; the checks pass at once.", fleetStage.MaxParallel), stageRows())
	section("storm", "Consul's servers return", "The Consul server is frozen, and thaws; 10 s later a version is triggered. Another program asks for a key all the time.", stormRows())
	if d := r.Dashboard; d != nil {
		fmt.Fprintf(&b, "\n## The dashboard\n\n`jorc ui` beside %d live agents, with %d open tabs.\n\n", d.hosts, d.size.streams)
		b.WriteString(d.table())
	}
	if s := r.Stored; s != nil {
		fmt.Fprintf(&b, "\n## The orchestrator alone\n\n%d nodes in KV, catalog and gossip, without agents.\n\n", s.nodes)
		b.WriteString(s.table())
	}
	b.WriteString(r.method())
	if r.scale.look.parts == "" {
		b.WriteString(r.onPaper())
		b.WriteString(r.records())
	}
	return b.String()
}

const hardestCase = `

Tasks that take no time are the hardest case: the orchestrator and Consul are all that a host waits for. A node of a larger fleet waits longer for its
grant here, and its blocking queries are asked again meanwhile, after 2, 4, 8 seconds and so on (docs/adr/0003-growing-waits.md).`

// method says how the figures were made.
func (r *scaleReport) method() string {
	return fmt.Sprintf(`
## Method

- The agents run the product's code: `+"`agent.Simulate`"+` is a host's part in its cluster (membership, elections, runs, convergence, grants,
  stages) without services and templates. Each has a Consul client with connections of its own from an address of its own in
  127.0.0.0/16, and a state directory. They run in processes of at most %d agents; the RSS of an agent is the growth of its process divided
  by the agents.
- State directories are in memory. Hosts have a disk each; a thousand on the one disk of this machine would measure how many fsyncs a second
  it can do: some forty for each node and version. With `+"`-dir DIR`"+` they are on a disk.
- Consul is real: one server, with its state in memory, without coordinates, and in front of each thousand hosts a Consul agent that
  forwards to it. A datacenter has one on each host: these hold the connections and queries of up to a thousand hosts, and the memory and
  processor time of theirs is not what a host's Consul agent needs. The orchestrator, the dashboard and the commands use the server.
- The nodes are in the catalog because they gossip: one socket answers for all of them. Their presence check and, during a rollout, their
  maintenance mode are written to the catalog as their Consul agents would: two writes per node, in a line of their own. A Consul agent
  answers when it has changed its own state, and writes that to the catalog afterwards; so does the measuring program.
- Writes are entries of the Raft log beyond those of a second Consul without a fleet, and beyond the request itself (a version is triggered).
  Conflicts are compare-and-swap operations that another writer preceded; they pass through Raft, too, are counted on the wire, and are not
  among the successful ones.
- The first version is triggered %s after the agents' start: until then blocking queries are repeated after shorter waits (docs/adr/0003-growing-waits.md).
- A place is free when a node has converged and validated, and ends its maintenance: its report follows and is a part of the time. With a limit
  of n the node that begins as the (i+n)-th takes the place of the i-th that ended.
- The floor of that is measured before the agents start: as many clients in the same processes, behind the same Consul agents, wait for an
  offer, accept it, begin maintenance mode, run the two programs, end maintenance mode and report; a program reads the reports of those that are
  at work and offers. Its transactions have the conditions of jorc's and values of about their size. Nothing is decided, no check is watched and no file is written.
- Staged content reaches an agent from the measuring program, as a template would bring it; the file is replaced, the grant accepted and the
  checks read by the product's code. With min_healthy above zero each grant takes that much longer.
- A tab is a stream of the dashboard's state. A change is a report of a host; the next one follows when all tabs have it.
- Reproduce with `+"`make bench-scale`; `go run ./bench -scale -quick`"+` takes a minute or two, `+"`-fleets N,N`"+` picks sizes,
  `+"`-parts PARTS`"+` parts, `+"`-requests`"+` lists requests by kind, `+"`-profiles DIR`"+` writes profiles.
`, r.scale.perHost, r.scale.settled)
}

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
	seconds := func(count, rate float64) string { return number(per(f, count) * onPaper / rate) }
	share := func(v float64, of int) string { return number(v * onPaper / float64(of)) }
	through := func(w window) float64 { return w.ok() + w.asked.Conflicts }
	cycle, read, memory := "–", "–", "–"
	if s := r.Stored; s != nil {
		cycle, read, memory = share(s.unchanged.median()/1000, s.nodes), share(float64(s.bytes)/1e6, s.nodes), share(s.rss, s.nodes)
	}
	return fmt.Sprintf(`
## %d nodes, on paper

Extrapolated from %d live agents, not measured. What Consul's makers publish:

- %d KV puts and %d gets a second on three servers of 8 cores with SSDs, from one client (hashicorp/consul, `+"`bench/results-0.7.1.md`"+`;
  old, and newer machines do more). They publish no figure for queries that block.
- At most %d client agents in one datacenter, for the sake of gossip and of how long an outage takes to recover from; a file limit of twice
  the number of clients (see the records below).

With the counts of the largest fleet above, where they stay per node:

| what | for %d nodes |
|---|---|
| a version for all nodes: writes, at the published rate | %s s |
| the same: reads | %s s |
| a rollout: all that passes through Raft, conflicts included | %s s |
| a run on all nodes: all that passes through Raft | %s s |
| queries that block at the server | about %d |
| RSS of the Consul server, in proportion | %s MB |
| all values, which a new orchestrator reads once | %s MB |
| the orchestrator's cycle in which nothing changed, in proportion | %s s |
| the orchestrator's RSS, in proportion | %s MB |

What breaks first, in this order:

1. **Gossip and recovery**, at %d agents by Consul's own advice. It is the reason to stop there, whatever jorc does.
2. **The servers' memory.** %d queries of an agent block at a server each; followers can hold them (stale reads), the leader alone cannot.
3. **A version without a policy** wakes all agents in the same moment: at the published rates of reads and writes the last has reported
   a minute after the first has begun. A policy spreads them.
4. **Full reads.** A new orchestrator reads every member's and node's document once, in pieces, at each change of the orchestrator.
5. **The orchestrator** is one process: fifty grants go into a transaction, and its cycle grows in proportion: the interval of 10 s holds
   until a cycle takes about that long.

What to do: several clusters, each in a Consul datacenter of its own of at most %d nodes, so that %d nodes are %d of them, with the same version
triggered in one after the other; batches or zones in each; windows long enough: at 10%% in parallel and ten minutes a node, any fleet takes 100 minutes,
and jorc's own work is a small part of it.
`, onPaper, f.size, publishedWrites, publishedReads, publishedAgents, onPaper,
		seconds(f.change.ok(), publishedWrites), seconds(f.change.asked.Reads, publishedReads), seconds(through(f.rollout.window), publishedWrites),
		seconds(through(f.run.window), publishedWrites), onPaper*f.watches, share(f.consul, f.size), read, cycle, memory,
		publishedAgents, f.watches, publishedAgents, onPaper, onPaper/publishedAgents)
}

// records are what others have published, beside the largest fleet.
func (r *scaleReport) records() string {
	if len(r.Fleets) == 0 {
		return ""
	}
	f := r.Fleets[len(r.Fleets)-1]
	rate := func(took time.Duration) string {
		if took <= 0 {
			return "not measured"
		}
		return fmt.Sprintf("%s s for %d hosts, %s a second", number(took.Seconds()), f.size, number(float64(f.size)/took.Seconds()))
	}
	return "\n## Published records\n\nEach was made on other machines and measures something else. The last column says what.\n\n" + layout([][]string{
		{"record", "published", "nearest here", "what is not comparable"},
		{
			"Consul, global scale benchmark [1]", "10,000 virtual machines, 172,000 service instances: all have an update within a second, five servers",
			"a version for all: " + rate(f.change.took),
			"a read alone: nothing runs on the host and nothing is reported; here each host runs two tasks and writes twice, and all hosts share two cores with one server",
		},
		{
			"Nomad, two million containers [2]", "6,100 hosts in ten regions: 22 min 14 s, nearly 1,500 containers a second, three schedulers",
			"a rollout: " + rate(f.rollout.took),
			"containers that a scheduler places, 330 on a host; here one version on each host, one tenth of them at a time, with maintenance mode and validation",
		},
		{
			"Choria, 50,000 nodes [3]", "one broker: an RPC to all nodes in about 16 s, some 3,000 nodes a second; a later client: 48,597 answers in 1.8 s [4]",
			"a run: " + rate(f.run.took),
			"messages in memory that are lost with their broker; here each request and answer is in Raft, survives each process, and is known of hosts that are down",
		},
		{
			"Consul's advice [5] [6]", "at most 5,000 client agents in a datacenter; customers run tens of thousands",
			fmt.Sprintf("%d nodes in the gossip and the catalog", f.size),
			"one socket answers the gossip here, and the network has no losses",
		},
	}) + publishedSources
}

const publishedSources = `
1. <https://www.hashicorp.com/cgsb>
2. <https://www.hashicorp.com/c2m>
3. <https://www.devco.net/archives/2017/09/19/load-testing-choria.php>; real nodes: <https://www.devco.net/archives/2018/03/07/50-000-choria-node-network.php>
4. <https://gist.github.com/ripienaar/2d9abd29177042d1dfb923277f72486e>
5. <https://developer.hashicorp.com/validated-designs/consul-solution-design-guides-consul-enterprise-self-hosted/sizing-guidlines>
6. <https://developer.hashicorp.com/consul/docs/manage/scale>
`
