package dev

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/durable"
)

// How many hosts a fleet may have: the guide works on three.
const (
	FewestHosts = 3
	MostHosts   = 20
)

// Cluster is the cluster of a fleet.
const Cluster = "default"

// Ports that each host of a fleet has on its address. That of gossip is not Consul's own, which a
// Consul of this machine may have on all addresses.
const (
	httpPort   = 8500
	dnsPort    = 8600
	gossipPort = 18301
	statusPort = 8520
	uiPort     = 8530
)

// recordKey is the key of a fleet's KV that holds the fleet.
const recordKey = "jorc-dev"

// firstVersion is what the hosts run at first.
const firstVersion = "v1"

// FleetOptions are what RunFleet needs.
type FleetOptions struct {
	Consul   string     // path of the consul program; see FindConsul
	Jorc     string     // path of the jorc program
	Keep     string     // as in Options
	Hosts    int        // FewestHosts to MostHosts
	First    netip.Addr // of the first host; see CheckAddresses
	LogLevel string     // of the agents; empty: their standard
	// Starting is called when the directory is there, and Announce once, when all is ready. Their
	// errors end RunFleet.
	Starting func(dir string) error
	Announce func(Fleet) error
	Hangup   <-chan struct{} // requests to read the configurations again; optional
}

// Fleet holds the addresses and paths of a fleet.
type Fleet struct {
	Dir      string `json:"dir"`
	Kept     bool   `json:"kept"` // the directory stays
	PID      int    `json:"pid"`
	UI       string `json:"ui"`        // URL of the dashboard
	ConsulUI string `json:"consul_ui"` // URL
	Cluster  string `json:"cluster"`
	Hosts    []Host `json:"hosts"`
}

// Host is a host of a fleet: a Consul agent and a jorc agent on a loopback address.
type Host struct {
	Name     string `json:"name"`
	Address  string `json:"address"`
	HTTPAddr string `json:"http_addr"` // of Consul's API
	Dir      string `json:"dir"`
	Config   string `json:"config"` // directory of its jorc agent's configuration
	Status   string `json:"status"` // URL of its jorc agent's page
}

func (h Host) at(port int) string { return net.JoinHostPort(h.Address, strconv.Itoa(port)) }

// CheckAddresses fails if n hosts cannot have the addresses from first on.
func CheckAddresses(first netip.Addr, n int) error {
	last := first
	for range n - 1 {
		last = last.Next()
	}
	if !first.Is4() || !first.IsLoopback() || !last.IsLoopback() || first == netip.MustParseAddr(loopback) {
		return fmt.Errorf("%d hosts from %s on: the addresses must be in 127.0.0.0/8, after %s, which is the Consul server's", n, first, loopback)
	}
	return nil
}

// RunFleet runs a Consul server and hosts, each with a Consul agent and a jorc agent, until ctx
// ends; then it stops and removes them and returns nil. It fails if one of them cannot be started
// or ends by itself.
func RunFleet(ctx context.Context, o FleetOptions) error {
	hosts := make([]Host, o.Hosts)
	for i, ip := 0, o.First; i < o.Hosts; i, ip = i+1, ip.Next() {
		hosts[i] = Host{Name: fmt.Sprintf("host-%d", i+1), Address: ip.String()}
		hosts[i].HTTPAddr, hosts[i].Status = hosts[i].at(httpPort), "http://"+hosts[i].at(statusPort)+"/"
	}
	return withConsul(ctx, o.Consul, o.Keep, func(dir string, server *server) error {
		if err := checkFree(ctx, hosts); err != nil { // now that what a killed fleet left is gone
			return err
		}
		f := &fleet{o: o, server: server, Fleet: Fleet{
			Dir: dir, Kept: o.Keep != "", PID: os.Getpid(), UI: "http://" + hosts[0].at(uiPort) + "/",
			ConsulUI: "http://" + server.ports.httpAddr() + "/ui", Cluster: Cluster, Hosts: hosts,
		}}
		err := f.run(ctx)
		if ctx.Err() != nil { // the end was asked for
			return nil
		}
		return err
	})
}

