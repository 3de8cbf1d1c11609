package config

import "path/filepath"

// Overrides are the global flags of the command line; nil means not given. An
// empty prefix or cluster leaves that segment out of the keys; any other empty
// value brings the default back.
type Overrides struct {
	HTTPAddr    *string // --http-addr, of Consul
	TokenFile   *string
	CAFile      *string
	ClientCert  *string
	ClientKey   *string
	Namespace   *string
	Partition   *string
	Datacenter  *string
	DNSAddr     *string
	Prefix      *string
	Cluster     *string
	Node        *string
	VersionFile *string
	StateDir    *string
	LogLevel    *string
	LogJSON     *bool
}

func (d *decoder) overrides(o Overrides, c *Config) {
	normal := base()
	for _, v := range []struct {
		from          *string
		flag, setting string
		to            *string
		otherwise     string
	}{
		{o.HTTPAddr, "--http-addr", "consul.address", &c.Consul.Address, normal.Consul.Address},
		{o.TokenFile, "--token-file", "consul.token_file", &c.Consul.TokenFile, ""},
		{o.CAFile, "--ca-file", "consul.ca_file", &c.Consul.CAFile, ""},
		{o.ClientCert, "--client-cert", "consul.client_cert", &c.Consul.ClientCert, ""},
		{o.ClientKey, "--client-key", "consul.client_key", &c.Consul.ClientKey, ""},
		{o.Namespace, "--namespace", "consul.namespace", &c.Consul.Namespace, ""},
		{o.Partition, "--partition", "consul.partition", &c.Consul.Partition, ""},
		{o.Datacenter, "--datacenter", "consul.datacenter", &c.Consul.Datacenter, ""},
		{o.DNSAddr, "--dns-addr", "dns.addr", &c.DNS.Addr, normal.DNS.Addr},
		{o.Prefix, "--prefix", "prefix", &c.Prefix, ""},
		{o.Cluster, "--cluster", "cluster", &c.Cluster, ""},
		{o.Node, "--node", "node", &c.Node, ""},
		{o.VersionFile, "--version-file", "version_file", &c.VersionFile, ""},
		{o.StateDir, "--state-dir", "state_dir", &c.StateDir, normal.StateDir},
		{o.LogLevel, "--log-level", "log_level", &c.LogLevel, normal.LogLevel},
	} {
		if v.from == nil {
			continue
		}
		*v.to = *v.from
		if *v.from == "" {
			*v.to = v.otherwise
		}
		d.settings[v.setting] = source{name: v.flag}
	}
	if o.TokenFile != nil && *o.TokenFile != "" {
		c.Consul.Token = ""
	}
	if o.LogJSON != nil {
		c.LogJSON = *o.LogJSON
	}
	// What came from flags and the environment is meant from where the
	// program was started.
	for _, p := range []*string{&c.StateDir, &c.VersionFile} {
		if *p == "" || filepath.IsAbs(*p) {
			continue
		}
		if abs, err := filepath.Abs(*p); err == nil {
			*p = abs
		}
	}
}
