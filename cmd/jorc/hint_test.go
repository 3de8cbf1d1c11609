package main

import (
	"strings"
	"testing"
)

// TestHints: a command line that is wrong in a common way is answered with the one that
// was meant, beside the error; the exit code stays.
func TestHints(t *testing.T) {
	t.Parallel()
	_, env := onShared(t)
	for _, test := range []struct {
		line string
		code int
		want string
	}{
		{"trigger v5 --canary 1", exitUsage, "'jorc update trigger v5 --canary 1'"},
		{"-o json trigger v5", exitUsage, "'jorc -o json update trigger v5'"},
		{"members", exitUsage, "'jorc cluster members'"},
		{"cluster hold n1 --reason disks", exitUsage, "'jorc cluster hold --node n1 --reason disks'"},
		{"cluster unhold n1", exitUsage, "'jorc cluster unhold --node n1'"},
		{"cluster lock G systemctl restart nginx", exitUsage, "'jorc cluster lock G -- systemctl restart nginx'"},
		{"cluster lock --max 2 G systemctl --now restart nginx", exitUsage, "'jorc cluster lock --max 2 G -- systemctl --now restart nginx'"},
		{"service resolve web.service.consul", exitFailed, "'jorc service resolve web'"},
		{"service resolve http.web.service.consul.", exitFailed, "'jorc service resolve web --tag http'"},
		{"wait web:2 --tries 1", exitTimeout, "'jorc wait web=2 --tries 1'"},
		{"status set config failed --exit-code 0", exitUsage, "'jorc status set config failed' or 'jorc status set config --exit-code 0'"},
		{"list", exitUsage, ""}, // more commands than a hint names
		{"clutser", exitUsage, ""},
		{"status set", exitUsage, ""},
		{"status set config success --host=", exitUsage, ""}, // nothing but the flag is wrong
		{"cluster hold", 0, ""},
		{"service resolve none", exitFailed, ""},
		{"wait none --tries 1", exitTimeout, ""},
	} {
		got := jorc(t, env, strings.Fields(test.line)...)
		hint := ""
		for line := range strings.Lines(got.stderr) {
			if after, ok := strings.CutPrefix(line, "jorc: hint: "); ok {
				hint += strings.TrimSuffix(after, "\n")
			}
		}
		if got.code != test.code && !(test.code == exitTimeout && got.code == exitUnreachable) || hint != test.want || got.stdout != "" {
			t.Errorf("%s: got %+v, want exit %d and the hint %q", test.line, got, test.code, test.want)
		}
	}
}

// TestSingleOfNoHost: a version that no host runs is said, by both names of the command.
func TestSingleOfNoHost(t *testing.T) {
	t.Parallel()
	_, env := onShared(t)
	for _, line := range []string{"update single v99", "check_single_version v99", "check_single_version v99 -v"} {
		if got, want := jorc(t, env, strings.Fields(line)...), (result{exitFailed, "", "jorc: no host runs version v99\n"}); got != want {
			t.Errorf("%s: got %+v, want %+v", line, got, want)
		}
	}
}
