package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/jorc/jorc/internal/config"
	jorcconsul "github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest/gossip"
	"github.com/jorc/jorc/internal/fleet"
)

// simulated is many agents in processes of their own, and the simulation of the rest of
// their hosts. All nodes are in one cluster.
type simulated struct {
	size       int
	dir        string
	consul     *consul
	alone      *consul // a Consul without a fleet, to compare with
	gossip     *gossip.Pool
	client     *jorcconsul.Client // an operator's
	operator   *traffic           // of client
	hosts      []*hostProcess     // none before startHosts
	clients    []*consul          // the Consul agents in front of them
	countKinds bool               // the agents' requests are counted by kind
	task       time.Duration      // see scaleLook
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
func (b *bench) newFleet(ctx context.Context, size int) (*simulated, error) {
	f := &simulated{size: size, operator: &traffic{}, countKinds: b.scale.look.requests, task: b.scale.look.task}
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

func (f *simulated) prepare(ctx context.Context) error {
	var err error
	if f.client, err = jorcconsul.New(config.Consul{Address: f.consul.http}, f.operator.from(net.IPv4(127, 0, 0, 1))); err != nil {
		return err
	}
	ip, err := freeIP()
	if err != nil {
		return err
	}
	members := make([]gossip.Member, f.size)
	for i := range members {
		members[i] = gossip.Client(nodeName(i), i)
	}
	if f.gossip, err = gossip.Start(ctx, f.consul.host()+":8301", ip, members); err != nil {
		return err
	}
	if err := f.registered(ctx); err != nil {
		return err
	}
	if _, err := fleet.New(f.client, fleetPrefix, fleetCluster).Init(ctx, fleet.InitOptions{}); err != nil {
		return err
	}
	for first := 0; first < f.size; first += txnOps / 2 {
		var ops []any
		for i := first; i < min(first+txnOps/2, f.size); i++ {
			ops = append(ops, presence(i)...)
		}
		if err := f.consul.api.putJSON(ctx, "/v1/txn", ops); err != nil {
			return err
		}
	}
	return nil
}

// registered returns when Consul has all members in its catalog.
func (f *simulated) registered(ctx context.Context) error {
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

// presence is what an agent registers with its host's Consul agent: two operations of a
// transaction.
func presence(i int) []any {
	node := nodeName(i)
	return []any{
		map[string]any{"Service": map[string]any{"Verb": "set", "Node": node, "Service": map[string]any{"ID": "jorc", "Service": "jorc"}}},
		map[string]any{"Check": map[string]any{"Verb": "set", "Check": map[string]any{
			"Node": node, "CheckID": "service:jorc", "Name": "jorc agent", "ServiceID": "jorc", "ServiceName": "jorc",
			"Status": "passing", "Output": "jorc agent is running",
		}}},
	}
}

// startsAtOnce is how many agents start at the same time.
const startsAtOnce = 16

// start runs an agent for every node and returns when each has read from Consul
// what it needs to begin.
func (f *simulated) start(ctx context.Context) error {
	_, err := everywhere[None](ctx, f, "Start", func(h *hostProcess) any {
		return HostStart{
			Task:  f.task,
			First: h.first, Count: h.count, AtOnce: max(1, startsAtOnce/len(f.hosts)),
			Consul: h.consul.http, DNS: f.consul.dns, Dir: f.dir, Kinds: f.countKinds,
		}
	})
	return err
}

// converged returns when all hosts run version and have reported it.
func (f *simulated) converged(ctx context.Context, version string) error {
	_, err := everywhere[None](ctx, f, "Converged", same(version))
	return err
}

func (f *simulated) close() {
	for _, h := range f.hosts {
		h.close()
	}
	if f.gossip != nil {
		f.gossip.Close()
	}
	for _, c := range append(f.clients, f.consul, f.alone) {
		if c != nil {
			c.proc.kill()
		}
	}
}

// startHosts starts the processes of the agents, of which none runs yet.
func (b *bench) startHosts(ctx context.Context, f *simulated) error {
	for first := 0; first < f.size; first += b.scale.perHost {
		if first%b.scale.perAgent < b.scale.perHost {
			client, err := b.startHostConsul(ctx, f.consul, first)
			if err != nil {
				return err
			}
			f.clients = append(f.clients, client)
		}
		h := &hostProcess{first: first, count: min(b.scale.perHost, f.size-first), consul: f.clients[len(f.clients)-1]}
		f.hosts = append(f.hosts, h)
		if err := h.launch(b); err != nil {
			return err
		}
	}
	return nil
}
