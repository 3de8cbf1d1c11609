package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/agent"
	"github.com/jorc/jorc/internal/config"
	jorcconsul "github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/converge"
)

// hostFlag makes this program run agents of a fleet for another one, which asks for
// it with JSON-RPC on the descriptors hostRequests and hostAnswers, a line for each
// message. The process ends when the requests end.
const (
	hostFlag     = "-scale-host"
	hostRequests = 3
	hostAnswers  = 4
)

// runHost serves requests until their end.
func runHost(ctx context.Context) error {
	if _, err := raiseFileLimit(); err != nil {
		return err
	}
	if err := seeOwnProcesses(); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	h := &Host{ctx: ctx, stop: stop, traffic: &traffic{}}
	defer h.close()
	server := rpc.NewServer()
	if err := server.RegisterName("Host", h); err != nil {
		return err
	}
	requests := descriptors{os.NewFile(hostRequests, "requests"), os.NewFile(hostAnswers, "answers")}
	server.ServeCodec(jsonrpc.NewServerCodec(requests))
	return nil
}

// descriptors are both directions of a connection.
type descriptors struct{ in, out *os.File }

func (d descriptors) Read(p []byte) (int, error)  { return d.in.Read(p) }
func (d descriptors) Write(p []byte) (int, error) { return d.out.Write(p) }
func (d descriptors) Close() error                { return errors.Join(d.in.Close(), d.out.Close()) }

// Host runs agents of a fleet, and simulates the rest of their hosts. Its exported methods
// are requests of the program that measures; that one makes one request at a time.
type Host struct {
	ctx     context.Context // of the agents; ends with the first of them that ends unexpectedly
	stop    context.CancelCauseFunc
	start   HostStart
	traffic *traffic
	outages *maintenances

	agents    []*agent.Simulated
	clients   []*jorcconsul.Client // theirs
	followers []*follower          // of the stage; none before Stage
	profile   string               // what the names of the profile's files begin with; empty: none is written
	profiled  *os.File
	running   sync.WaitGroup
}

// None are the arguments, or the results, of requests without.
type None struct{}

// HostStart says which agents a host process runs.
type HostStart struct {
	Task         time.Duration // of the workflow that brings a version
	First, Count int           // number of the first node, and how many
	AtOnce       int           // so many start at the same time
	Consul, DNS  string        // addresses
	Dir          string        // for the state directories
	Kinds        bool          // count requests by kind
}

// Start runs the agents and returns when each has read from Consul what it needs to
// begin.
func (h *Host) Start(s HostStart, _ *None) error {
	h.start = s
	if s.Kinds {
		h.traffic.kinds = &kinds{}
	}
	h.outages = newMaintenances(h.ctx, s.Consul)
	h.agents, h.clients = make([]*agent.Simulated, s.Count), make([]*jorcconsul.Client, s.Count)
	g, ctx := errgroup.WithContext(h.ctx)
	g.SetLimit(s.AtOnce)
	for i := range s.Count {
		g.Go(func() (err error) {
			if h.agents[i], h.clients[i], err = h.agent(s.First + i); err != nil {
				return err
			}
			h.running.Go(func() { h.over(h.agents[i].Run(h.ctx)) })
			return h.await(ctx, h.agents[i:i+1], func(s converge.Status) bool {
				return s.Phase != "" && s.Phase != converge.PhaseStarting
			})
		})
	}
	return g.Wait()
}

// over ends the other agents, too.
func (h *Host) over(err error) { h.stop(fmt.Errorf("an agent ended: %w", err)) }

