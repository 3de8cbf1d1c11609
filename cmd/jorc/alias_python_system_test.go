//go:build system

package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// TestPythonModule runs the module of deploy/compat with the host's own Python, as
// old scripts call it: arguments, stdin, output and exit codes are those of jorc.
func TestPythonModule(t *testing.T) {
	t.Parallel()
	found, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output() // what is on PATH may be a wrapper
	if err != nil {
		t.Fatalf("this test needs python3 (apt-get install python3): %v", err)
	}
	python := strings.TrimSpace(string(found))
	compat, err := filepath.Abs("../../deploy/compat")
	if err != nil {
		t.Fatal(err)
	}
	s := consultest.Start(t)
	h := newOldHost(t, s)
	h.env = append(h.env, "PYTHONPATH="+compat, "PYTHONDONTWRITEBYTECODE=1")
	module := func(stdin, line string) result {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), python, append([]string{"-m", "jiocloud.orchestrate"}, strings.Fields(line)...)...)
		var stdout, stderr bytes.Buffer
		cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = h.env, h.dir, strings.NewReader(stdin), &stdout, &stderr
		_ = cmd.Run() // its exit code says how it ended
		if cmd.ProcessState == nil {
			t.Fatalf("%s did not start", python)
		}
		return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	}
	consul := "--host " + s.IP + " --port 8500 --discovery_token=abcdef "
	for _, tt := range []struct {
		stdin, line string
		want        result
	}{
		{"", "current_version", result{0, "None\n", ""}},
		{"", "pending_update", result{3, "", ""}},
		{"", "trigger_update v1", result{0, "", ""}},
		{"", "current_version", result{0, "v1\n", ""}},
		{"", "pending_update", result{0, "", ""}},
		{"", "local_version v1", result{0, "", ""}},
		{"", "local_version", result{0, "v1\n", ""}},
		{"", "update_own_info --hostname " + s.Node, result{0, "", ""}},
		{"", "pending_update", result{1, "", ""}},
		{s.Node + "\n", "verify_hosts v1", result{0, "", ""}},
		{s.Node + "\nweb-2\n", "verify_hosts v1", result{1, "", ""}},
		{"", "update_own_status puppet 4", result{0, "", ""}},
		{"", "local_health", result{1, "", ""}},
		{"", "update_own_status puppet 0", result{0, "", ""}},
		{"", "local_health", result{0, "", ""}},
		{"", "no_such_command", result{2, "", ""}},
	} {
		got := module(tt.stdin, consul+tt.line)
		if got.code != tt.want.code || tt.want.stdout != "" && got.stdout != tt.want.stdout {
			t.Errorf("%s: got %+v, want exit %d and stdout %q", tt.line, got, tt.want.code, tt.want.stdout)
		}
	}

	// The cron job as it was, with a python that has the module.
	h.write(filepath.Join(h.dir, "python"), "#!/bin/sh\nexec "+python+" \"$@\"\n")
	h.script(0, "up to date", 0)
	if got := module("", consul+"trigger_update v2"); got.code != 0 {
		t.Fatalf("trigger_update: %+v", got)
	}
	h.script(0, "upgrade to v2", 1)
	h.script(0, "up to date", 0)

	h.env = append(h.env, "PATH="+h.dir)
	if got := module("", "current_version"); got.code != 127 || !strings.Contains(got.stderr, "cannot run jorc") {
		t.Errorf("without jorc: %+v, want exit 127 and the reason", got)
	}
}
