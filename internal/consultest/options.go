package consultest

import (
	"maps"
	"path/filepath"
)

// Option changes how a server is set up.
type Option func(*settings)

type settings struct {
	persistent bool
	tls        bool
	rootToken  string
	expect     int
	extra      map[string]any
}

// Persistent keeps the server's data on disk, so that Restart finds it again.
func Persistent() Option { return func(s *settings) { s.persistent = true } }

// WithACL switches ACLs on, with default deny.
func WithACL() Option {
	return func(s *settings) { s.rootToken = "00000000-1111-2222-3333-444444444444" }
}

// WithTLS serves HTTPS only, with a certificate authority made for the test.
func WithTLS() Option { return func(s *settings) { s.tls = true } }

// WithConfig sets keys of Consul's own configuration.
func WithConfig(extra map[string]any) Option {
	return func(s *settings) { maps.Copy(s.extra, extra) }
}

func options(opts []Option) *settings {
	s := &settings{expect: 1, extra: map[string]any{}}
	for _, o := range opts {
		o(s)
	}
	return s
}

// config is Consul's configuration for one server.
func (o *settings) config(s *Server, join []string) map[string]any {
	conf := map[string]any{
		"node_name": s.Node, "datacenter": "dc1", "log_level": "warn",
		"bind_addr": s.IP, "client_addr": s.IP, "advertise_addr": s.IP,
		"server": true, "leave_on_terminate": false, "skip_leave_on_interrupt": true,
		"disable_coordinates": true, "disable_update_check": true,
		"connect": map[string]any{"enabled": false}, "peering": map[string]any{"enabled": false},
		"ports": map[string]any{
			"http": 8500, "https": -1, "dns": 8600, "grpc": -1, "grpc_tls": -1,
			"server": 8300, "serf_lan": 8301, "serf_wan": -1,
		},
		"performance": map[string]any{"raft_multiplier": 1},
		// In development mode Consul looks for other members ten times a second.
		"gossip_lan": map[string]any{"gossip_interval": "200ms", "probe_interval": "1s"},
		// A server that is killed keeps its vote: after its return it would have none
		// for ten seconds, in which no other may fail.
		"autopilot": map[string]any{"cleanup_dead_servers": false},
	}
	if o.persistent {
		conf["data_dir"] = filepath.Join(s.dir, "data")
		conf["bootstrap_expect"] = o.expect
		conf["retry_join"] = join
		conf["retry_interval"] = "500ms"
	}
	if o.rootToken != "" {
		conf["acl"] = map[string]any{
			"enabled": true, "default_policy": "deny",
			"tokens": map[string]any{"initial_management": o.rootToken, "agent": o.rootToken, "dns": o.rootToken},
		}
	}
	maps.Copy(conf, o.extra)
	return conf
}
