package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// oldHost is a host whose cron job calls the old orchestrator's Python module,
// which deploy/compat turns into jorc.
type oldHost struct {
	t   *testing.T
	dir string
	env []string
}

func newOldHost(t *testing.T, s *consultest.Server) *oldHost {
	t.Helper()
	compat, err := filepath.Abs("../../deploy/compat")
	if err != nil {
		t.Fatal(err)
	}
	h := &oldHost{t: t, dir: t.TempDir()}
	conf := filepath.Join(h.dir, "jorc.hcl")
	h.write(conf, `service "keystone" { port = 5000 }`)
	h.env = []string{
		"PATH=" + strings.Join([]string{h.dir, compat, filepath.Dir(builtOnce(t)), os.Getenv("PATH")}, ":"),
		"CONSUL_IP=" + s.IP, "ROOT=" + h.dir, "JORC_CLUSTER=", "JORC_PREFIX=",
		"JORC_VERSION_FILE=" + filepath.Join(h.dir, "version"), "JORC_STATE_DIR=" + filepath.Join(h.dir, "state"), "JORC_CONFIG=" + conf,
	}
	h.write(filepath.Join(h.dir, "token"), "abcdef")
	h.stub("puppet", 0)
	h.stub("run-parts", 0)
	return h
}

func (h *oldHost) write(name, content string) {
	h.t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o755); err != nil {
		h.t.Fatal(err)
	}
}

// stub makes a program that counts its calls and exits with code.
func (h *oldHost) stub(name string, code int) {
	h.t.Helper()
	h.write(filepath.Join(h.dir, name), "#!/bin/sh\necho >>\"$ROOT/"+name+".calls\"\nexit "+string(rune('0'+code))+"\n")
}

// calls returns how often a stub was called.
func (h *oldHost) calls(name string) int {
	data, _ := os.ReadFile(filepath.Join(h.dir, name+".calls")) // not called yet: no file
	return strings.Count(string(data), "\n")
}

func (h *oldHost) run(name string, args ...string) (code int, output string) {
	h.t.Helper()
	cmd := exec.CommandContext(h.t.Context(), name, args...)
	cmd.Env = h.env
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		h.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// script runs the cron job.
func (h *oldHost) script(code int, says string, puppet int) {
	h.t.Helper()
	before := h.calls("puppet")
	got, out := h.run("testdata/alias/cron-upgrade.sh")
	if ran := h.calls("puppet") - before; got != code || !strings.Contains(out, says) || ran != puppet {
		h.t.Errorf("the script exits %d and runs Puppet %d times; want %d, %q and %d times:\n%s", got, ran, code, says, puppet, out)
	}
}

// TestOldHostScript runs a cron job of the old system unchanged: it upgrades,
// repairs after a failed Puppet run and after a failed validation, and respects
// a hold.
func TestOldHostScript(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	h := newOldHost(t, s)
	jorc := func(want int, args ...string) string {
		t.Helper()
		code, out := h.run(filepath.Join("../../deploy/compat", "orchestrate"), append([]string{"--host", s.IP}, args...)...)
		if code != want {
			t.Errorf("orchestrate %v exits %d, want %d:\n%s", args, code, want, out)
		}
		return out
	}
	h.script(0, "nothing triggered", 1)
	jorc(0, "trigger_update", "v1")
	h.script(0, "upgrade to v1", 1)
	wantInCatalog(t, s, "keystone")
	h.script(0, "up to date", 0)

	h.stub("run-parts", 1)
	h.script(1, "up to date", 0)
	jorc(1, "local_health")
	for args, want := range map[string]string{"resolve keystone": "5000", "export --format hiera": "services::keystone::lan:"} {
		code, out := h.run(builtOnce(t), strings.Fields("--http-addr "+s.HTTPAddr+" service "+args)...)
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("of a host that fails its validation: jorc service %s exits %d: %s", args, code, out)
		}
	}
	h.stub("run-parts", 0)
	h.script(0, "repair: SERVICE", 1) // the failed validation makes it run Puppet
	h.script(0, "up to date", 0)

	jorc(0, "trigger_update", "v2")
	h.stub("puppet", 4)
	h.script(1, "upgrade to v2", 1)
	h.stub("puppet", 2)
	h.script(0, "upgrade to v2", 1+1) // and once more, since validation_service failed
	h.script(0, "up to date", 0)

	hold := filepath.Join(h.dir, "state", "hold")
	h.write(hold, "maintenance")
	h.script(0, "puppet is disabled", 0)
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	jorc(0, "check_puppet")
}

// TestOldCommands: what the old orchestrator had beside is supported or refused
// with what to use instead.
func TestOldCommands(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	for _, test := range []struct {
		args string
		code int
		says string
	}{
		{"--discovery_token=x current_version", 0, ""},
		{"--discovery_token x --host " + s.IP + " current_version", 0, ""},
		{"--discovery_token=x ping", 2, "discovery_token"},
		{"--discovery_token", 2, "needs a value"},
		{"update_own_status puppet_service 6", 0, ""},
		{"local_health", 1, ""},
		{"update_own_status puppet_service 2", 0, ""},
		{"local_health", 0, ""},
		{"update_own_status validation_service -1", 0, ""},
		{"local_health -v", 1, ""},
		{"update_own_status validation_service 0", 0, ""},
		{"update_own_status nope 0", 1, "unknown type"},
		{"check_puppet", 0, ""},
		{"debug_timeout 10", 2, "use 'jorc update why'"},
		{"upgrade_status", 2, "use 'jorc update show'"},
		{"enable_puppet --value True", 2, "use 'jorc cluster unhold"},
		{"set_config a b", 2, "use 'jorc cluster profile set"},
		{"manage_config", 2, "use 'jorc cluster profile"},
		{"host_data", 2, "use 'jorc cluster profile get"},
	} {
		if got := jorc(t, env, strings.Fields(test.args)...); got.code != test.code || !strings.Contains(got.stderr, test.says) {
			t.Errorf("jorc %s: %+v, want exit %d and %q", test.args, got, test.code, test.says)
		}
	}
	// A bootstrap that fails makes the host unhealthy for its script, and drops none
	// of its services from answers.
	if got := jorc(t, env, "publish_service", s.IP, "keystone"); got.code != 0 {
		t.Fatalf("publish_service: %+v", got)
	}
	for _, kind := range []string{"puppet", "validation"} {
		for _, step := range []struct {
			args, says string
			code       int
		}{
			{"update_own_status " + kind + " 1", "", 0},
			{"local_health", "", 1},
			{"service resolve keystone --port-only", "", 0},
			{"service export --format hiera", "services::keystone::", 0},
			{"update_own_status " + kind + " 0", "", 0},
			{"local_health", "", 0},
		} {
			if got := jorc(t, env, strings.Fields(step.args)...); got.code != step.code || !strings.Contains(got.stdout, step.says) {
				t.Errorf("%s failed: jorc %s: %+v, want exit %d and %q", kind, step.args, got, step.code, step.says)
			}
		}
	}
	got := jorc(t, env, "cluster", "hold", "--node", s.Node, "--reason", "disk")
	if got.code != 0 {
		t.Fatalf("hold: %+v", got)
	}
	if got := jorc(t, env, "check_puppet"); got.code != checkPuppetHeld || !strings.Contains(got.stderr, "disk") {
		t.Errorf("check_puppet of a held host: %+v, want exit %d and the reason", got, checkPuppetHeld)
	}
}
