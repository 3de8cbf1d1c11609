package orchestrator

import (
	"context"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
)

// Probe reports whether a node that gossip does not hear can be reached all the
// same. It returns nil when the node answered.
type Probe interface {
	Probe(ctx context.Context, address string) error
}

// TCPProbe connects to a TCP port. That something accepts the connection is an
// answer; a refusal is not an answer: the node's Consul agent does not run.
type TCPProbe struct{ Port int }

// Probe implements the interface.
func (p TCPProbe) Probe(ctx context.Context, address string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(p.Port)))
	if err != nil {
		return err
	}
	return conn.Close()
}

// Bounds of probing.
const (
	probeTimeout  = time.Second
	probesAtOnce  = 256
	probeAllIn    = 3 * time.Second  // in one cycle; the others wait for the next
	probeDownEach = 30 * time.Second // how often a node that is down is probed
	gossipPort    = 8301
)

// prober probes the nodes that gossip does not reach.
type prober struct {
	probe     Probe
	client    *consul.Client
	lastProbe map[string]time.Time // nodes that are down → when they were probed last
}

func newProber(p Probe, c *consul.Client) *prober {
	return &prober{probe: p, client: c, lastProbe: map[string]time.Time{}}
}

// probeTarget is a node that gossip does not reach.
type probeTarget struct {
	node, address string
	before        cluster.Liveness
}

// probeTargets are the members that gossip does not reach.
func probeTargets(s *cluster.State, before View) []probeTarget {
	var all []probeTarget
	for _, node := range s.Nodes() {
		if h := s.Hosts[node]; h.Condition.NeedsProbe() {
			all = append(all, probeTarget{node, h.Address, before.Nodes[node].Life})
		}
	}
	return all
}

// run probes the targets, those first that were up last; more reports that the
// time was too short for some of them, whose probes are pending.
func (l *prober) run(ctx context.Context, all []probeTarget, now time.Time) (results map[string]cluster.ProbeResult, more bool, err error) {
	results = make(map[string]cluster.ProbeResult, len(all))
	var list []probeTarget
	known := map[string]time.Time{}
	for _, p := range all {
		if at, ok := l.lastProbe[p.node]; ok && p.before == cluster.LivenessDown && now.Sub(at) < probeDownEach {
			results[p.node] = cluster.ProbeResult{Probe: cluster.ProbeFailed}
			known[p.node] = at
			continue
		}
		results[p.node] = cluster.ProbeResult{Probe: cluster.ProbePending, Before: p.before}
		list = append(list, p)
	}
	l.lastProbe = known
	if len(list) == 0 {
		return results, false, nil
	}
	if err := l.prepare(ctx); err != nil {
		return nil, false, err
	}
	slices.SortStableFunc(list, func(a, b probeTarget) int { return rank(a.before) - rank(b.before) })
	var mu sync.Mutex
	within, cancel := context.WithTimeout(ctx, probeAllIn)
	defer cancel()
	g := errgroup.Group{}
	g.SetLimit(probesAtOnce)
	for _, p := range list {
		g.Go(func() error {
			if within.Err() != nil {
				mu.Lock()
				defer mu.Unlock()
				more = true
				return nil
			}
			one, cancel := context.WithTimeout(within, probeTimeout)
			defer cancel()
			err := l.probe.Probe(one, p.address)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				results[p.node] = cluster.ProbeResult{Probe: cluster.ProbeAnswered}
			case within.Err() != nil: // it had less than its time
				more = true
			default:
				results[p.node] = cluster.ProbeResult{Probe: cluster.ProbeFailed}
				l.lastProbe[p.node] = now
			}
			return nil
		})
	}
	_ = g.Wait() // they return nothing
	return results, more, ctx.Err()
}

func rank(before cluster.Liveness) int {
	return slices.Index([]cluster.Liveness{cluster.LivenessUp, "", cluster.LivenessSuspect, cluster.LivenessDown}, before)
}

// prepare finds out on which port agents gossip: all of them on the same.
func (l *prober) prepare(ctx context.Context) error {
	if l.probe != nil {
		return nil
	}
	self, err := l.client.AgentSelf(ctx)
	if err != nil {
		return err
	}
	port := gossipPort
	if n, ok := self.DebugConfig["SerfPortLAN"].(float64); ok && n > 0 {
		port = int(n)
	}
	l.probe = TCPProbe{Port: port}
	return nil
}
