package orchestrator

import (
	"context"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/view"
)

// Probe tells whether a node that gossip does not hear can be reached all the
// same. It returns nil when the node answered.
type Probe interface {
	Probe(ctx context.Context, address string) error
}

// TCPProbe connects to a TCP port. That something accepts the connection is an
// answer; that it is refused is none: the node's Consul agent does not run.
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

// life judges whether nodes are up.
type life struct {
	probe  Probe
	client *consul.Client
	probed map[string]time.Time // nodes that are down → when they were probed last
}

func newLife(p Probe, c *consul.Client) *life {
	return &life{probe: p, client: c, probed: map[string]time.Time{}}
}

// patient is a node that gossip does not hear.
type patient struct{ node, address, before string }

// judge probes those that gossip does not hear, those first that were up last;
// waiting tells that the time was too short for some of them, which stay what
// they were.
func (l *life) judge(ctx context.Context, sick []patient, now time.Time) (lives map[string]string, waiting bool, err error) {
	lives = make(map[string]string, len(sick))
	var list []patient
	known := map[string]time.Time{}
	for _, p := range sick {
		lives[p.node] = view.Down
		if p.before != "" {
			lives[p.node] = p.before
		}
		if at, ok := l.probed[p.node]; ok && p.before == view.Down && now.Sub(at) < probeDownEach {
			known[p.node] = at
			continue
		}
		list = append(list, p)
	}
	l.probed = known
	if len(list) == 0 {
		return lives, false, nil
	}
	if err := l.prepare(ctx); err != nil {
		return nil, false, err
	}
	slices.SortStableFunc(list, func(a, b patient) int { return rank(a.before) - rank(b.before) })
	var mu sync.Mutex
	all, cancel := context.WithTimeout(ctx, probeAllIn)
	defer cancel()
	g := errgroup.Group{}
	g.SetLimit(probesAtOnce)
	for _, p := range list {
		g.Go(func() error {
			if all.Err() != nil {
				mu.Lock()
				defer mu.Unlock()
				waiting = true
				return nil
			}
			one, cancel := context.WithTimeout(all, probeTimeout)
			defer cancel()
			err := l.probe.Probe(one, p.address)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				lives[p.node] = view.Suspect
			case all.Err() != nil: // it had less than its time
				waiting = true
			default:
				lives[p.node] = view.Down
				l.probed[p.node] = now
			}
			return nil
		})
	}
	_ = g.Wait() // they return nothing
	return lives, waiting, ctx.Err()
}

func rank(before string) int {
	return slices.Index([]string{view.Up, "", view.Suspect, view.Down}, before)
}

// prepare finds out on which port agents gossip: all of them on the same.
func (l *life) prepare(ctx context.Context) error {
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
