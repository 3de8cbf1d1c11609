package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	good := writeFile(t, "good.hcl", "service \"web\" {\n  port = 80\n}\nservice \"db\" {\n  port = 90\n}\n")
	bad := writeFile(t, "bad.hcl", "service \"web\" {\n  prot = 80\n}\n")

	if got, want := jorc(t, nil, "config", "validate", good), (result{0, "", "jorc: " + good + ": valid: 2 services\n"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	got := jorc(t, nil, "config", "validate", bad, "--cluster", "x")
	if got.code != exitUsage || got.stdout != "" || !strings.HasPrefix(got.stderr, "jorc: "+bad+":2,3: ") || !strings.Contains(got.stderr, "prot = 80") {
		t.Errorf("got %+v, want exit 2 with file, line and excerpt", got)
	}
	if got := jorc(t, nil, "config", "validate", filepath.Join(t.TempDir(), "absent")); got.code != exitUsage {
		t.Errorf("absent file: got %+v, want exit 2", got)
	}
}

// TestConfigJSON: for scripts, every problem is a document.
func TestConfigJSON(t *testing.T) {
	t.Parallel()
	bad := writeFile(t, "bad.hcl", "service \"web\" {\n  prot = 80\n}\n")
	got := jorc(t, nil, "config", "validate", "-o", "json", bad)
	if got.code != exitUsage || !strings.Contains(got.stdout, `"valid": false`) || !strings.Contains(got.stdout, `"line": 2`) || got.stderr != "" {
		t.Errorf("got %+v", got)
	}
}

// TestSettings: the global flags reach the configuration, before the
// environment, and the client.
func TestSettings(t *testing.T) {
	t.Parallel()
	environ := map[string]string{"CONSUL_HTTP_ADDR": "127.0.0.1:1", "JORC_PREFIX": "other", "CONSUL_NAMESPACE": "ns"}
	var none bytes.Buffer
	env := newEnvironment(testHost(environ, &none, &none))
	app := &cli.App{Flags: globalFlags(settings()), Action: func(c *cli.Context) error {
		client, got, err := env.consul(c)
		if err != nil {
			return err
		}
		defer client.Close()
		for _, v := range []struct{ name, got, want string }{
			{"consul.address", got.Consul.Address, "127.0.0.1:2"},
			{"consul.namespace", got.Consul.Namespace, "ns"},
			{"prefix", got.Prefix, "other"},
			{"cluster", got.Cluster, "default"},
			{"dns.addr", got.DNS.Addr, "system"},
			{"node", got.Node, "n1"},
			{"version_file", got.VersionFile, "/s/version"},
		} {
			if v.got != v.want {
				t.Errorf("%s: got %q, want %q", v.name, v.got, v.want)
			}
		}
		return nil
	}}
	args := strings.Fields("jorc --http-addr=127.0.0.1:2 --dns-addr=system --node=n1 --state-dir=/s")
	if err := app.RunContext(t.Context(), args); err != nil {
		t.Fatal(err)
	}
}
