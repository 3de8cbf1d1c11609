package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

var instant = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// session types commands, one per line, and holds what they print and how they
// exit to a golden file; go test -update writes it. A line "< words" is the
// standard input of the next one; % stands for a space within an argument.
func session(t *testing.T, s *consultest.Server, env map[string]string, name, lines string) {
	t.Helper()
	var text strings.Builder
	stdin := ""
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		line = strings.TrimSpace(line)
		if words, ok := strings.CutPrefix(line, "< "); ok {
			stdin = words
			continue
		}
		var stdout, stderr bytes.Buffer
		h := testHost(env, &stdout, &stderr)
		h.stdin = strings.NewReader(strings.NewReplacer(" ", "\n", "NODE", s.Node).Replace(stdin))
		stdin = ""
		args := strings.Fields(strings.ReplaceAll(line, "NODE", s.Node))
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "%", " ")
		}
		code := run(t.Context(), args, h)
		fmt.Fprintf(&text, "$ jorc %s\n%s%s[exit %d]\n\n", line, stdout.String(), stderr.String(), code)
	}
	got := strings.NewReplacer(s.HTTPAddr, "HTTP", s.Node, "NODE", s.IP, "IP", env["JORC_STATE_DIR"], "STATE").Replace(text.String())
	got = padding.ReplaceAllString(instant.ReplaceAllString(got, "TIME"), "  ")
	file := filepath.Join("testdata", "update", name+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Errorf("%v: run go test ./cmd/jorc -update", err)
		return
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got); go test ./cmd/jorc -update\n%s", file, diff)
	}
}

