package main

import (
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// TestRunWindow: the window of a run and why it begins in a freeze are shown, and the audit has
// them; text that is not a window is a usage error.
func TestRunWindow(t *testing.T) {
	t.Parallel()
	m := newMachine(t, consultest.Start(t), agreementConf)
	m.must("cluster", "init", "default")
	m.must("cluster", "join", "--role", "db")
	for _, args := range [][]string{
		{"--window", "Fri"},
		{"--window", "Mon 10:00-12:00 Europe/Berln"},
		{"--disturbs", "--during-freeze", ""},
		{"--on-manager", "--during-freeze", "x"},
		{"--on-manager", "--over-budget", "x"},
		{"--disturbs", "--over-budget", ""},
	} {
		if got := m.run(append([]string{"cluster", "run", "w"}, args...)...); got.code != exitUsage {
			t.Errorf("cluster run %v: %+v, want exit %d", args, got, exitUsage)
		}
	}
	m.must("cluster", "run", "w", "--id", "r", "--disturbs", "--window", "Sat 10:00-12:00; Sun 10:00-12:00", "--during-freeze", "a hole in the fence", "--over-budget", "two are left")
	if err := lacksAny(m.must("cluster", "runs", "r").stdout, "Sat 10:00-12:00; Sun 10:00-12:00", "DURING FREEZES", "a hole in the fence"); err != nil {
		t.Error(err)
	}
	if err := lacksAny(m.must("cluster", "audit").stdout, "--during-freeze='a hole in the fence'", "--window=Sat 10:00-12:00; Sun 10:00-12:00"); err != nil {
		t.Error(err)
	}
	if got := m.run("cluster", "run", "w", "--id", "r", "--disturbs", "--window", "Sat 10:00-12:00"); got.code != exitConflict {
		t.Errorf("another window under the same id: %+v, want exit %d", got, exitConflict)
	}
}
