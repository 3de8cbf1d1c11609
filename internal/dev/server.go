package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
)

const (
	startTries  = 10          // attempts, because another process may take a port
	startWithin = time.Minute // until a leader is elected
	nodeName    = "dev"
	nodeID      = "6a6f7263-0000-4000-8000-00000000dead" // fixed: the cluster has one server
)

// server is the Consul server of the session.
type server struct {
	*child
	ports ports
}

// startConsul starts program on free ports and waits until it leads. Only a kept
// server saves its data, in dir.
func startConsul(ctx context.Context, program, dir string, kept bool) (*server, error) {
	file := filepath.Join(dir, "ports.json")
	var before ports
	if err := before.load(file); err != nil {
		return nil, err
	}
	for range startTries {
		found, err := freePorts(ctx, before)
		if err != nil {
			return nil, err
		}
		conf := filepath.Join(dir, "consul.json")
		if err := found.configure(conf, dir, kept, before.Server); err != nil {
			return nil, err
		}
		args := []string{program, "agent", "-config-file=" + conf}
		if !kept {
			args = append(args, "-dev")
		}
		process, err := startChild("Consul", dir, "consul", kept, args...)
		if err != nil {
			return nil, err
		}
		s := &server{child: process, ports: found}
		switch err := s.await(ctx); {
		case err == nil:
			return s, found.save(file)
		case errors.Is(err, errPortTaken):
			s.end()
		default:
			s.end()
			return nil, err
		}
	}
	return nil, fmt.Errorf("Consul did not start within %d tries: %w", startTries, errPortTaken)
}

// configure writes the configuration of a Consul server that uses the ports. A kept server
// with data has its former port in its Raft configuration, so a new port has to be written there.
func (p ports) configure(file, dir string, kept bool, formerPort int) error {
	conf := map[string]any{
		"node_name": nodeName, "node_id": nodeID, "datacenter": "dc1", "log_level": "warn", "server": true,
		"bind_addr": loopback, "client_addr": loopback, "advertise_addr": loopback,
		"ui_config":           map[string]any{"enabled": true},
		"disable_coordinates": true, "disable_update_check": true, "leave_on_terminate": false,
		"ports": map[string]any{
			"http": p.HTTP, "dns": p.DNS, "serf_lan": p.Serf, "server": p.Server,
			"https": -1, "grpc": -1, "grpc_tls": -1, "serf_wan": -1,
		},
		"performance": map[string]any{"raft_multiplier": 1},
		// In development mode Consul asks other members ten times a second, and gives up after 100 ms.
		"gossip_lan": map[string]any{"gossip_interval": "200ms", "probe_interval": "1s", "probe_timeout": "500ms"},
	}
	if kept {
		data := filepath.Join(dir, "consul")
		conf["data_dir"], conf["bootstrap_expect"] = data, 1
		raft := filepath.Join(data, "raft")
		if _, err := os.Stat(raft); err == nil && formerPort != p.Server {
			if err := writeJSON(filepath.Join(raft, "peers.json"), []any{map[string]any{
				"id": nodeID, "address": address(p.Server), "non_voter": false,
			}}); err != nil {
				return err
			}
		}
	}
	return writeJSON(file, conf)
}

func writeJSON(file string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}

// await returns when the server leads, or why it does not.
func (s *server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	client, err := consul.New(config.Consul{Address: s.ports.httpAddr()})
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		node, _, err := client.CatalogNode(ctx, nodeName, consul.Query{Consistent: true})
		if err == nil && node != nil {
			return nil
		}
		select {
		case <-s.done:
			return s.ended()
		default:
		}
		if concurrency.Sleep(ctx, pollEvery) != nil {
			return fmt.Errorf("Consul has no leader: %w; %s", ctx.Err(), s.tail())
		}
	}
}

// ports are the ports of a Consul server. A kept directory stores them, so that
// commands copied from an earlier announcement continue to work.
type ports struct {
	HTTP   int `json:"http"`
	DNS    int `json:"dns"`
	Serf   int `json:"serf_lan"`
	Server int `json:"server"`
}

const loopback = "127.0.0.1"

func (p ports) httpAddr() string { return address(p.HTTP) }
func (p ports) dnsAddr() string  { return address(p.DNS) }

func address(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }

// freePorts returns ports that are free for TCP and UDP, preferably those of before.
// Another process can take them before Consul does.
func freePorts(ctx context.Context, before ports) (found ports, err error) {
	var taken []io.Closer
	defer func() {
		for _, t := range taken {
			err = errors.Join(err, t.Close())
		}
	}()
	wanted := []int{before.HTTP, before.DNS, before.Serf, before.Server}
	for i := range wanted {
		held, err := hold(ctx, loopback, &wanted[i])
		if err != nil && wanted[i] != 0 {
			wanted[i] = 0
			held, err = hold(ctx, loopback, &wanted[i])
		}
		if err != nil {
			return ports{}, fmt.Errorf("no free port on %s: %w", loopback, err)
		}
		taken = append(taken, held...)
	}
	return ports{wanted[0], wanted[1], wanted[2], wanted[3]}, nil
}

// hold binds a port of an address for TCP and UDP; 0: any free one.
func hold(ctx context.Context, ip string, port *int) ([]io.Closer, error) {
	var lc net.ListenConfig
	var last error
	for range 20 {
		tcp, err := lc.Listen(ctx, "tcp", net.JoinHostPort(ip, strconv.Itoa(*port)))
		if err != nil {
			return nil, err
		}
		number := tcp.Addr().(*net.TCPAddr).Port
		udp, err := lc.ListenPacket(ctx, "udp", net.JoinHostPort(ip, strconv.Itoa(number)))
		if err == nil {
			*port = number
			return []io.Closer{tcp, udp}, nil
		}
		last = errors.Join(err, tcp.Close())
		if *port != 0 {
			break
		}
	}
	return nil, last
}

// load reads the ports of an earlier run, if there was one.
func (p *ports) load(file string) error {
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, p); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

func (p *ports) save(file string) error {
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}
