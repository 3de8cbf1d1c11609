package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/agent"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	jorcconsul "github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/converge"
)

// fleet is many agents in this process, and the simulation of the rest of their
// hosts. All nodes are in one cluster.
type fleet struct {
	size    int
	dir     string
	consul  *consul
	alone   *consul // a Consul without a fleet, to compare with
	gossip  *gossip
	traffic *traffic
	client  *jorcconsul.Client // an operator's
	outages *maintenances

	hosts   []*agent.Simulated
	clients []*jorcconsul.Client // theirs
	stop    context.CancelFunc
	running sync.WaitGroup
	mu      sync.Mutex
	ended   error // of a host that ended unexpectedly
}

const (
	fleetPrefix  = "jorc"
	fleetCluster = "default"
)

func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

// hostIP is the loopback address of a host.
func hostIP(i int) net.IP { return net.IPv4(127, 0, byte(1+i/250), byte(1+i%250)) }

// newFleet starts two Consul servers, and makes all nodes members of one of them.
// There are no agents yet.
func (b *bench) newFleet(ctx context.Context, size int) (*fleet, error) {
	f := &fleet{size: size, traffic: &traffic{}}
	if b.scale.look.requests {
		f.traffic.kinds = &kinds{}
	}
	var err error
	if f.dir, err = b.place("fleet"); err != nil {
		return nil, err
	}
	if f.alone, err = b.startConsul(ctx, 0); err != nil {
		return nil, err
	}
	if f.consul, err = b.startConsul(ctx, 0); err != nil {
		f.close()
		return nil, err
	}
	if err := f.prepare(ctx); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *fleet) prepare(ctx context.Context) error {
	host, _, err := net.SplitHostPort(f.consul.http)
	if err != nil {
		return err
	}
	if f.client, err = jorcconsul.New(config.Consul{Address: f.consul.http}); err != nil {
		return err
	}
	f.outages = &maintenances{api: f.consul.api, begins: map[string]time.Time{}, lifts: map[string]time.Time{}}
	if f.gossip, err = startGossip(ctx, host+":8301", f.size); err != nil {
		return err
	}
	if err := f.registered(ctx); err != nil {
		return err
	}
	if _, err := cluster.New(f.client, fleetPrefix, fleetCluster).Init(ctx, cluster.InitOptions{}); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i := range f.size {
		g.Go(func() error { return f.consul.api.putJSON(ctx, "/v1/catalog/register", presence(i)) })
	}
	return g.Wait()
}

// registered returns when Consul has all members in its catalog.
func (f *fleet) registered(ctx context.Context) error {
	for {
		nodes, _, err := f.client.CatalogNodes(ctx, jorcconsul.Query{})
		if err == nil && len(nodes) > f.size {
			return nil
		}
		if sleep(ctx, 100*time.Millisecond); ctx.Err() != nil {
			return fmt.Errorf("%d nodes are in the catalog, %w", len(nodes), errors.Join(context.Cause(ctx), err))
		}
	}
}

// presence is what an agent registers with its host's Consul agent.
func presence(i int) map[string]any {
	node := nodeName(i)
	return map[string]any{
		"Node": node, "Address": "127.0.0.1", "SkipNodeUpdate": true,
		"Service": map[string]any{"ID": "jorc", "Service": "jorc"},
		"Check": map[string]any{
			"Node": node, "CheckID": "service:jorc", "Name": "jorc agent", "ServiceID": "jorc", "ServiceName": "jorc",
			"Status": "passing", "Output": "jorc agent is running",
		},
	}
}

// startsAtOnce is how many agents start at the same time.
const startsAtOnce = 16

// start runs an agent for every node and returns when each has read from Consul
// what it needs to begin.
func (f *fleet) start(ctx context.Context) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	f.stop = stop
	f.hosts, f.clients = make([]*agent.Simulated, f.size), make([]*jorcconsul.Client, f.size)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(startsAtOnce)
	for i := range f.size {
		g.Go(func() (err error) {
			if f.hosts[i], f.clients[i], err = f.host(i); err != nil {
				return err
			}
			f.running.Go(func() { f.over(f.hosts[i].Run(running), running) })
			return f.await(ctx, f.hosts[i:i+1], func(s converge.Status) bool {
				return s.Phase != "" && s.Phase != converge.PhaseStarting
			})
		})
	}
	return g.Wait()
}

func (f *fleet) over(err error, running context.Context) {
	if running.Err() != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = errors.Join(f.ended, fmt.Errorf("an agent ended: %w", err))
}

func (f *fleet) host(i int) (*agent.Simulated, *jorcconsul.Client, error) {
	dir := filepath.Join(f.dir, nodeName(i))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, err
	}
	conf := config.Consul{Address: f.consul.http}
	client, err := jorcconsul.New(conf, f.traffic.from(hostIP(i)))
	if err != nil {
		return nil, nil, err
	}
	nothing := func(name string) config.Workflow {
		return config.Workflow{Name: name, Tasks: []config.Task{{Name: "nothing", Command: []string{"/bin/true"}}}}
	}
	host, err := agent.Simulate(agent.SimulatedOptions{Client: client, Maintenance: maintenance{f.outages, nodeName(i)}, Config: &config.Config{
		Node: nodeName(i), Prefix: fleetPrefix, Cluster: fleetCluster, StateDir: dir, VersionFile: filepath.Join(dir, "version"),
		Consul: conf, DNS: config.DNS{Addr: f.consul.dns}, Member: &config.Member{Zone: fmt.Sprintf("rack-%d", i/40)},
		Static:    &config.Static{Workflow: "converge", Validation: "validate"},
		Workflows: []config.Workflow{nothing("converge"), nothing("validate")},
	}})
	return host, client, err
}

// watches returns the median number of an agent's open blocking queries: leaders have
// more than other agents.
func (f *fleet) watches() int {
	var all []int
	for _, c := range f.clients {
		all = append(all, c.Stats().Watches)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// await returns when all hosts are as wanted.
func (f *fleet) await(ctx context.Context, hosts []*agent.Simulated, wanted func(converge.Status) bool) error {
	for done := 0; ; {
		for done < len(hosts) && wanted(hosts[done].Convergence()) {
			done++
		}
		if done == len(hosts) {
			return nil
		}
		f.mu.Lock()
		ended := f.ended
		f.mu.Unlock()
		if sleep(ctx, 10*time.Millisecond); ctx.Err() != nil || ended != nil {
			s := hosts[done].Convergence()
			return fmt.Errorf("%d of %d agents are there; the next is %s: %s %v: %w", done, len(hosts), s.Phase, s.Detail, s.Trouble,
				errors.Join(context.Cause(ctx), ended))
		}
	}
}

// converged returns when all hosts run version and have reported it.
func (f *fleet) converged(ctx context.Context, version string) error {
	return f.await(ctx, f.hosts, func(s converge.Status) bool {
		return s.Phase == converge.PhaseConverged && s.Version == version && s.Reported
	})
}

// kinds are the requests of the agents since it was last called, where they are
// counted by kind.
func (f *fleet) kinds() map[string]kindTally {
	if f.traffic.kinds == nil {
		return nil
	}
	return f.traffic.kinds.take()
}

func (f *fleet) close() {
	if f.stop != nil {
		f.stop()
		f.running.Wait()
	}
	if f.gossip != nil {
		f.gossip.close()
	}
	for _, c := range []*consul{f.consul, f.alone} {
		if c != nil {
			c.proc.kill()
		}
	}
}