// agent returns the agent of a node.
func (h *Host) agent(i int) (*agent.Simulated, *jorcconsul.Client, error) {
	dir := filepath.Join(h.start.Dir, nodeName(i))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, err
	}
	conf := config.Consul{Address: h.start.Consul}
	client, err := jorcconsul.New(conf, h.traffic.from(hostIP(i)))
	if err != nil {
		return nil, nil, err
	}
	nothing := func(name string) config.Workflow {
		return config.Workflow{Name: name, Tasks: []config.Task{{Name: "nothing", Command: []string{"/bin/true"}}}}
	}
	brings := nothing("converge")
	if h.start.Task > 0 {
		brings.Tasks[0].Command = []string{"/bin/sleep", strconv.FormatFloat(h.start.Task.Seconds(), 'f', -1, 64)}
	}
	host, err := agent.Simulate(agent.SimulatedOptions{Client: client, UnwatchedHold: true, Maintenance: maintenance{h.outages, nodeName(i)}, Config: &config.Config{
		Node: nodeName(i), Prefix: fleetPrefix, Cluster: fleetCluster, StateDir: dir, VersionFile: filepath.Join(dir, "version"),
		Consul: conf, DNS: config.DNS{Addr: h.start.DNS}, Member: &config.Member{Zone: fmt.Sprintf("rack-%d", i/40)},
		Static:    &config.Static{Workflow: "converge", Validation: "validate"},
		Workflows: []config.Workflow{brings, nothing("validate"), nothing(runWorkflow)},
	}})
	return host, client, err
}

// runWorkflow is what runs run.
const runWorkflow = "nothing"

// await returns when all of the agents are as wanted.
func (h *Host) await(ctx context.Context, agents []*agent.Simulated, wanted func(converge.Status) bool) error {
	for done := 0; ; {
		for done < len(agents) && wanted(agents[done].Convergence()) {
			done++
		}
		if done == len(agents) {
			return nil
		}
		if sleep(ctx, 10*time.Millisecond); ctx.Err() != nil {
			s := agents[done].Convergence()
			return fmt.Errorf("%d of %d agents are there; the next is %s: %s %v: %w", done, len(agents), s.Phase, s.Detail, s.Trouble, context.Cause(ctx))
		}
	}
}

// Converged returns when all agents run a version and have reported it.
func (h *Host) Converged(version string, _ *None) error {
	return h.await(h.ctx, h.agents, func(s converge.Status) bool {
		return s.Phase == converge.PhaseConverged && s.Version == version && s.Reported
	})
}

// HostCounts are counts of a host process.
type HostCounts struct {
	Asked   tally // of Consul so far
	Watches []int // open blocking queries of each agent
}

// Counts returns the counts up to now.
func (h *Host) Counts(_ None, out *HostCounts) error {
	out.Asked = h.traffic.now()
	for _, c := range h.clients {
		out.Watches = append(out.Watches, c.Stats().Watches)
	}
	return nil
}

// Kinds returns the agents' requests by kind since it was last called.
func (h *Host) Kinds(_ None, out *map[string]kindTally) error {
	*out = map[string]kindTally{} // JSON-RPC has no empty result
	if h.traffic.kinds != nil {
		maps.Copy(*out, h.traffic.kinds.take())
	}
	return nil
}

// Outages returns what maintenance mode was used for since it was last called.
func (h *Host) Outages(_ None, out *Outages) (err error) {
	*out, err = h.outages.take()
	return err
}

// Memory returns the resident set of the process, in MB, without what the garbage
// collector could give back.
func (h *Host) Memory(_ None, out *float64) (err error) {
	runtime.GC()
	debug.FreeOSMemory()
	self := &process{name: "bench", pid: syscall.Getpid()}
	*out, _, err = self.memory()
	return err
}

// Profile begins to profile the process. The next call, with an empty name, writes
// files whose names begin with that of the first.
func (h *Host) Profile(name string, _ *None) (err error) {
	if name != "" {
		h.profile = name
		h.profiled, err = beginProfile(name)
		return err
	}
	return endProfile(h.profile, h.profiled)
}

// errStopped ends the agents.
var errStopped = errors.New("the measurement has ended")

func (h *Host) close() {
	h.stop(errStopped)
	h.running.Wait()
	if h.outages != nil {
		h.outages.writing.Wait()
	}
}
