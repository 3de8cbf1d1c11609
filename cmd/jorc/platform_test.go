package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// TestLinuxOnly: on other systems the agent and what else needs a Linux host say so, with
// exit code 2; an operator's commands do not.
func TestLinuxOnly(t *testing.T) {
	t.Parallel()
	srv, _ := consultest.Shared(t)
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"agent", exitUsage, "jorc: jorc agent: Linux only: this jorc is for darwin/arm64"},
		{"agent --once", exitUsage, "jorc: jorc agent: Linux only: "},
		{"daemon", exitUsage, "jorc: jorc agent: Linux only: "},
		{"dev", exitUsage, "jorc: jorc dev: Linux only: "},
		{"dev --hosts 5", exitUsage, "jorc: jorc dev: Linux only: this jorc is for darwin/arm64"},
		{"render", exitUsage, "jorc: jorc render to files: Linux only: "},
		{"workflow run x", exitUsage, "jorc: jorc workflow run: Linux only: "},
		{"render --diff", exitUsage, "jorc: no configuration: "},
		{"cluster members", exitOK, ""},
		{"ping", exitOK, ""},
	} {
		var stdout, stderr bytes.Buffer
		h := testHost(map[string]string{"CONSUL_HTTP_ADDR": srv.HTTPAddr}, &stdout, &stderr)
		h.build.Platform = "darwin/arm64"
		got := result{code: run(t.Context(), strings.Fields(test.args), h)}
		got.stdout, got.stderr = stdout.String(), stderr.String()
		if got.code != test.code || !strings.HasPrefix(got.stderr, test.want) {
			t.Errorf("%s: got %+v, want %d, %s", test.args, got, test.code, test.want)
		}
	}
}