// checkFree fails if a port that hosts need is taken.
func checkFree(ctx context.Context, hosts []Host) error {
	for _, h := range hosts {
		for _, port := range []int{httpPort, dnsPort, gossipPort, statusPort, uiPort} {
			held, err := hold(ctx, h.Address, &port)
			for _, l := range held {
				err = errors.Join(err, l.Close())
			}
			if err == nil {
				continue
			}
			const others = "choose other addresses with --first-address, such as 127.0.1.2"
			if other, notFleet := Running(ctx, h.Address); notFleet == nil {
				return fmt.Errorf("%s has a host of another fleet (pid %d, data in %s): end that one, or %s", h.Address, other.PID, other.Dir, others)
			}
			return fmt.Errorf("%s cannot be had: %w: end the program that uses it, or %s", h.at(port), err, others)
		}
	}
	return nil
}

// ErrNoFleet is returned if no fleet runs.
var ErrNoFleet = errors.New("no fleet is running")

// Running returns this user's fleet that has a host with an address. The error wraps ErrNoFleet
// if no fleet has one.
func Running(ctx context.Context, address string) (Fleet, error) {
	var f Fleet
	at := Host{Address: address}.at(httpPort)
	client, err := consul.New(config.Consul{Address: at})
	if err != nil {
		return f, err
	}
	defer client.Close()
	pair, _, err := client.KVGet(ctx, recordKey, consul.Query{})
	switch {
	case errors.Is(err, consul.ErrUnreachable):
		return f, fmt.Errorf("%w at %s", ErrNoFleet, address)
	case err != nil:
		return f, fmt.Errorf("%w at %s: %w", ErrNoFleet, address, err)
	case pair == nil:
		return f, fmt.Errorf("%w at %s: the Consul there is another one", ErrNoFleet, address)
	}
	if err := json.Unmarshal(pair.Value, &f); err != nil {
		return f, fmt.Errorf("key %s of the Consul at %s: %w", recordKey, at, err)
	}
	info, err := os.Stat(f.Dir)
	if err != nil {
		return f, fmt.Errorf("the directory of the fleet at %s: %w", address, err)
	}
	if int(durable.InfoOf(info).UID) != os.Geteuid() || len(f.Hosts) == 0 {
		return f, fmt.Errorf("%w at %s that is yours: the one there has its data in %s", ErrNoFleet, address, f.Dir)
	}
	return f, nil
}

// fleet is the hosts beside the Consul server.
type fleet struct {
	Fleet
	o       FleetOptions
	server  *server
	consuls []*child
	agents  []*child
}

func (f *fleet) run(ctx context.Context) error {
	defer func() { endAll(f.consuls) }()
	defer func() { endAll(f.agents) }() // first: they use the others
	if err := f.start(ctx); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, c := range append(append([]*child{f.server.child}, f.consuls...), f.agents...) {
		g.Go(func() error { return c.watch(ctx) })
	}
	g.Go(func() error { return f.passHangups(ctx) })
	g.Go(func() error {
		if err := f.form(ctx); err != nil {
			return err
		}
		return f.o.Announce(f.Fleet)
	})
	return g.Wait()
}

// endAll ends children at the same time.
func endAll(children []*child) {
	var all sync.WaitGroup
	for _, c := range children {
		all.Go(c.end)
	}
	all.Wait()
}

// start starts the programs of the hosts.
func (f *fleet) start(ctx context.Context) error {
	for i := range f.Hosts {
		if err := f.furnish(&f.Hosts[i], i); err != nil {
			return err
		}
	}
	if err := f.record(ctx); err != nil {
		return err
	}
	if err := f.o.Starting(f.Dir); err != nil {
		return err
	}
	for _, h := range f.Hosts {
		c, err := startChild("Consul of "+h.Name, h.Dir, "consul", false, f.o.Consul, "agent", "-config-file="+filepath.Join(h.Dir, "consul.json"))
		if err != nil {
			return err
		}
		f.consuls = append(f.consuls, c)
	}
	for _, h := range f.Hosts {
		args := []string{f.o.Jorc, "agent", "--config", h.Config}
		if f.o.LogLevel != "" {
			args = append(args, "--log-level", f.o.LogLevel)
		}
		c, err := startChild("the jorc agent of "+h.Name, h.Dir, "jorc", true, args...)
		if err != nil {
			return err
		}
		f.agents = append(f.agents, c)
	}
	return nil
}

