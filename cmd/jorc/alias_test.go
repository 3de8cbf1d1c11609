package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

// TestHostScript runs a script as hosts have it, with the real program, against
// keys at the root: it updates, it does nothing, it fails, it loses Consul.
func TestHostScript(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	h := newScriptHost(t, s)
	h.runs(0, "just getting started") // nothing was triggered
	h.wantKeys(t)

	h.jorc(t, "trigger_update", "v1")
	h.runs(0, "upgrading to v1")
	h.wantKeys(t, "current_version=v1", "running_version/v1/"+s.Node, "status/puppet/success/"+s.Node, "status/validation/success/"+s.Node)
	if got, err := os.ReadFile(h.file("version")); string(got) != "v1\n" {
		t.Errorf("the version file holds %q, %v", got, err)
	}
	if got, err := os.ReadFile(h.file("upgraded")); string(got) != "v1\n" {
		t.Errorf("the package manager was told %q, %v", got, err)
	}
	if got, err := os.ReadFile(h.file("services.yaml")); !strings.Contains(string(got), "services::consul::lan:") {
		t.Errorf("the services are %q, %v", got, err)
	}

	last := regexp.MustCompile(`last_log_index = \d+`)
	consultest.Eventually(t, "a run without a write", func(context.Context) error {
		before := last.FindString(s.Run("info"))
		h.runs(0, "none")
		if now := last.FindString(s.Run("info")); now != before {
			return fmt.Errorf("raft went from %s to %s", before, now)
		}
		return nil
	})

	h.jorc(t, "trigger_update", "v2")
	h.stub("apply", "exit 4")
	h.runs(1, "puppet failed with return code 4")
	h.wantKeys(t, "current_version=v2", "running_version/v1/"+s.Node, "status/puppet/failed/"+s.Node, "status/validation/success/"+s.Node)
	h.stub("apply", "exit 2")
	h.stub("validate", "exit 3")
	h.runs(1, "validation failed with return code 3")
	h.wantKeys(t, "current_version=v2", "running_version/v1/"+s.Node, "status/puppet/success/"+s.Node, "status/validation/failed/"+s.Node)
	h.stub("validate", "exit 0")
	h.runs(0, "upgrading to v2")
	h.wantKeys(t, "current_version=v2", "running_version/v2/"+s.Node, "status/puppet/success/"+s.Node, "status/validation/success/"+s.Node)

	s.Stop()
	h.runs(3, "no clue")
}

// scriptHost is a host with a script of its own.
type scriptHost struct {
	t      *testing.T
	server *consultest.Server
	dir    string
	env    []string
}

func newScriptHost(t *testing.T, s *consultest.Server) *scriptHost {
	t.Helper()
	h := &scriptHost{t: t, server: s, dir: t.TempDir()}
	h.env = []string{
		"PATH=" + filepath.Dir(builtOnce(t)) + ":" + os.Getenv("PATH"), "CONSUL_IP=" + s.IP, "ROOT=" + h.dir,
		"JORC_VERSION_FILE=" + h.file("version"), "JORC_STATE_DIR=" + h.dir, consultest.NoConfig,
	}
	h.stub("upgrade", `echo "$1" >"$ROOT/upgraded"`)
	h.stub("apply", "exit 2")
	h.stub("validate", "exit 0")
	return h
}

func (h *scriptHost) file(name string) string { return filepath.Join(h.dir, name) }

func (h *scriptHost) stub(name, body string) {
	h.t.Helper()
	if err := os.WriteFile(h.file(name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		h.t.Fatal(err)
	}
}

// runs runs the script and wants its exit code and words in its output.
func (h *scriptHost) runs(code int, says string) {
	h.t.Helper()
	cmd := exec.CommandContext(h.t.Context(), "testdata/alias/maybe-upgrade.sh")
	cmd.Env = h.env
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != code || !strings.Contains(string(out), says) {
		h.t.Errorf("the script exits %d, want %d and %q:\n%s", got, code, says, out)
	}
}

func (h *scriptHost) jorc(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "jorc", append([]string{"--host", h.server.IP, "--port=8500", "--prefix", "", "--cluster", ""}, args...)...)
	cmd.Path, cmd.Env = builtOnce(t), h.env
	cmd.Err = nil
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("jorc %v: %v\n%s", args, err, out)
	}
}

// wantKeys wants these keys at the root (name, or name=value), and no others
// but documents.
func (h *scriptHost) wantKeys(t *testing.T, want ...string) {
	t.Helper()
	pairs, _, err := h.server.Client().KVList(t.Context(), "", consul.Query{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range pairs {
		switch {
		case strings.HasPrefix(p.Key, "nodes/"):
		case p.Key == "current_version":
			got = append(got, p.Key+"="+string(p.Value))
		default:
			got = append(got, p.Key)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys (-want +got)\n%s", diff)
	}
}

// TestLegacyAddress: --host and --port stand in front of the names that
// existing scripts use, and nowhere else.
func TestLegacyAddress(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ args, want string }{
		{"--host 10.0.0.1 --port 85 current_version", "--http-addr=10.0.0.1:85 current_version"},
		{"--port=85 --host=::1 current_version", "--http-addr=[::1]:85 current_version"},
		{"--host 10.0.0.1 current_version", "--http-addr=10.0.0.1:8500 current_version"},
		{"--port 85 update_own_status puppet -1 --hostname h", "--http-addr=127.0.0.1:85 update_own_status --hostname=h -- puppet -1"},
		{"-host h --prefix= current_version", "--prefix= --http-addr=h:8500 current_version"},
		{"--host h help current_version", "current_version --help"},
		{"--host h update current", "unknown flag --host: it belongs after its command: jorc cluster events --host; see 'jorc --help'"},
		{"--port 1 version", "unknown flag --port; see 'jorc --help'"},
		{"--host", "flag --host needs a value; see 'jorc --help'"},
		{"--host h", "unknown flag --host: it belongs after its command: jorc cluster events --host; see 'jorc --help'"},
		{"current_version --host h", "unknown flag --host; see 'jorc current_version --help'"},
		{"update report --host h --version v", "update report --host=h --version=v"},
		{"--version update report", "--version update report"},
		{"update report --version", "flag --version needs a value; see 'jorc update report --help'"},
	} {
		got, err := arrange(newApp(testHost(nil, &bytes.Buffer{}, &bytes.Buffer{})), strings.Fields(test.args))
		text := strings.Join(got, " ")
		if err != nil {
			text = err.Error()
		}
		if text != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.args, text, test.want)
		}
	}
}

// TestLegacyVersionFile: these names have a version file of their own, unless
// told otherwise.
func TestLegacyVersionFile(t *testing.T) {
	t.Parallel()
	mine := filepath.Join(t.TempDir(), "version")
	env := map[string]string{"JORC_VERSION_FILE": mine}
	for _, args := range [][]string{{"local_version"}, {"local_version", "v1"}, {"local_version"}, {"--version-file", mine, "local_version"}} {
		want := result{0, "", ""}
		if _, err := os.Stat(mine); err == nil && len(args) != 2 {
			want.stdout = "v1\n"
		}
		if got := jorc(t, env, args...); got != want {
			t.Errorf("jorc %v: %+v, want %+v", args, got, want)
		}
	}
	if got := jorc(t, nil, "update_own_info"); !strings.Contains(got.stderr, "/nonexistent/etc/current_version") {
		t.Errorf("by default: %+v", got)
	}
}
