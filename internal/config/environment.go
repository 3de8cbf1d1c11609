package config

import (
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// environment reads Consul's, Vault's and jorc's own variables; an empty one
// counts as not set.
func (d *decoder) environment(getenv func(string) string, c *Config) {
	for _, v := range []struct {
		name, setting string
		to            *string
	}{
		{"CONSUL_HTTP_ADDR", "consul.address", &c.Consul.Address},
		{"CONSUL_HTTP_TOKEN_FILE", "consul.token_file", &c.Consul.TokenFile},
		{"CONSUL_CACERT", "consul.ca_file", &c.Consul.CAFile},
		{"CONSUL_CAPATH", "consul.ca_path", &c.Consul.CAPath},
		{"CONSUL_CLIENT_CERT", "consul.client_cert", &c.Consul.ClientCert},
		{"CONSUL_CLIENT_KEY", "consul.client_key", &c.Consul.ClientKey},
		{"CONSUL_TLS_SERVER_NAME", "consul.tls_server_name", &c.Consul.TLSServerName},
		{"CONSUL_NAMESPACE", "consul.namespace", &c.Consul.Namespace},
		{"CONSUL_PARTITION", "consul.partition", &c.Consul.Partition},
		{"VAULT_ADDR", "vault.address", &c.Vault.Address},
		{"VAULT_NAMESPACE", "vault.namespace", &c.Vault.Namespace},
		{"VAULT_CACERT", "vault.ca_file", &c.Vault.CAFile},
		{"JORC_DNS_ADDR", "dns.addr", &c.DNS.Addr},
		{"JORC_PREFIX", "prefix", &c.Prefix},
		{"JORC_CLUSTER", "cluster", &c.Cluster},
		{"JORC_NODE", "node", &c.Node},
		{"JORC_VERSION_FILE", "version_file", &c.VersionFile},
		{"JORC_STATE_DIR", "state_dir", &c.StateDir},
	} {
		if s := getenv(v.name); s != "" {
			*v.to = s
			d.settings[v.setting] = source{name: v.name}
		}
	}
	// A file of the environment goes before a value of the environment, both
	// before what the configuration says.
	if token := getenv("CONSUL_HTTP_TOKEN"); token != "" && getenv("CONSUL_HTTP_TOKEN_FILE") == "" {
		c.Consul.Token, c.Consul.TokenFile = Secret(token), ""
	}
	if token := getenv("VAULT_TOKEN"); token != "" {
		c.Vault.Token, c.Vault.TokenFile = Secret(token), ""
	}
	if ssl := getenv("CONSUL_HTTP_SSL"); d.truth("CONSUL_HTTP_SSL", ssl, false) {
		c.Consul.Address = withTLS(c.Consul.Address)
	}
	verify := getenv("CONSUL_HTTP_SSL_VERIFY")
	c.Consul.TLSSkipVerify = !d.truth("CONSUL_HTTP_SSL_VERIFY", verify, true)
}

// truth reads a variable that is true or false.
func (d *decoder) truth(name, s string, otherwise bool) bool {
	if s == "" {
		return otherwise
	}
	v, err := strconv.ParseBool(s)
	if err != nil {
		d.errorf(hcl.Range{}, "Invalid environment variable", "%s must be true or false, not %q.", name, s)
		return otherwise
	}
	return v
}

// withTLS asks for TLS the way Consul's own client does: never back to plain
// HTTP, but a socket stays a socket.
func withTLS(address string) string {
	rest, plain := strings.CutPrefix(address, "http://")
	if !plain && strings.Contains(address, "://") {
		return address
	}
	return "https://" + rest
}