func TestUpdateSession(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	session(t, s, env, "update", `
		update current
		update current -o json
		update pending
		update local
		update report
		update running
		update single v1
		update why
		update trigger v1 --dry-run
		update trigger v1
		update trigger v1 -o json
		update trigger a/b
		update trigger v%1
		update current
		update pending
		update pending -o json
		update local v1
		update local
		update local -o json
		update local ../v1
		update pending
		update report
		update report --host n2 --version v10
		update report --host n3 --version v1
		update report --version a/b
		update running
		update running -o json
		update hosts v1
		update hosts v1 -o json
		update hosts v
		update verify v1 NODE
		update verify v1 NODE n2 n4
		update verify v1 NODE n2 -o json
		< NODE n3
		update verify v1
		< n2
		update verify v1 NODE -
		update verify v1
		update single v1
		update single v1 -o json
		update single v7
		update trigger v2
		update why
		update why -o json
		update why n2
	`)
	if err := os.WriteFile(filepath.Join(env["JORC_STATE_DIR"], "hold"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	session(t, s, env, "why", `
		cluster init prod --cluster prod
		update why
		cluster pause --reason maintenance
		cluster hold --node NODE
		status set config failed --detail task%puppet
		update why
		update why NODE
	`)
}

func TestStatusSession(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	session(t, s, env, "status", `
		status list
		status list -o json
		status failures
		status failures -o json
		status unaccounted
		status unaccounted -o json
		status set config success
		status set config success --detail again
		status set backup running --host n2
		status set puppet --exit-code 2
		status set puppet --exit-code 6
		status set puppet --exit-code -1
		status set provisioned success --host n2
		status set provisioned failed --host n2
		status set config fine
		status set a/b success
		status set config success --host a/b
		status list
		status list n2
		status list n2 -o json
		status list nobody
		status failures
		status failures --hosts
		status failures --hosts -o json
		status failures -o json
		status failures --warnings
		status unaccounted
		status unaccounted -o json
		status decommission NODE
		status decommission n2
		status decommission n2
		status decommission NODE --yes -o json
		status repair
		status failures
	`)
	foreign := s.Client()
	for _, key := range []string{"running_version/v1/ghost", "status/config/failed/ghost", "running_version/x"} {
		if err := foreign.KVPut(t.Context(), &consul.KVPair{Key: "jorc/default/" + key, Value: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	session(t, s, env, "repair", `
		status repair
		update report --host n1 --version v1
		status repair -o json
		status decommission ghost
	`)
}

func TestAliasSession(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	env["JORC_VERSION_FILE"] = filepath.Join(env["JORC_STATE_DIR"], "current_version")
	session(t, s, env, "alias", `
		current_version
		pending_update
		local_version
		update_own_info
		running_versions
		check_single_version v1
		trigger_update v1
		current_version
		pending_update
		local_version v1
		local_version
		pending_update
		update_own_info
		update_own_info --hostname n2 --version v10
		running_versions
		hosts_at_version v1
		verify_hosts v1 NODE
		verify_hosts v1 NODE n2
		< NODE
		verify_hosts v1
		verify_hosts v1
		check_single_version v1
		check_single_version v1 -v
		update_own_status puppet 0
		update_own_status puppet -1
		update_own_status puppet pending
		update_status validation 0 --hostname n2
		update_status validation 2 --hostname n2
		update_own_status backup 0
		update_own_status puppet fine
		get_failures
		get_failures --hosts
		get_failures --hosts --show_warnings
		local_health
		local_health -v
	`)
}

// TestExitCodes: how each command exits when it is called wrong, when Consul
// is away, and when the token may nothing.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	denied := onServer(t, s)
	denied["CONSUL_HTTP_TOKEN"] = ""
	denied["JORC_NODE"] = "n1"
	file := filepath.Join(denied["JORC_STATE_DIR"], "version")
	if err := os.WriteFile(file, []byte("v1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	denied["JORC_VERSION_FILE"] = file
	away := maps.Clone(denied)
	away["CONSUL_HTTP_ADDR"] = "127.0.0.1:1"
	for _, test := range []struct {
		line         string
		away, denied int
		wrong        string // a wrong call of the same command
		usage        int
	}{
		{"update trigger v1", 3, 5, "update trigger", 2},
		{"update trigger v1 --dry-run", 3, 5, "update trigger a/b", 2},
		{"update current", 3, 5, "update current x", 2},
		{"update pending", 2, 2, "update pending x", 64},
		{"update pending -o json", 2, 2, "update pending --nosuch", 64},
		{"update pending --version-file /nosuch", 3, 3, "--nosuch update pending", 64},
		{"--log-json update pending", 2, 2, "--log-json=maybe update pending", 64},
		{"update local", 0, 0, "update local a b", 2},
		{"update local v1", 0, 0, "update local a/b", 2},
		{"update report", 3, 5, "update report x", 2},
		{"update report --version v2", 3, 5, "update report --version a/b", 2},
		{"update running", 3, 5, "update running x", 2},
		{"update hosts v1", 3, 5, "update hosts", 2},
		{"update verify v1 n1", 3, 5, "update verify", 2},
		{"update single v1", 3, 5, "update single", 2},
		{"update why", 3, 5, "update why a b", 2},
		{"status set config success", 3, 5, "status set config", 2},
		{"status set config --exit-code 0", 3, 5, "status set config success --exit-code 0", 2},
		{"status list", 3, 5, "status list a b", 2},
		{"status list n1", 3, 5, "status list a/b", 2},
		{"status failures", 3, 5, "status failures x", 2},
		{"status unaccounted", 3, 5, "status unaccounted x", 2},
		{"status decommission n1", 3, 5, "status decommission", 2},
		{"status decommission n1 --yes", 3, 5, "status decommission a/b", 2},
		{"status repair", 3, 5, "status repair x", 2},
		{"trigger_update v1", 3, 5, "trigger_update", 2},
		{"current_version", 3, 5, "current_version x", 2},
		{"pending_update", 2, 2, "pending_update x", 64},
		{"local_version", 0, 0, "local_version a b", 2},
		{"update_own_info", 3, 5, "update_own_info x", 2},
		{"running_versions", 3, 5, "running_versions x", 2},
		{"hosts_at_version v1", 3, 5, "hosts_at_version", 2},
		{"verify_hosts v1 n1", 3, 5, "verify_hosts", 2},
		{"check_single_version v1", 3, 5, "check_single_version", 2},
		{"update_status puppet 0", 3, 5, "update_status puppet", 2},
		{"update_own_status validation 0", 3, 5, "update_own_status validation maybe", 2},
		{"get_failures", 3, 5, "get_failures x", 2},
		{"local_health", 3, 5, "local_health x", 2},
		{"publish_service 10.0.0.1 web", 3, 5, "publish_service web", 2},
		{"cache_services --file " + file + ".yaml", 3, 5, "cache_services x", 2},
	} {
		for _, try := range []struct {
			what string
			env  map[string]string
			line string
			want int
		}{{"Consul away", away, test.line, test.away}, {"no rights", denied, test.line, test.denied}, {"wrong usage", denied, test.wrong, test.usage}} {
			got := jorc(t, try.env, strings.Fields(try.line)...)
			if got.code != try.want || got.code != 0 && got.stderr == "" {
				t.Errorf("%s: jorc %s: %+v, want exit %d", try.what, try.line, got, try.want)
			}
			if got.code != 0 && got.stdout != "" && !strings.Contains(try.line, "pending") {
				t.Errorf("%s: jorc %s: an answer with an error: %+v", try.what, try.line, got)
			}
		}
	}
}

// TestRubbish: a version file and a desired version that are none.
func TestRubbish(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	if err := os.WriteFile(filepath.Join(env["JORC_STATE_DIR"], "version"), []byte("\x7fELF\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	session(t, s, env, "rubbish", `
		update local
		update pending
		update report
		update trigger v1
		update pending
		update local v1
		update pending
	`)
	if err := s.Client().KVPut(t.Context(), &consul.KVPair{Key: "jorc/default/current_version", Value: []byte("a b")}); err != nil {
		t.Fatal(err)
	}
	session(t, s, env, "rubbish-desired", `
		update current
		update pending
		update why
		update trigger v2
		update current
	`)
}
