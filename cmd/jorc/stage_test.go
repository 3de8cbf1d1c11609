package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/rollout"
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

	cl := cluster.New(f.server.Client(), "jorc", "prod")
	limit := cluster.StageInputs{List: []cluster.StageInput{{Name: "key app/limit", Digest: "d1"}}}
	policy := cluster.StagePolicy{MaxParallel: "1"}
	for node, report := range map[string]cluster.StageReport{
		"web-1": {Policy: policy, Turn: "1", Content: "c1", Taken: limit, State: cluster.StageRestored, Reason: "its checks fail: web: critical", Wants: "c1", Changed: limit},
		"web-2": {Policy: policy, Wants: "c1", Changed: limit},
	} {
		if _, err := cl.ReportWriter(node).Change(t.Context(), func(r cluster.Report) (cluster.Report, error) {
			return r.WithStage("edge", report), nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	stops := kv.NewDoc[stage.Stops](kv.New(f.server.Client(), "jorc/prod"), cluster.StageStopsKey("edge"), 1)
	stop := stage.Stops{Stops: []stage.Stop{{Node: "web-1", Turn: "1", Content: "c1", Inputs: limit, Reason: "its checks fail: web: critical"}}}
	if _, err := stops.CompareAndSwap(t.Context(), kv.Entry[stage.Stops]{}, stop); err != nil {
		t.Fatal(err)
	}

	got := jorc(t, f.env, "stage", "show", "edge", "-o", "plain")
	if want := "web-1\tstopped\t\tkey app/limit\tits checks fail: web: critical\n"; got.code != 0 || !strings.HasPrefix(got.stdout, want) ||
		!strings.Contains(got.stderr, "no orchestrator runs") {
		t.Errorf("got %+v", got)
	}
	do(result{1, "", "jorc: stage \"egde\": no such stage, did you mean \"edge\"?; stages: edge\n"}, "stage", "resume", "egde")
	do(result{0, "web-1\tkey app/limit\tits checks fail: web: critical\n", ""}, "stage", "resume", "edge", "-o", "plain", "--reason", "it was the load")
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
	turns := kv.NewDoc[stage.Turns](kv.New(f.server.Client(), "jorc/prod"), cluster.StageTurnsKey("edge"), 1)
	step := &stage.Step{
		Number: 1, Kind: stage.StepCanary, Size: 1, Hosts: map[string]bool{"web-1": true}, Inputs: limit,
		Gate: &rollout.GateProgress{Baked: true, Passed: true, Answer: "0 errors"},
	}
	if _, err := turns.CompareAndSwap(t.Context(), kv.Entry[stage.Turns]{}, stage.Turns{Seq: 1, Step: step}); err != nil {
		t.Fatal(err)
	}
	got = jorc(t, f.env, "stage", "show", "edge", "-o", "plain")
	if got.code != 0 || !strings.Contains(got.stdout, "the canary\tgate\t") || !strings.Contains(got.stdout, "waits: 'jorc stage approve edge'") {
		t.Errorf("got %+v", got)
	}
	do(result{0, "the canary\tweb-1\n", ""}, "stage", "approve", "edge", "-o", "plain", "--reason", "it is quiet")
	do(result{1, "", "jorc: stage \"edge\": no step waits for approval\n"}, "stage", "approve", "edge")
	if e, err := turns.Get(t.Context()); err != nil || e.Value.Step.Approved == nil || e.Value.Step.Approved.Reason != "it is quiet" {
		t.Errorf("got %+v, %v", e.Value, err)
	}
	stopped, err := stops.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	step.Gate = &rollout.GateProgress{Failed: true}
	again, err := turns.Get(t.Context())
	if err == nil {
		_, err = turns.CompareAndSwap(t.Context(), again, stage.Turns{Seq: 1, Step: step})
	}
	if err == nil {
		_, err = stops.CompareAndSwap(t.Context(), stopped, stage.Stops{Stops: []stage.Stop{{Step: "the canary", Inputs: limit, Reason: "7 % errors"}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	do(result{1, "", "jorc: stage \"edge\": no step waits for approval: the canary is stopped, the change failed after the canary; nothing was approved: " +
		"set another value, or run 'jorc stage resume edge'\n"}, "stage", "approve", "edge")
	if e, err := turns.Get(t.Context()); err != nil || e.Value.Step.Approved != nil {
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
