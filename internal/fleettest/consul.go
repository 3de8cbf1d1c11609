//go:build linux

package fleettest

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"syscall"

	"github.com/jorc/jorc/internal/consultest"
)

// Server is a Consul server.
type Server struct{ *Machine }

// Kill ends the server with SIGKILL; its data stay.
func (s *Server) Kill() { s.killAll() }

// Freeze stops the server without ending it: connections stay open and nothing
// answers.
func (s *Server) Freeze() { s.fleet.must("freeze "+s.Name, s.programs()[0].signal(syscall.SIGSTOP)) }

// Thaw lets a frozen server continue.
func (s *Server) Thaw() { s.fleet.must("thaw "+s.Name, s.programs()[0].signal(syscall.SIGCONT)) }

// Start starts a server that was killed.
func (s *Server) Start() { s.fleet.must("start "+s.Name, s.startAll()) }

func (s *Server) boot() error {
	return s.startConsul(map[string]any{
		"server": true, "bootstrap_expect": len(s.fleet.Servers),
		"acl": map[string]any{
			"enabled": true, "default_policy": "deny", "enable_token_persistence": false,
			"tokens": map[string]any{"initial_management": s.fleet.acl.root, "agent": s.fleet.acl.root},
		},
		// Servers that are dead for a while stay voters: the tests bring them back.
		"autopilot": map[string]any{"cleanup_dead_servers": false, "last_contact_threshold": "1s", "server_stabilization_time": "1s"},
		// Elections within seconds, also on two busy cores.
		"performance": map[string]any{"raft_multiplier": 2},
	})
}

func (h *Host) bootConsul() error {
	return h.startConsul(map[string]any{
		"acl": map[string]any{
			"enabled": true, "default_policy": "deny",
			"tokens": map[string]any{"agent": h.agentToken, "default": h.fleet.acl.dns},
		},
	})
}

// startConsul starts a Consul agent that has the HTTPS API on the loopback
// address and its own, mutual TLS everywhere, and encrypted gossip.
func (m *Machine) startConsul(more map[string]any) error {
	var servers []string
	for _, s := range m.fleet.Servers {
		servers = append(servers, s.IP)
	}
	conf := map[string]any{
		"node_name": m.Name, "datacenter": "dc1", "log_level": "info", "data_dir": filepath.Join(m.Dir, "consul"),
		"bind_addr": m.IP, "client_addr": "127.0.0.1 " + m.IP, "encrypt": m.fleet.acl.gossip,
		"retry_join": servers, "retry_interval": "500ms",
		"leave_on_terminate": false, "skip_leave_on_interrupt": true,
		"disable_update_check": true, "disable_coordinates": true,
		"ports": map[string]any{"http": -1, "https": 8501, "grpc": -1, "grpc_tls": -1, "serf_wan": -1},
		"tls": map[string]any{
			"defaults": map[string]any{
				"ca_file": m.fleet.tls.File, "cert_file": filepath.Join(m.Dir, "cert.pem"), "key_file": filepath.Join(m.Dir, "key.pem"),
				"verify_incoming": true, "verify_outgoing": true,
			},
			"internal_rpc": map[string]any{"verify_server_hostname": true},
		},
	}
	maps.Copy(conf, more)
	data, err := json.MarshalIndent(conf, "", "  ")
	if err != nil {
		return err
	}
	file := filepath.Join(m.Dir, "consul.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return err
	}
	_, err = m.process("consul", false, nil, consultest.Binary(m.fleet.t), "agent", "-config-file="+file)
	return err
}
