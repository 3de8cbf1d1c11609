package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// consul is a server in memory on a loopback address of its own.
type consul struct {
	*api
	http, dns string // addresses
	proc      *process
}

// host is its address without a port.
func (c *consul) host() string { return strings.TrimSuffix(c.http, ":8500") }

// peerLimit is http_max_conns_per_client where consul-template cannot work with the default of 200.
const peerLimit = 2000

// startConsul runs a fresh Consul until the end of the scenario. With
// connections above zero that many are allowed per client.
func (b *bench) startConsul(ctx context.Context, connections int) (*consul, error) {
	dir, err := b.place("consul")
	if err != nil {
		return nil, err
	}
	ip, err := freeIP()
	if err != nil {
		return nil, err
	}
	conf := map[string]any{
		"node_name": "bench", "log_level": "warn", "bind_addr": ip, "client_addr": ip, "advertise_addr": ip,
		"disable_coordinates": true, "disable_update_check": true,
		"ports": map[string]any{
			"http": 8500, "https": -1, "dns": 8600, "grpc": -1, "grpc_tls": -1,
			"server": 8300, "serf_lan": 8301, "serf_wan": -1,
		},
		"performance": map[string]any{"raft_multiplier": 1},
	}
	if connections > 0 {
		conf["limits"] = map[string]any{"http_max_conns_per_client": connections}
	}
	return b.launchConsul(ctx, dir, ip, conf, "-dev")
}

// startClient runs a client agent of a server until the end of the scenario. What conf
// says is added to its configuration.
func (b *bench) startClient(ctx context.Context, server *consul, name string, conf map[string]any) (*consul, error) {
	dir, err := b.place("consul-client")
	if err != nil {
		return nil, err
	}
	ip, err := freeIP()
	if err != nil {
		return nil, err
	}
	all := map[string]any{
		"node_name": name, "log_level": "warn", "bind_addr": ip, "client_addr": ip, "data_dir": filepath.Join(dir, "data"),
		"disable_coordinates": true, "disable_update_check": true, "enable_debug": true, "retry_join": []string{server.host()},
		"ports": map[string]any{"http": 8500, "https": -1, "dns": -1, "grpc": -1, "grpc_tls": -1, "serf_lan": 8301},
	}
	maps.Copy(all, conf)
	return b.launchConsul(ctx, dir, ip, all)
}

// launchConsul starts an agent with its configuration and waits until it answers.
func (b *bench) launchConsul(ctx context.Context, dir, ip string, conf map[string]any, flags ...string) (*consul, error) {
	data, err := json.Marshal(conf)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "consul.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return nil, err
	}
	c := &consul{http: ip + ":8500", dns: ip + ":8600", api: newAPI("http://" + ip + ":8500")}
	argv := append([]string{b.programs.consul, "agent", "-config-file=" + file}, flags...)
	if c.proc, err = start(dir, "consul", argv); err != nil {
		return nil, err
	}
	if err := c.ready(ctx); err != nil {
		c.proc.kill()
		return nil, err
	}
	return c, nil
}

// ready waits until the server is in its own catalog and takes writes.
func (c *consul) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		var nodes []any
		err := c.get(ctx, "/v1/catalog/nodes?consistent", &nodes)
		if err == nil && len(nodes) > 0 {
			return nil
		}
		select {
		case <-c.proc.done:
			return c.proc.died()
		case <-ctx.Done():
			return fmt.Errorf("Consul is not ready: %v; its output ends with:\n%s", err, c.proc.tail())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// freeIP picks a loopback address whose port 8500 is free.
func freeIP() (string, error) {
	for range 100 {
		ip := fmt.Sprintf("127.%d.%d.%d", 128+rand.N(64), rand.N(256), 1+rand.N(254))
		l, err := net.Listen("tcp", ip+":8500")
		if err == nil {
			return ip, l.Close()
		}
	}
	return "", fmt.Errorf("no free loopback address found")
}
