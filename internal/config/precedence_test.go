package config_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jorc/jorc/internal/config"
)

func env(pairs ...string) func(string) string {
	all := map[string]string{}
	for _, p := range pairs {
		name, value, _ := strings.Cut(p, "=")
		all[name] = value
	}
	return func(name string) string { return all[name] }
}

func TestPrecedence(t *testing.T) {
	t.Parallel()
	file := write(t, "jorc.hcl", `
		prefix = "file"
		cluster = "file"
		consul {
			address    = "file:1"
			token_file = "/file/token"
		}
	`)
	for _, tt := range []struct {
		name      string
		env       []string
		overrides config.Overrides
		get       func(*config.Config) any
		want      any
	}{
		{"file", nil, config.Overrides{}, func(c *config.Config) any { return c.Consul.Address }, "file:1"},
		{"environment over file", []string{"CONSUL_HTTP_ADDR=env:2"}, config.Overrides{}, func(c *config.Config) any { return c.Consul.Address }, "env:2"},
		{"flag over environment", []string{"CONSUL_HTTP_ADDR=env:2"}, config.Overrides{HTTPAddr: new("flag:3")}, func(c *config.Config) any { return c.Consul.Address }, "flag:3"},
		{"empty flag is the default", []string{"CONSUL_HTTP_ADDR=env:2"}, config.Overrides{HTTPAddr: new("")}, func(c *config.Config) any { return c.Consul.Address }, "127.0.0.1:8500"},
		{"empty prefix and cluster", []string{"JORC_PREFIX=env"}, config.Overrides{Prefix: new(""), Cluster: new("")}, func(c *config.Config) any { return c.Prefix + c.Cluster }, ""},
		{"empty variable is not set", []string{"JORC_PREFIX="}, config.Overrides{}, func(c *config.Config) any { return c.Prefix }, "file"},
		{"prefix from the environment", []string{"JORC_PREFIX=a/b", "JORC_CLUSTER=c"}, config.Overrides{}, func(c *config.Config) any { return c.Prefix + " " + c.Cluster }, "a/b c"},
		{"state dir moves the version file", []string{"JORC_STATE_DIR=/x"}, config.Overrides{}, func(c *config.Config) any { return c.VersionFile }, "/x/version"},
		{"version file", []string{"JORC_STATE_DIR=/x", "JORC_VERSION_FILE=/y"}, config.Overrides{}, func(c *config.Config) any { return c.VersionFile }, "/y"},
		{"dns of the system", nil, config.Overrides{DNSAddr: new("system")}, func(c *config.Config) any { return c.DNS.Addr }, "system"},
		{"dns without port", []string{"JORC_DNS_ADDR=10.0.0.1"}, config.Overrides{}, func(c *config.Config) any { return c.DNS.Addr }, "10.0.0.1:8600"},
		{"node", []string{"JORC_NODE=n1"}, config.Overrides{}, func(c *config.Config) any { return c.Node }, "n1"},
		{"token over token file", []string{"CONSUL_HTTP_TOKEN=t"}, config.Overrides{}, func(c *config.Config) any { return string(c.Consul.Token) + c.Consul.TokenFile }, "t"},
		{"token file of the environment over its token", []string{"CONSUL_HTTP_TOKEN=t", "CONSUL_HTTP_TOKEN_FILE=/t"}, config.Overrides{}, func(c *config.Config) any { return string(c.Consul.Token) + c.Consul.TokenFile }, "/t"},
		{"token file flag over token", []string{"CONSUL_HTTP_TOKEN=t"}, config.Overrides{TokenFile: new("/t")}, func(c *config.Config) any { return string(c.Consul.Token) + c.Consul.TokenFile }, "/t"},
		{"auth over auth file", []string{"CONSUL_HTTP_AUTH=u:p"}, config.Overrides{}, func(c *config.Config) any { return string(c.Consul.Auth) + c.Consul.AuthFile }, "u:p"},
		{"ssl", []string{"CONSUL_HTTP_SSL=true"}, config.Overrides{}, func(c *config.Config) any { return c.Consul.Address }, "https://file:1"},
		{"ssl never goes back", []string{"CONSUL_HTTP_SSL=1", "CONSUL_HTTP_ADDR=http://x:1"}, config.Overrides{}, func(c *config.Config) any { return c.Consul.Address }, "https://x:1"},
		{"ssl over a socket", []string{"CONSUL_HTTP_SSL=1", "CONSUL_HTTP_ADDR=unix:///run/c"}, config.Overrides{}, func(c *config.Config) any { return c.Consul.Address }, "unix:///run/c"},
		{"ssl not verified", []string{"CONSUL_HTTP_SSL_VERIFY=false"}, config.Overrides{}, func(c *config.Config) any { return c.Consul.TLSSkipVerify }, true},
		{"ssl verified", nil, config.Overrides{}, func(c *config.Config) any { return c.Consul.TLSSkipVerify }, false},
		{
			"tls",
			[]string{"CONSUL_CACERT=/ca", "CONSUL_CAPATH=/cas", "CONSUL_CLIENT_CERT=/c", "CONSUL_CLIENT_KEY=/k", "CONSUL_TLS_SERVER_NAME=s"},
			config.Overrides{},
			func(c *config.Config) any {
				return []string{c.Consul.CAFile, c.Consul.CAPath, c.Consul.ClientCert, c.Consul.ClientKey, c.Consul.TLSServerName}
			},
			[]string{"/ca", "/cas", "/c", "/k", "s"},
		},
		{
			"enterprise",
			[]string{"CONSUL_NAMESPACE=n", "CONSUL_PARTITION=p"},
			config.Overrides{Datacenter: new("d")},
			func(c *config.Config) any { return c.Consul.Namespace + c.Consul.Partition + c.Consul.Datacenter }, "npd",
		},
		{
			"vault",
			[]string{"VAULT_ADDR=http://v:1", "VAULT_TOKEN=t", "VAULT_NAMESPACE=n", "VAULT_CACERT=/ca"},
			config.Overrides{},
			func(c *config.Config) any { return c.Vault },
			config.Vault{Address: "http://v:1", Token: "t", Namespace: "n", CAFile: "/ca"},
		},
		{"log", nil, config.Overrides{LogLevel: new("debug"), LogJSON: new(true)}, func(c *config.Config) any { return fmt.Sprint(c.LogLevel, c.LogJSON) }, "debugtrue"},
	} {
		got := tt.get(load(t, config.Options{Getenv: env(tt.env...), Overrides: tt.overrides}, file))
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestBadSettings(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		env       []string
		overrides config.Overrides
		want      string
	}{
		{"ssl", []string{"CONSUL_HTTP_SSL=maybe"}, config.Overrides{}, `CONSUL_HTTP_SSL must be true or false, not "maybe"`},
		{"cluster", []string{"JORC_CLUSTER=a/b"}, config.Overrides{}, `JORC_CLUSTER: "a/b" cannot be a name: '/' at position 2`},
		{"cluster flag", nil, config.Overrides{Cluster: new("..")}, `--cluster: ".." cannot be a name`},
		{"prefix", nil, config.Overrides{Prefix: new("a//b")}, `--prefix: "" cannot be a name: it is empty`},
		{"prefix slash", nil, config.Overrides{Prefix: new("/")}, `--prefix: "/" must neither begin nor end with a slash`},
		{"address", []string{"CONSUL_HTTP_ADDR=http://me:hunter2@x"}, config.Overrides{}, `CONSUL_HTTP_ADDR: an address must not contain a user`},
		{"dns", nil, config.Overrides{DNSAddr: new("1.2.3.4:x")}, `--dns-addr: "1.2.3.4:x" has no valid port`},
		{"log level", nil, config.Overrides{LogLevel: new("inof")}, `did you mean "info"?`},
		{"certificate", []string{"CONSUL_CLIENT_KEY=/k"}, config.Overrides{}, `CONSUL_CLIENT_KEY: a client certificate and its key belong together`},
		{"node", nil, config.Overrides{Node: new("a\nb")}, `'\n' at position 2`},
	} {
		_, err := config.Load(nil, config.Options{Getenv: env(tt.env...), Overrides: tt.overrides})
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestTokensStayHidden(t *testing.T) {
	t.Parallel()
	c := load(t, config.Options{Getenv: env("CONSUL_HTTP_TOKEN=hunter2", "VAULT_TOKEN=hunter2")})
	document, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{string(document)}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		texts = append(texts, fmt.Sprintf(verb, c.Consul), fmt.Sprintf(verb, *c), fmt.Sprintf(verb, c.Vault.Token))
	}
	for _, text := range texts {
		if strings.Contains(text, "hunter2") || strings.Contains(text, "68756e74657232") {
			t.Errorf("shows the token: %s", text)
		}
	}
	if c.Consul.Token != "hunter2" {
		t.Error("the token itself was lost")
	}
}
