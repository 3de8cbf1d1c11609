//go:build linux

// Package fleettest runs a fleet of hosts on one machine for tests: each host
// and each Consul server in a network namespace with an address of its own, on
// one bridge, with TLS, gossip encryption and ACLs that deny by default. It
// injects faults of hosts and networks, and observes the fleet from outside.
// It needs root, ip, iptables and tc.
package fleettest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/consultest"
)

// Fleet is three Consul servers, hosts with a Consul client and a jorc agent,
// and a host with a Consul client only for the operator.
type Fleet struct {
	Servers  []*Server
	Hosts    []*Host
	Operator *Host
	Observer *Observer

	t    testing.TB
	dir  string
	jorc string
	net  *network
	tls  *authority
	acl  acl

	mu     sync.Mutex
	cuts   map[*Machine][]string // whose packets a machine drops
	errors []error               // of goroutines
}

// Options describe a fleet.
type Options struct {
	Hosts []HostSpec
	// Cluster are flags of `jorc cluster init` besides the name.
	Cluster []string
	// Before runs when Consul serves and before the agents start.
	Before func(*Fleet)
}

// HostSpec is one host.
type HostSpec struct {
	Name         string
	Orchestrator bool
	Interval     string // of the cycles of its orchestrator; empty: 2s
	// Boots: its agent sees another boot id after each Boot, as after a reboot. The kernel's clock continues.
	Boots bool
	// Config is HCL for the agent, beside what every agent has. $DIR, $IP, $NAME,
	// $TEMPLATES (the shipped ones) and $SELF, the test's own binary, are replaced.
	Config string
}

// prefix is that of the test clusters' keys.
const prefix = "jorc/default/"

// New starts a fleet and waits until all its agents are ready. All of it is
// removed when the test ends.
func New(t testing.TB, o Options) *Fleet {
	t.Helper()
	begin := time.Now()
	f := &Fleet{t: t, dir: directory(t), jorc: jorcBinary(t), cuts: map[*Machine][]string{}}
	var err error
	if f.tls, err = newAuthority(f.dir); err != nil {
		t.Fatalf("fleettest: certificates: %v", err)
	}
	f.acl = newACL()
	for i := range 3 {
		s := &Server{Machine: f.machine(fmt.Sprintf("server-%d", i+1), i+1)}
		s.owner = s
		f.Servers = append(f.Servers, s)
	}
	f.Operator = f.newHost(HostSpec{Name: "operator"}, 9)
	for i, spec := range o.Hosts {
		f.Hosts = append(f.Hosts, f.newHost(spec, 11+i))
	}
	if f.net, err = newNetwork(f.machines()); err != nil {
		t.Fatalf("fleettest: network: %v", err)
	}
	t.Cleanup(f.close)
	f.must("start Consul's servers", f.each(f.serverMachines(), func(m *Machine) error { return m.owner.(*Server).boot() }))
	f.must("ACLs", f.bootstrapACL())
	f.must("start Consul's clients", f.each(f.hostMachines(), func(m *Machine) error { return m.owner.(*Host).bootConsul() }))
	f.Eventually("Consul's clients to serve", func(ctx context.Context) error {
		return f.each(f.hostMachines(), func(m *Machine) error {
			var leader string
			return f.ask(ctx, m, "https://127.0.0.1:8501", "GET", "/v1/status/leader", f.acl.root, nil, &leader)
		})
	})
	f.Jorc(append([]string{"cluster", "init", "default"}, o.Cluster...)...).OK()
	f.Observer = observe(f)
	if o.Before != nil {
		o.Before(f)
	}
	f.must("start agents", f.each(f.agents(), func(m *Machine) error { return m.owner.(*Host).bootJorc() }))
	for _, h := range f.Hosts {
		h.WaitReady()
	}
	t.Logf("the fleet of %d servers and %d hosts is up after %v", len(f.Servers), len(f.Hosts), time.Since(begin).Round(100*time.Millisecond))
	return f
}

// Host returns the host of that name.
func (f *Fleet) Host(name string) *Host {
	f.t.Helper()
	i := slices.IndexFunc(f.Hosts, func(h *Host) bool { return h.Name == name })
	if i < 0 {
		f.t.Fatalf("fleettest: there is no host %q", name)
	}
	return f.Hosts[i]
}

// Others are all hosts but h.
func (f *Fleet) Others(h *Host) []*Host {
	return slices.DeleteFunc(slices.Clone(f.Hosts), func(o *Host) bool { return o == h })
}

func (f *Fleet) serverMachines() []*Machine { return Machines(f.Servers) }

func (f *Fleet) agents() []*Machine { return Machines(f.Hosts) }

func (f *Fleet) hostMachines() []*Machine { return append(f.agents(), f.Operator.Machine) }

func (f *Fleet) machines() []*Machine { return append(f.serverMachines(), f.hostMachines()...) }

// each does something to all of the machines at once.
func (f *Fleet) each(all []*Machine, do func(*Machine) error) error {
	var g errgroup.Group
	for _, m := range all {
		g.Go(func() error {
			if err := do(m); err != nil {
				return fmt.Errorf("%s: %w", m.Name, err)
			}
			return nil
		})
	}
	return g.Wait()
}

func (f *Fleet) must(what string, err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatalf("fleettest: %s: %v", what, err)
	}
}

// failed records an error of a goroutine for the end of the test.
func (f *Fleet) failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errors = append(f.errors, err)
}

// broken returns the recorded errors of goroutines, or nil.
func (f *Fleet) broken() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.errors...)
}

func (f *Fleet) close() {
	if f.Observer != nil {
		f.Observer.stop()
	}
	for _, m := range f.machines() {
		m.killAll()
	}
	if f.t.Failed() {
		for _, m := range f.machines() {
			m.showLogs(f.t)
		}
	}
	if err := f.broken(); err != nil {
		f.t.Errorf("fleettest: %v", err)
	}
	if err := f.net.remove(); err != nil {
		f.t.Errorf("fleettest: %v", err)
	}
}

// directory is where a fleet keeps its files: the test's own, or one below
// JORC_FLEET_DIR that stays.
func directory(t testing.TB) string {
	t.Helper()
	keep := os.Getenv("JORC_FLEET_DIR")
	if keep == "" {
		return t.TempDir()
	}
	dir := filepath.Join(keep, filepath.Base(t.Name()), fmt.Sprint(time.Now().Unix()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// jorcBinary is the program under test: JORC_BIN, or the project's bin/jorc.
func jorcBinary(t testing.TB) string {
	t.Helper()
	path := os.Getenv("JORC_BIN")
	if path == "" {
		path = filepath.Join(consultest.Root(t), "bin", "jorc")
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("fleettest: no jorc program: run 'make build', or set JORC_BIN: %v", err)
	}
	return path
}
