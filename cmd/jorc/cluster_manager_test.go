package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
)

// TestInterruptedManager: a run whose manager goes down during a task that is not idempotent does
// not repeat the task on another manager; it fails, and --retry-of continues there with that
// task, with --from-start it runs the whole workflow.
func TestInterruptedManager(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.grace = 500 * time.Millisecond
	do := doer(t, f.env)
	note := func(task string) string { return `echo "$JORC_NODE ` + task + `" >>"$DIR/ran"; ` }
	cut := config.Workflow{Name: "cut", Tasks: []config.Task{
		{Name: "one", Idempotent: true, Script: note("one")},
		{Name: "two", Script: note("two") + busyScript},
		{Name: "three", Script: note("three") + `touch "$DIR/three-$JORC_NODE"`},
	}}
	f.member("m1", cluster.RoleManager, cut)
	f.member("m2", cluster.RoleManager, cut)
	f.orchestrate()
	wantRan := func(want string) {
		t.Helper()
		f.eventually("the tasks", func() error {
			if got, _ := os.ReadFile(filepath.Join(f.dir, "ran")); string(got) != want {
				return fmt.Errorf("ran %q, want %q", got, want)
			}
			return nil
		})
	}
	do(result{0, "r1\n", ""}, "run", "cut", "--on-manager", "--id", "r1")
	wantRan("m1 one\nm1 two\n")
	f.down("m1")
	do(result{1, "", "jorc: m1: failed: interrupted: its agent went down while it ran: task \"two\" is not idempotent, so it is not run elsewhere: " +
		"'jorc cluster run --retry-of r1' continues with it, --from-start runs the whole workflow\n"}, "wait", "--for", "run=r1")
	do(result{2, "", "jorc: run: invalid: on a manager it is run once: no filter, role, node or limit applies; see 'jorc cluster run --help'\n"},
		"run", "--retry-of", "r1", "--role", "web")
	wantRan("m1 one\nm1 two\n")
	f.release()
	do(result{0, "r2\n", ""}, "run", "--retry-of", "r1", "--id", "r2", "--wait")
	wantRan("m1 one\nm1 two\nm2 two\nm2 three\n")
	do(result{0, "r3\n", ""}, "run", "--retry-of", "r1", "--from-start", "--id", "r3", "--wait")
	wantRan("m1 one\nm1 two\nm2 two\nm2 three\nm2 one\nm2 two\nm2 three\n")
	do(result{4, "", "jorc: run \"r2\": too late: it succeeded\n"}, "run", "--retry-of", "r2")
}
