package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
)

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
		status set backup running --node n2
		status set puppet --exit-code 2
		status set puppet --exit-code 6
		status set puppet --exit-code -1
		status set provisioned success --host n2
		status set provisioned failed --host n2
		status set config fine
		status set a/b success
		status set config success --host a/b
		status set config success --host=
		update report --version v1 --host=
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
	cl := fleet.New(s.Client(), "jorc", "default")
	for node, state := range map[string]cluster.CategoryState{
		"n3": {State: cluster.StateSuccess, Suspect: "drifted: /etc/x changed after convergence"},
		"n4": {State: cluster.StateFailed, Detail: "task \"a\": exit code 3: no room (attempt 2)\nbegun\nno room", LogURL: "file:///l"},
		"n5": {State: cluster.StateFailed, Detail: "begun\nno room"},
	} {
		if _, err := cl.SetState(t.Context(), node, cluster.CategoryConfig, state); err != nil {
			t.Fatal(err)
		}
	}
	session(t, s, env, "told", `
		update trigger v1
		update report --node n3 --version v1
		status list
		status failures --warnings
		update why n3
		update why n4
		cluster hold --node n3 --reason test
		status decommission n3
		update why n3
		status decommission n4
		status decommission n5
	`)
	foreign := s.Client()
	for _, key := range []string{"running_version/v1/ghost", "status/config/failed/ghost", "running_version/x"} {
		if err := foreign.KVPut(t.Context(), &consul.KVPair{Key: "jorc/default/" + key, Value: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	session(t, s, env, "repair", `
		status repair
		update report --node n1 --version v1
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
		update_own_info --node n2 --version v10
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

// TestUnaccountedReports: a host that runs only scripts is unaccounted for once its
// report of config is older than a day, or of validation than an hour; --ttl changes that.
func TestUnaccountedReports(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	err := s.Client().CatalogRegister(t.Context(), &consul.CatalogRegistration{
		Node: "old", Address: "10.0.0.1", Checks: consul.HealthChecks{{Node: "old", CheckID: "serfHealth", Name: "serf", Status: "passing"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ago := func(d time.Duration) string { return time.Now().Add(-d).UTC().Format(time.RFC3339) }
	report := `{"format":1,"version":"v1","states":{"provisioned":{"state":"success"},"config":{"state":"success","since":"` + ago(30*time.Hour) +
		`"},"validation":{"state":"success","since":"` + ago(2*time.Hour) + `"}}}`
	if err := s.Client().KVPut(t.Context(), &consul.KVPair{Key: "jorc/default/nodes/old", Value: []byte(report)}); err != nil {
		t.Fatal(err)
	}
	const config, validation = "no report of config for more than 24h", "no report of validation for more than 1h"
	for _, test := range []struct {
		flags string
		want  result
	}{
		{"", result{1, "old\t" + config + "; " + validation + "\n", ""}},
		{"--ttl config=36h", result{1, "old\t" + validation + "\n", ""}},
		{"--ttl validation=0", result{1, "old\t" + config + "\n", ""}},
		{"--ttl config=36h --ttl validation=3h", result{}},
		{"--ttl config", result{2, "", "jorc: --ttl is \"config\", but must be CATEGORY=DURATION, such as config=24h; see 'jorc status unaccounted --help'\n"}},
	} {
		if got := jorc(t, env, append([]string{"status", "unaccounted", "-o", "plain"}, strings.Fields(test.flags)...)...); got != test.want {
			t.Errorf("status unaccounted %s: got %+v, want %+v", test.flags, got, test.want)
		}
	}
}

// TestUnaccountedRepeats: the age of a category counts from the last report, also from one
// that changes nothing, and puppet_service and validation_service are reports.
func TestUnaccountedRepeats(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	err := s.Client().CatalogRegister(t.Context(), &consul.CatalogRegistration{
		Node: "old", Address: "10.0.0.1", Checks: consul.HealthChecks{{Node: "old", CheckID: "serfHealth", Name: "serf", Status: "passing"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	state := func(age time.Duration) string {
		return `{"state":"success","version":"v1","since":"` + time.Now().Add(-age).UTC().Format(time.RFC3339) + `"}`
	}
	report := `{"format":1,"version":"v1","states":{"provisioned":{"state":"success"},"puppet":` + state(900*time.Hour) + `,"puppet_service":` + state(30*time.Hour) +
		`,"validation_service":` + state(2*time.Hour) + `,"backup":` + state(3*time.Hour) + `}}`
	if err := s.Client().KVPut(t.Context(), &consul.KVPair{Key: "jorc/default/nodes/old", Value: []byte(report)}); err != nil {
		t.Fatal(err)
	}
	unaccounted := func(want ...string) {
		t.Helper()
		text := ""
		for _, what := range want {
			text += "; no report of " + what
		}
		got := jorc(t, env, "status", "unaccounted", "-o", "plain", "--ttl", "backup=1h")
		if strings.TrimSpace(got.stdout) != strings.TrimPrefix(text, "; ") && got.stdout != "old\t"+strings.TrimPrefix(text, "; ")+"\n" {
			t.Errorf("status unaccounted: %+v, want %q", got, text)
		}
	}
	const backup, config, validation = "backup for more than 1h", "config for more than 24h", "validation for more than 1h"
	unaccounted(backup, config, validation)
	for _, step := range []struct {
		args []string
		want []string
	}{
		{[]string{"status", "set", "backup", "success", "--host", "old"}, []string{config, validation}},
		{[]string{"update_status", "--hostname", "old", "puppet_service", "0"}, []string{validation}},
		{[]string{"update_status", "--hostname", "old", "validation_service", "0"}, nil},
	} {
		if got := jorc(t, env, step.args...); got.code != 0 {
			t.Fatalf("%v: %+v", step.args, got)
		}
		unaccounted(step.want...)
	}
	key := func() uint64 {
		p, _, err := s.Client().KVGet(t.Context(), "jorc/default/nodes/old", consul.Query{})
		if err != nil {
			t.Fatal(err)
		}
		return p.ModifyIndex
	}
	before := key()
	jorc(t, env, "status", "set", "backup", "success", "--host", "old")
	if key() != before {
		t.Error("a report that repeats the one before was written at once")
	}
}
