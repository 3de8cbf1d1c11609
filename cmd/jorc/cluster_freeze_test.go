package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/consultest"
)

// TestFreeze: freezes are added, listed and removed; what is not a freeze is a usage error,
// and changes nothing.
func TestFreeze(t *testing.T) {
	t.Parallel()
	m := newMachine(t, consultest.Start(t), agreementConf)
	m.must("cluster", "init", "default")
	m.must("cluster", "join", "--role", "db")
	at := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
	list := func() (all []freezeShown) {
		t.Helper()
		if err := json.Unmarshal([]byte(m.must("cluster", "freeze", "list", "-o", "json").stdout), &all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	add := func(args ...string) string {
		t.Helper()
		return strings.TrimSpace(m.must(slices.Concat([]string{"cluster", "freeze", "add", "--reason", "the sale"}, args)...).stdout)
	}
	sale := add("--from", at(time.Hour), "--to", at(2*time.Hour))
	weekend := add("--weekly", "Fri 16:00-Mon 06:00 Europe/Berlin", "--role", "db")
	for _, args := range [][]string{
		{},
		{"--to", at(-time.Hour)},
		{"--from", at(2 * time.Hour), "--to", at(time.Hour)},
		{"--to", "tomorrow"},
		{"--from", "now", "--to", at(time.Hour)},
		{"--weekly", "Fri 16:00-Mon 06:00 Europe/Berln"},
		{"--weekly", "00:00-24:00"},
		{"--weekly", "Fri"},
		{"--weekly", "Sat 00:00-24:00", "--to", at(time.Hour)},
		{"--to", at(90 * time.Minute)},
		{"--weekly", "Sun 10:00-12:00 Europe/Berlin", "--role", "db"},
		{"--to", at(30 * time.Minute), "--reason", ""},
	} {
		if got := m.run(slices.Concat([]string{"cluster", "freeze", "add", "--reason", "x"}, args)...); got.code != exitUsage {
			t.Errorf("freeze add %v: %+v, want exit %d", args, got, exitUsage)
		}
	}
	if got := m.run("cluster", "freeze", "add", "--reason", "x", "--to", at(time.Hour), "--role", "bd"); got.code == 0 || lacks(got.stderr, "bd") != nil {
		t.Errorf("a freeze of a role that no member has: %+v", got)
	}
	all := list()
	if len(all) != 2 || all[0].ID != sale || all[0].State != freezePlanned || all[0].Reason != "the sale" || all[1].ID != weekend || !slices.Equal(all[1].Roles, []string{"db"}) {
		t.Fatalf("the freezes are %+v", all)
	}
	now := add("--to", at(30*time.Minute))
	for _, args := range [][]string{{"cluster", "show"}, {"cluster", "freeze"}} {
		if err := lacks(m.must(args...).stdout, "until "+at(0)[:4]); err != nil {
			t.Error(args, err)
		}
	}
	frozen := "by freeze " + now + ": the sale"
	if err := lacksAny(m.must("update", "trigger", "v1").stderr, "the cluster is frozen until ", frozen); err != nil {
		t.Error(err)
	}
	if err := lacksAny(m.must("update", "show").stdout, "max-parallel 100%", frozen); err != nil {
		t.Error(err)
	}
	if got := m.run("update", "trigger", "v1", "--during-freeze", ""); got.code != exitUsage {
		t.Errorf("a reason that is missing: %+v", got)
	}
	m.must("update", "trigger", "v1", "--during-freeze", "a hole in the fence")
	if got := m.must("update", "show").stdout; lacksAny(got, "during freezes", "a hole in the fence") != nil || strings.Contains(got, frozen) {
		t.Errorf("during a freeze: %s", got)
	}
	wanted := []string{"jorc update trigger v1 --during-freeze='a hole in the fence'", "jorc cluster freeze add --role=db --weekly='Fri 16:00-Mon 06:00 Europe/Berlin'", "the sale"}
	if err := lacksAny(m.must("cluster", "audit").stdout, wanted...); err != nil {
		t.Error(err)
	}
	m.must("cluster", "freeze", "remove", sale)
	m.must("cluster", "freeze", "remove", now)
	if err := lacks(m.must("cluster", "freeze", "remove", sale).stderr, "nothing was changed"); err != nil {
		t.Error(err)
	}
	if all := list(); len(all) != 1 || all[0].ID != weekend {
		t.Errorf("after remove the freezes are %+v", all)
	}
}

// lacksAny is lacks of several texts.
func lacksAny(text string, wanted ...string) error {
	for _, w := range wanted {
		if err := lacks(text, w); err != nil {
			return err
		}
	}
	return nil
}

// TestEnds: holds, pauses and observe-only mode take an end; the same command with another
// end replaces it; what is not an end is a usage error and changes nothing.
func TestEnds(t *testing.T) {
	t.Parallel()
	m := newMachine(t, consultest.Start(t), agreementConf)
	m.must("cluster", "init", "default")
	m.must("cluster", "join", "--role", "db")
	at := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
	for _, command := range [][]string{{"pause"}, {"hold"}, {"hold", "--role", "db"}, {"hold", "--node", "x", "--force"}, {"observe-only", "on"}} {
		command = append([]string{"cluster"}, command...)
		for _, args := range [][]string{
			{"--for", "0"}, {"--for", "0s"}, {"--for", "-1h"}, {"--for", "soon"}, {"--until", at(-time.Minute)}, {"--until", "tomorrow"}, {"--for", "1h", "--until", at(time.Hour)},
		} {
			if got := m.run(append(slices.Clone(command), args...)...); got.code != exitUsage {
				t.Errorf("%v %v: %+v, want exit %d", command, args, got, exitUsage)
			}
		}
		if got := m.must("cluster", "show").stdout; strings.Contains(got, " left)") {
			t.Fatalf("%v: what was refused holds: %s", command, got)
		}
		end := at(3 * time.Hour)
		m.must(append(slices.Clone(command), "--for", "1h", "--reason", "disks")...)
		m.must(append(slices.Clone(command), "--until", end)...)
		if err := lacks(m.must("cluster", "show").stdout, " until "+end+": disks ("); err != nil {
			t.Errorf("%v: %v", command, err)
		}
		m.must(command...) // without an end
		if got := m.must("cluster", "show").stdout; strings.Contains(got, " left)") {
			t.Errorf("%v: the end stays: %s", command, got)
		}
	}
}
