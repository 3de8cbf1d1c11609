package main

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/stage"
)

// TestStageCommands: the commands show what stopped a stage and approve it, and say
// what is wrong.
func TestStageCommands(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, "web-1", "web-2")
	do := func(want result, args ...string) {
		t.Helper()
		if got := jorc(t, f.env, args...); got != want {
			t.Errorf("%v: got %+v, want %+v", args, got, want)
		}
	}
	do(result{0, "[]\n", ""}, "stage", "list", "-o", "json")
	do(result{1, "", "jorc: stage \"edge\": no such stage; there are no stages\n"}, "stage", "show", "edge")

	cl := fleet.New(f.server.Client(), "jorc", "prod")
	limit := cluster.StageInputs{List: []cluster.StageInput{{Name: "key app/limit", Digest: "d1"}}}
	policy := cluster.StagePolicy{MaxParallel: "1"}
	for node, report := range map[string]cluster.StageReport{
		"web-1": {Policy: policy, Taken: limit, State: cluster.StageRestored, Reason: "its checks fail: web: critical", Wants: "c1", Changed: limit},
		"web-2": {Policy: policy, Wants: "c1", Changed: limit},
	} {
		if _, err := cl.ReportWriter(node).Change(t.Context(), func(r cluster.Report) (cluster.Report, error) {
			if report.State != "" {
				r = r.WithAnswer(cluster.Answer{Change: cluster.FilesChange("edge"), ID: "1.1.s", Tag: "c1", State: cluster.GrantDone})
			}
			return r.WithStage("edge", report), nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	stops := kv.NewDoc[stage.Stops](kv.New(f.server.Client(), "jorc/prod"), cluster.StageStopsKey("edge"), 1)
	stop := stage.Stops{Stops: []stage.Stop{{Node: "web-1", Grant: "1.1.s", Content: "c1", Inputs: limit, Reason: "its checks fail: web: critical"}}}
	if _, err := stops.CompareAndSwap(t.Context(), kv.Entry[stage.Stops]{}, stop); err != nil {
		t.Fatal(err)
	}

	got := jorc(t, f.env, "stage", "show", "edge", "-o", "plain")
	if want := "web-1\tstopped\t\tkey app/limit\tits checks fail: web: critical\n"; got.code != 0 || !strings.HasPrefix(got.stdout, want) ||
		!strings.Contains(got.stderr, "no orchestrator runs") {
		t.Errorf("got %+v", got)
	}
	if got := jorc(t, f.env, "stage", "resume", "edge", "--during-freeze", ""); got.code != exitUsage {
		t.Errorf("a reason that is missing: %+v", got)
	}
	do(result{0, "web-2\tkey app/limit\n", ""}, "stage", "resume", "edge", "--node", "web-2", "--during-freeze", "a hole in the fence", "-o", "plain")
	if got := jorc(t, f.env, "stage", "show", "edge", "-o", "plain"); !strings.Contains(got.stdout, "\tduring freeze\t") || !strings.Contains(got.stdout, "a hole in the fence") {
		t.Errorf("during a freeze: %+v", got)
	}
	do(result{1, "", "jorc: stage \"egde\": no such stage, did you mean \"edge\"?; stages: edge\n"}, "stage", "resume", "egde")
	f.env["JORC_NODE"] = "web-2" // as a task has it: the stop of another host is meant, too
	do(result{0, "web-1\tkey app/limit\tits checks fail: web: critical\n", ""}, "stage", "resume", "edge", "-o", "plain", "--reason", "it was the load")
	delete(f.env, "JORC_NODE")
	do(result{1, "", "jorc: stage \"edge\": not stopped\n"}, "stage", "resume", "edge")
	if e, err := stops.Get(t.Context()); err != nil || e.Value.Stops[0].Resumed == nil || e.Value.Stops[0].Resumed.Reason != "it was the load" {
		t.Errorf("got %+v, %v", e.Value, err)
	}
	do(result{1, "", "jorc: stage \"edge\": no step waits for approval: no host has it with approve_each\n"}, "stage", "approve", "edge")
	policy.ApproveEach = true
	if _, err := cl.ReportWriter("web-2").Change(t.Context(), func(r cluster.Report) (cluster.Report, error) {
		return r.WithStage("edge", cluster.StageReport{Policy: policy, Wants: "c1", Changed: limit}), nil
	}); err != nil {
		t.Fatal(err)
	}
	do(result{1, "", "jorc: stage \"edge\": no step waits for approval\n"}, "stage", "approve", "edge")
	book := kv.NewDoc[stage.Book](kv.New(f.server.Client(), "jorc/prod"), cluster.StageStateKey("edge"), 1)
	step := &stage.Step{
		Number: 1, Kind: stage.StepCanary, Size: 1, Hosts: map[string]bool{"web-1": true}, Inputs: limit,
		Gate: &pace.GateProgress{Baked: true, Passed: true, Answer: "0 errors"},
	}
	if _, err := book.CompareAndSwap(t.Context(), kv.Entry[stage.Book]{}, stage.Book{Step: step}); err != nil {
		t.Fatal(err)
	}
	got = jorc(t, f.env, "stage", "show", "edge", "-o", "plain")
	if got.code != 0 || !strings.Contains(got.stdout, "the canary\tgate\t") || !strings.Contains(got.stdout, "waits: 'jorc stage approve edge'") {
		t.Errorf("got %+v", got)
	}
	do(result{0, "the canary\tweb-1\n", ""}, "stage", "approve", "edge", "-o", "plain", "--reason", "it is quiet")
	do(result{1, "", "jorc: stage \"edge\": no step waits for approval\n"}, "stage", "approve", "edge")
	if e, err := book.Get(t.Context()); err != nil || e.Value.Step.Approved == nil || e.Value.Step.Approved.Reason != "it is quiet" {
		t.Errorf("got %+v, %v", e.Value, err)
	}
	stopped, err := stops.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	step.Gate = &pace.GateProgress{Failed: true}
	again, err := book.Get(t.Context())
	if err == nil {
		_, err = book.CompareAndSwap(t.Context(), again, stage.Book{Step: step})
	}
	if err == nil {
		_, err = stops.CompareAndSwap(t.Context(), stopped, stage.Stops{Stops: []stage.Stop{{Step: "the canary", Inputs: limit, Reason: "7 % errors"}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	do(result{1, "", "jorc: stage \"edge\": no step waits for approval: the canary is stopped, the change failed after the canary; nothing was approved: " +
		"set another value, or run 'jorc stage resume edge'\n"}, "stage", "approve", "edge")
	if e, err := book.Get(t.Context()); err != nil || e.Value.Step.Approved != nil {
		t.Errorf("got %+v, %v", e.Value, err)
	}
	approved := func(c cluster.AuditRecord) bool { return c.Command == "jorc stage approve edge" }
	if log, err := cl.Changes(t.Context()); err != nil || !slices.ContainsFunc(log.Changes, approved) {
		t.Errorf("the audit has %+v, %v", log, err)
	}
	if log, err := cl.Changes(t.Context()); err != nil || len(log.Changes) == 0 || !slices.ContainsFunc(log.Changes, func(c cluster.AuditRecord) bool { return c.Command == "jorc stage resume edge" }) {
		t.Errorf("the audit has %+v, %v", log, err)
	}
}

// TestStageShowsTheBudget: stage show names the hosts that use the budget up, as update why does, and
// what helps where they failed.
func TestStageShowsTheBudget(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, "web-1", "web-2")
	f.down("web-1")
	store := kv.New(f.server.Client(), "jorc/prod")
	lock, err := store.Lock(t.Context(), cluster.OrchestratorLock, kv.LeaseOptions{Holder: kv.Holder{Node: "boss"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Release(context.WithoutCancel(t.Context())) }) // the server ends, too
	inputs := cluster.StageInputs{List: []cluster.StageInput{{Name: "key app/limit", Digest: "d1"}}}
	if _, err := fleet.New(f.server.Client(), "jorc", "prod").ReportWriter("web-2").Change(t.Context(), func(r cluster.Report) (cluster.Report, error) {
		return r.WithStage("edge", cluster.StageReport{Policy: cluster.StagePolicy{MaxParallel: "1"}, Wants: "c1", Changed: inputs}), nil
	}); err != nil {
		t.Fatal(err)
	}
	for budget, want := range map[string]string{"1": "waiting\t\tkey app/limit\tthe budget: 1 of 1 hosts are out of service: web-1 (", "2": "waiting\t\tkey app/limit\tthe orchestrator offers it a grant next"} {
		if got := jorc(t, f.env, "cluster", "budget", "set", "--max-out", budget); got.code != 0 {
			t.Fatalf("%+v", got)
		}
		got := jorc(t, f.env, "stage", "show", "edge", "-o", "plain")
		if !strings.Contains(got.stdout, want) || strings.Contains(got.stdout, "; they failed: repair them, 'jorc update give-up HOST'") != (budget == "1") {
			t.Errorf("with a budget of %s: %+v, want %q", budget, got, want)
		}
	}
	if got := jorc(t, f.env, "cluster", "budget", "set", "--max-out", "1"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	if got := jorc(t, f.env, "stage", "resume", "edge", "--over-budget", ""); got.code != exitUsage {
		t.Errorf("without a reason: %+v", got)
	}
	if got := jorc(t, f.env, "stage", "resume", "edge", "--over-budget", "two are left", "-o", "plain"); got.stdout != "web-2\tkey app/limit\n" {
		t.Errorf("over the budget: %+v", got)
	}
	if got := jorc(t, f.env, "stage", "show", "edge", "-o", "plain"); lacksAny(got.stdout, "waiting\t\tkey app/limit\tthe orchestrator offers it a grant next", "over budget", "two are left") != nil {
		t.Errorf("over the budget: %+v", got)
	}
}
