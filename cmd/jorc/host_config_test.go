package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

// configured is a host whose configuration is in a directory, as in /etc/jorc.
type configured struct {
	t   *testing.T
	dir string
	env map[string]string
}

// newConfigured has no variables besides those given: the configuration counts.
func newConfigured(t *testing.T, conf string, env map[string]string) *configured {
	t.Helper()
	h := &configured{t: t, dir: filepath.Join(t.TempDir(), "jorc"), env: map[string]string{}}
	for name := range apart {
		h.env[name] = ""
	}
	for name, value := range env {
		h.env[name] = value
	}
	if err := os.Mkdir(h.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	h.write(conf)
	return h
}

func (h *configured) write(conf string) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, "agent.hcl"), []byte(conf), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *configured) jorc(args ...string) result {
	h.t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(h.t.Context(), args, h.host(&stdout, &stderr))
	return result{code, stdout.String(), stderr.String()}
}

func (h *configured) host(stdout, stderr *bytes.Buffer) host {
	host := testHost(h.env, stdout, stderr)
	host.etc = filepath.Dir(h.dir)
	return host
}

func (h *configured) succeed(args ...string) string {
	h.t.Helper()
	got := h.jorc(args...)
	if got.code != exitOK {
		h.t.Fatalf("jorc %s: %+v", strings.Join(args, " "), got)
	}
	return got.stdout
}

// TestConfiguredCluster: on a host that is configured for a cluster, every command
// acts on that cluster, by its new name and its old one, without flags.
func TestConfiguredCluster(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	state := t.TempDir()
	h := newConfigured(t, fmt.Sprintf(`
		cluster      = "prd"
		prefix       = "site"
		state_dir    = %q
		version_file = %q
		consul {
			address = %q
		}
		dns {
			addr = %q
		}
		workflow "hello" {
			task "t" {
				command = ["true"]
			}
		}
	`, state, filepath.Join(state, "here"), s.HTTPAddr, s.DNSAddr), nil)
	keys := func() string {
		t.Helper()
		all, _, err := s.Client().KVList(t.Context(), "", consul.Query{})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, kv := range all {
			names = append(names, kv.Key)
		}
		return strings.Join(names, "\n")
	}

	h.succeed("cluster", "init", "prd")
	h.succeed("cluster", "join", "--role", "db")
	if got := h.succeed("cluster", "members", "--count"); got != "1\n" {
		t.Errorf("members: %q", got)
	}
	h.succeed("cluster", "hold", "--role", "db")
	h.succeed("update", "trigger", "v1")
	if got := h.succeed("update", "current"); got != "v1\n" {
		t.Errorf("update current: %q", got)
	}
	h.succeed("trigger_update", "v2")
	if got := h.succeed("current_version"); got != "v2\n" {
		t.Errorf("current_version: %q", got)
	}
	h.succeed("local_version", "v1")
	if version, err := os.ReadFile(filepath.Join(state, "here")); err != nil || strings.TrimSpace(string(version)) != "v1" {
		t.Errorf("local_version wrote %q, %v into the configured version file", version, err)
	}
	if got := h.jorc("pending_update"); got.code != exitOK {
		t.Errorf("pending_update: %+v, want exit 0: an update is pending", got)
	}
	h.succeed("update_own_info")
	h.succeed("update_own_status", "puppet", "success")
	h.succeed("workflow", "run", "hello", "--id", "j1")
	h.succeed("ping")
	for _, key := range strings.Split(keys(), "\n") {
		if key != "" && !strings.HasPrefix(key, "site/prd/") {
			t.Errorf("a command wrote %q outside of the configured cluster", key)
		}
	}

	// A variable takes precedence over the configuration, a flag over both.
	h.env["JORC_CLUSTER"] = "stage"
	if got := h.jorc("cluster", "members", "--count"); got.code == exitOK && got.stdout == "1\n" {
		t.Errorf("JORC_CLUSTER was ignored: %+v", got)
	}
	if got := h.succeed("--cluster", "prd", "cluster", "members", "--count"); got != "1\n" {
		t.Errorf("--cluster: %q", got)
	}
}

// TestConfigPaths: --config goes before JORC_CONFIG, and that before the host's
// directory; none of them is required to exist on a host without an agent.
func TestConfigPaths(t *testing.T) {
	t.Parallel()
	version := func(name string) string {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "version"), []byte(name+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return writeFile(t, name+".hcl", fmt.Sprintf("state_dir = %q\n", dir))
	}
	first, second, third := version("first"), version("second"), version("third")
	conf, err := os.ReadFile(third)
	if err != nil {
		t.Fatal(err)
	}
	h := newConfigured(t, string(conf), nil)
	local := func(want string, args ...string) {
		t.Helper()
		if got := h.succeed(append([]string{"update", "local"}, args...)...); got != want+"\n" {
			t.Errorf("%v: got %q, want %q", args, got, want)
		}
	}
	local("third")
	h.env["JORC_CONFIG"] = second
	local("second")
	local("first", "--config", first)
	if got := h.succeed("--config", first, "update", "local"); got != "first\n" {
		t.Errorf("--config before the command: %q", got)
	}
	h.env["JORC_CONFIG"] = filepath.Join(t.TempDir(), "absent")
	if got := h.jorc("update", "local"); got.code != exitUsage || !strings.Contains(got.stderr, "no such file") {
		t.Errorf("absent JORC_CONFIG: %+v, want exit 2", got)
	}
}

// TestWrongHostConfig: a configuration that is wrong or cannot be read is never
// replaced by the defaults.
func TestWrongHostConfig(t *testing.T) {
	t.Parallel()
	h := newConfigured(t, "clutser = \"prd\"\n", nil)
	want := func(text string) {
		t.Helper()
		for _, line := range []string{
			"update trigger v1", "update current", "update pending", "cluster members", "cluster hold --role db", "cluster list",
			"trigger_update v1", "current_version", "local_version", "update_own_status puppet success", "service list", "wait web",
			"health", "ping", "status list", "workflow list", "workflow jobs", "render --dry-run", "agent --once",
		} {
			code := exitUsage
			if line == "update pending" {
				code = exitPending
			}
			if got := h.jorc(strings.Fields(line)...); got.code != code || got.stdout != "" || !strings.Contains(got.stderr, text) {
				t.Errorf("jorc %s: %+v, want exit %d and %q", line, got, code, text)
			}
		}
	}
	want(`Did you mean "cluster"?`)
	if err := os.Remove(filepath.Join(h.dir, "agent.hcl")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("agent.hcl", filepath.Join(h.dir, "agent.hcl")); err != nil { // root may read all but this
		t.Fatal(err)
	}
	want("agent.hcl")
}
