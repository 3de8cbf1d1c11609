package main

import (
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/runs"
)

// TestRunOnNodes: --node chooses members, and what was asked for is shown with each
// member's exit code.
func TestRunOnNodes(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, "a", "b", "c")
	f.orchestrate()
	do := doer(t, f.env)
	do(result{0, "one\n", ""}, "run", "say", "--node", "b", "--id", "one", "--wait")
	if d := f.show("one"); len(d.Members) != 1 || d.Members[0].Node != "b" || d.State != runs.Done {
		t.Errorf("a run on b: %+v", d)
	}
	do(result{0, "two\n", ""}, "run", "break", "--node", "b", "--node", "a", "--filter", "Node != c", "--id", "two")
	f.eventually("the end of the run", func() error { return is(f.show("two").State, runs.Failed) })
	got := jorc(t, f.env, "cluster", "runs", "two")
	about, members, _ := strings.Cut(got.stdout, "\n\n")
	for _, want := range []string{"break", "a, b, Node != c", "failed", "ann"} {
		if !strings.Contains(about, want) {
			t.Errorf("runs: %q lacks %q", about, want)
		}
	}
	if got.code != 0 || strings.Count(members, "two   3          exit code 3") != 2 {
		t.Errorf("runs: %+v", got)
	}
	if got := jorc(t, f.env, "cluster", "runs", "one", "-o", "plain"); !strings.HasPrefix(got.stdout, "b\tdone\t") || strings.Split(got.stdout, "\t")[4] != "0" {
		t.Errorf("runs of a run that succeeded: %+v", got)
	}
	if got := jorc(t, f.env, "cluster", "runs", "-o", "plain"); !strings.Contains(got.stdout, "\ta, b, Node != c\t") {
		t.Errorf("the list of runs: %+v", got)
	}
	do(result{1, "three\n", "jorc: b: failed: exit code 3: no such disk\n"}, "run", "--retry-of", "two", "--node", "b", "--id", "three", "--wait")
	do(result{4, "", "jorc: run \"two\": too late: c is none of the members on which it did not succeed: a, b\n"},
		"run", "--retry-of", "two", "--node", "c")
	do(result{2, "", "jorc: --node must not be empty; see 'jorc cluster run --help'\n"}, "run", "say", "--node", "")
	if got := jorc(t, f.env, "cluster", "run", "say", "--node", "d"); got.code != 1 || !strings.HasPrefix(got.stderr, `jorc: host "d"`) {
		t.Errorf("a run on a host that does not exist: %+v", got)
	}
	if got := jorc(t, f.env, "cluster", "run", "say", "--node", "a", "--on-manager"); got.code != exitUsage {
		t.Errorf("--node and --on-manager: %+v", got)
	}
}