// furnish writes the files of a host. What the user may have changed stays.
func (f *fleet) furnish(h *Host, i int) error {
	h.Dir = filepath.Join(f.Dir, h.Name)
	h.Config = filepath.Join(h.Dir, "config")
	if err := os.MkdirAll(h.Config, 0o755); err != nil {
		return err
	}
	values := struct {
		Name, Consul, DNS, Status, UI string
		Candidate                     bool // for orchestration: two hosts are enough
	}{h.Name, h.HTTPAddr, h.at(dnsPort), h.at(statusPort), "", i < 2}
	if i == 0 {
		values.UI = h.at(uiPort)
	}
	for _, file := range []struct {
		name, to string
		always   bool
	}{
		{"addresses.hcl", filepath.Join(h.Config, "addresses.hcl"), true},
		{"host.hcl", filepath.Join(h.Config, "host.hcl"), false},
		{"pool.conf", filepath.Join(h.Dir, "pool.conf"), false}, // as the template writes it: nothing is new at first
	} {
		if err := write(h.Dir, file.name, file.to, file.always, values); err != nil {
			return err
		}
	}
	return writeJSON(filepath.Join(h.Dir, "consul.json"), map[string]any{
		"node_name": h.Name, "datacenter": "dc1", "log_level": "warn", "data_dir": filepath.Join(h.Dir, "consul"),
		"bind_addr": h.Address, "client_addr": h.Address, "advertise_addr": h.Address,
		"retry_join": []string{address(f.server.ports.Serf)}, "retry_interval": "500ms",
		"disable_coordinates": true, "disable_update_check": true, "leave_on_terminate": false,
		"ports": map[string]any{
			"http": httpPort, "dns": dnsPort, "serf_lan": gossipPort, "https": -1, "grpc": -1, "grpc_tls": -1, "serf_wan": -1,
		},
	})
}

// record writes the fleet to its own KV, where Running finds it.
func (f *fleet) record(ctx context.Context) error {
	value, err := json.Marshal(f.Fleet)
	if err != nil {
		return err
	}
	client, err := consul.New(config.Consul{Address: f.server.ports.httpAddr()})
	if err != nil {
		return err
	}
	defer client.Close()
	return client.KVPut(ctx, &consul.KVPair{Key: recordKey, Value: value})
}

// form forms the cluster and returns when all hosts run the first version and are ready. A kept
// fleet continues with the version that it has.
func (f *fleet) form(ctx context.Context) error {
	if _, err := f.jorc(ctx, "cluster", "init", Cluster); err != nil {
		return err
	}
	if _, err := f.jorc(ctx, "cluster", "wait", "--for", fmt.Sprintf("members=%d", len(f.Hosts))); err != nil {
		return err
	}
	if version, err := f.jorc(ctx, "update", "current"); err != nil || version == "" {
		if _, err := f.jorc(ctx, "update", "trigger", firstVersion, "--yes", "--reason", "the first version"); err != nil {
			return err
		}
		if _, err := f.jorc(ctx, "update", "wait"); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, h := range f.Hosts {
		g.Go(func() error { return ready(ctx, h.Status) })
	}
	return g.Wait()
}

// jorc runs a command of jorc on the cluster, and returns what it prints.
func (f *fleet) jorc(ctx context.Context, args ...string) (string, error) {
	var stdout strings.Builder
	env := append(environ(f.Dir), "CONSUL_HTTP_ADDR="+f.server.ports.httpAddr(), "JORC_CONFIG="+os.DevNull, "USER="+os.Getenv("USER"))
	result, err := command.Run(ctx, command.Command{Args: append([]string{f.o.Jorc}, args...), Env: env, Stdout: &stdout})
	if err == nil && result.ExitCode != 0 {
		err = errors.New(cmp.Or(strings.TrimSpace(result.Output), fmt.Sprintf("exit code %d", result.ExitCode)))
	}
	if err != nil {
		return "", fmt.Errorf("jorc %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(stdout.String()), nil
}

// passHangups lets the agents read their configurations again when jorc is asked to.
func (f *fleet) passHangups(ctx context.Context) error {
	for {
		select {
		case <-f.o.Hangup:
			for _, c := range f.agents {
				if err := c.cmd.Process.Signal(syscall.SIGHUP); err != nil && !errors.Is(err, os.ErrProcessDone) {
					return fmt.Errorf("%s: %w", c.name, err)
				}
			}
		case <-ctx.Done():
			return nil
		}
	}
}
