package main

import (
	"strings"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
)

// TestWaitForVersion: it waits until all members that count run the version,
// names the members that failed on the way to it, and reports that no member counts.
func TestWaitForVersion(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, "a", "b")
	do := doer(t, f.env)
	cl := fleet.New(f.server.Client(), "jorc", "prod")
	report := func(node, version string) {
		t.Helper()
		if _, err := cl.ReportVersion(t.Context(), node, version); err != nil {
			t.Fatal(err)
		}
	}
	report("a", "v1")
	inVain(t, f.env, "1 of 2 members are not at version v1", "--for", "version=v1")
	do(result{0, "", ""}, "wait", "--for", "version=v1", "--filter", `Node == "a"`)
	var waiting sync.WaitGroup
	waiting.Go(func() { do(result{0, "", ""}, "wait", "--for", "version=v1", "--timeout", "60s") })
	report("b", "v1")
	waiting.Wait()

	failed := cluster.CategoryState{State: cluster.StateFailed, Version: "v2", Detail: "task \"apply\": exit code 1: no\nno"}
	if _, err := cl.SetState(t.Context(), "b", cluster.CategoryConfig, failed); err != nil {
		t.Fatal(err)
	}
	report("a", "v2")
	do(result{1, "", "jorc: b: config failed: task \"apply\": exit code 1: no\n"}, "wait", "--for", "version=v2", "--timeout", "60s")
	inVain(t, f.env, "2 of 2 members are not at version v3", "--for", "version=v3")

	nobody := result{1, "", "jorc: cluster \"prod\": no member matches: there is nothing to wait for; 'jorc cluster members' lists them\n"}
	do(nobody, "wait", "--for", "version=v1", "--filter", `Node == "z"`)
	do(nobody, "wait", "--filter", `Node == "z"`)
}

// inVain waits until a timeout, and says what for. A timeout may be too short for
// the first read on a busy machine: then a longer one is tried.
func inVain(t *testing.T, env map[string]string, missing string, args ...string) {
	t.Helper()
	var got, want result
	for _, timeout := range []string{"100ms", "1s", "10s"} {
		want = result{124, "", "jorc: timed out after " + timeout + ": " + missing + "\n"}
		if got = jorc(t, env, append([]string{"cluster", "wait", "--timeout", timeout}, args...)...); got == want {
			return
		}
	}
	t.Errorf("jorc cluster wait %v: got %+v, want %+v", args, got, want)
}

// TestRunWithDamagedMember: a member with a damaged record keeps no other
// else from running a workflow, or from waiting for that.
func TestRunWithDamagedMember(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, "a", "b")
	f.orchestrate()
	err := f.server.Client().KVPut(t.Context(), &consul.KVPair{Key: "jorc/prod/host/b/member", Value: []byte("garbage")})
	if err != nil {
		t.Fatal(err)
	}
	do := doer(t, f.env)
	do(result{0, "r\n", "jorc: the run leaves out b: the member record cannot be read; 'jorc cluster members' has the reason\n"},
		"run", "install", "--id", "r", "--wait", "--timeout", "60s")
	do(result{0, "", ""}, "wait", "--filter", `Node == "a"`, "--timeout", "60s")
}

// TestWaitBesideCaller: a job that waits for the cluster to be idle does not wait
// for its own run, nor for what only its own node has not done.
func TestWaitBesideCaller(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, "a", "b")
	f.orchestrate()
	do := doer(t, f.env)
	do(result{0, "mine\n", ""}, "run", "linger", "--filter", `Node == "a"`, "--id", "mine")
	c := fleet.New(f.server.Client(), "jorc", "prod")
	if _, err := c.SetState(t.Context(), "a", cluster.CategoryConfig, cluster.CategoryState{State: "pending"}); err != nil {
		t.Fatal(err)
	}
	do(result{0, "", ""}, "wait", "--except-run", "mine", "--except-node", "a", "--timeout", "60s")
	inVain(t, f.env, "in progress: run mine, a (config)")
	inVain(t, f.env, "in progress: a (config)", "--except-run", "mine")
	do(result{0, "queued\n", ""}, "run", "install", "--id", "queued")
	do(result{0, "", ""}, "wait", "--except-run", "mine", "--except-node", "a", "--timeout", "60s") // b runs it, a waits for the caller
	inVain(t, f.env, "in progress: run queued, a (config)", "--except-run", "mine")
	do(result{2, "", "jorc: --except-run and --except-node need --for idle; see 'jorc cluster wait --help'\n"}, "wait", "--for", "run=queued", "--except-run", "mine")
}

// TestWaitForRollout: a rollout by a policy that continues, or waits to, is in
// progress for members that are not at the version yet; a paused one is not, and of one
// that cannot be read that is not known.
func TestWaitForRollout(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, "a", "b")
	do := doer(t, f.env)
	if _, err := fleet.New(f.server.Client(), "jorc", "prod").ReportVersion(t.Context(), "a", "v2"); err != nil {
		t.Fatal(err)
	}
	update := func(args ...string) {
		t.Helper()
		if got := jorc(t, f.env, append([]string{"update"}, args...)...); got.code != 0 {
			t.Fatalf("jorc update %v: %+v", args, got)
		}
	}
	do(result{0, "", ""}, "wait")
	update("trigger", "v2", "--canary", "1")
	busy := "in progress: rollout of v2 (waiting)"
	inVain(t, f.env, busy)
	do(result{0, "", ""}, "wait", "--filter", `Node == "a"`)
	inVain(t, f.env, busy, "--filter", `Node == "b"`)
	update("pause")
	do(result{0, "", ""}, "wait")
	update("resume")
	inVain(t, f.env, busy)
	if err := f.server.Client().KVPut(t.Context(), &consul.KVPair{Key: "jorc/prod/current/version", Value: []byte("garbage")}); err != nil {
		t.Fatal(err)
	}
	if got := jorc(t, f.env, "cluster", "wait"); got.code != 1 || !strings.Contains(got.stderr, "cannot read the state of the rollout") {
		t.Errorf("with a damaged rollout: %+v", got)
	}
	update("trigger", "v3")
	do(result{0, "", ""}, "wait")
}
