package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/rollout"
)

// operated is a cluster that a test operates by commands.
type operated struct {
	t   *testing.T
	s   *consultest.Server
	env map[string]string
}

func newOperated(t *testing.T) *operated {
	t.Helper()
	o := &operated{t: t, s: consultest.Start(t)}
	o.env = onServer(t, o.s)
	o.env["USER"] = "ann"
	if _, err := fleet.New(o.s.Client(), "jorc", "default").Init(t.Context(), fleet.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	members(t, o.s, "n1", "n2", "n3")
	return o
}

func (o *operated) run(line string) result {
	o.t.Helper()
	args := strings.Fields(line)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "@", " ") // within an argument
	}
	return jorc(o.t, o.env, args...)
}

// want runs a command and wants its code and parts of what it prints.
func (o *operated) want(line string, code int, parts ...string) {
	o.t.Helper()
	got := o.run(line)
	if got.code != code {
		o.t.Errorf("jorc %s exits %d, want %d: %s%s", line, got.code, code, got.stdout, got.stderr)
	}
	for _, part := range parts {
		if !strings.Contains(got.stdout+got.stderr, part) {
			o.t.Errorf("jorc %s prints no %q:\n%s%s", line, part, got.stdout, got.stderr)
		}
	}
}

func (o *operated) report(version string, names ...string) {
	o.t.Helper()
	for _, node := range names {
		if _, err := fleet.New(o.s.Client(), "jorc", "default").ReportVersion(o.t.Context(), node, version); err != nil {
			o.t.Fatal(err)
		}
	}
}

func (o *operated) document() rollout.Document {
	o.t.Helper()
	s, err := rollout.New(o.s.Client(), "jorc", "default").Load(o.t.Context())
	if err != nil {
		o.t.Fatal(err)
	}
	return s.Document
}

// record makes the record of a member name workflows, as its agent would.
func (o *operated) record(node string, workflows, static []string) {
	o.t.Helper()
	if _, err := fleet.New(o.s.Client(), "jorc", "default").Join(o.t.Context(), node, func(r cluster.Record) (cluster.Record, error) {
		r.Workflows, r.Static = workflows, static
		return r, nil
	}); err != nil {
		o.t.Fatal(err)
	}
}

// TestRollback: the version before, with the limits of the policy and without its gates,
// consent and windows unless they are asked for, in the name of its author; refused when it is not known.
func TestRollback(t *testing.T) {
	t.Parallel()
	o := newOperated(t)
	o.want("update rollback", 1, "no rollout under way")
	o.want("update trigger v1 --max-parallel 2", 0)
	o.want("update rollback", 1, "no version to go back to", "--to")
	o.report("v1", "n1", "n2", "n3")
	o.want("update trigger v2 --batches 1,100% --max-parallel 2 --bake 1m --gate slo --approve-each --zone-by-zone --order worker --window Sun@01:00-02:00@UTC", 0)
	o.report("v2", "n1")
	o.want("update rollback --to v2", 1, "v2 is the desired version")
	o.want("update rollback --to a/b", 2)
	const does = "the rollback does without bake 1m0s, gate slo, gate-timeout 1h0m0s, approve-each, window"
	o.want("update rollback --dry-run", 0, "dry run: v1 would be desired (batches 1,100%, max-parallel 2, max-failures 0, zone-by-zone, order worker, on-failure pause)",
		"batch 2 of 2: 1 member is admitted", does, "and waits for no freeze; --with-gates asks for them", "Limits such as --max-parallel and the budget hold")
	o.want("update rollback --dry-run --with-gates", 0, "bake 1m0s, gate slo", "window", "the rollback passes gates")
	var dry rollout.Triggered
	if got := o.run("update rollback --dry-run -o json"); json.Unmarshal([]byte(got.stdout), &dry) != nil || !strings.Contains(dry.Note, does) {
		t.Errorf("as JSON: %s", got.stdout)
	}
	if d := o.document(); d.Version != "v2" {
		t.Errorf("a dry run wrote %+v", d)
	}
	o.want("update rollback --reason slow", 0, "v1", "the rollout of v2 was unfinished")
	d := o.document()
	if d.Version != "v1" || d.Previous != "v1" || !strings.Contains(d.By, "ann") || d.Policy.Gated() || len(d.Policy.Windows) > 0 || !d.Promoted ||
		len(d.Policy.Batches) != 2 || !d.Policy.ZoneByZone || len(d.Policy.Order) != 1 || d.RollbackOf == nil || *d.RollbackOf != (rollout.Rollback{Version: "v2", Reason: "slow"}) {
		t.Errorf("rolled back: %+v", d)
	}
	o.want("update show", 0, "rolled back", "v2: slow")
	o.want("update rollback", 1, "no version to go back to")
	o.want("update rollback --to v0", 0, "v0")
	if d := o.document(); d.Version != "v0" || d.RollbackOf.Version != "v1" || d.RollbackOf.Reason == "" {
		t.Errorf("rolled back to v0: %+v", d)
	}
	o.want("update trigger v3 --approve-each --window Sun@01:00-02:00@UTC", 0)
	o.want("update rollback --to v1 --with-gates", 0, "as --with-gates asks for them")
	if d := o.document(); !d.Policy.ApproveEach || len(d.Policy.Windows) != 1 || d.Promoted || !d.RollbackOf.WithGates {
		t.Errorf("rolled back with gates: %+v", d)
	}
}

// TestPreflight: a trigger names what stands in the way before it writes, and with
// --require-converged writes nothing then.
func TestPreflight(t *testing.T) {
	t.Parallel()
	o := newOperated(t)
	o.want("update trigger v1 --max-parallel 2", 0)
	o.report("v1", "n1", "n2", "n3")
	const next = "update trigger v2 --max-parallel 2 "
	o.want(next+"--require-converged --dry-run", 0)
	for _, test := range []struct{ make, undo, text string }{
		{"cluster hold --node n2 --reason disk", "cluster unhold --node n2", "n2: it is held"},
		{"cluster pause --reason storage", "cluster resume", "the cluster is paused"},
	} {
		o.want(test.make, 0)
		o.want(next+"--dry-run", 0, test.text)
		o.want(next+"--require-converged", 1, "the members have not converged", test.text)
		if d := o.document(); d.Version != "v1" {
			t.Errorf("after %s a refused trigger wrote %+v", test.make, d)
		}
		o.want(test.undo, 0)
	}
	o.want("cluster hold --node n2 --reason disk", 0)
	o.want("cluster pause --reason storage", 0)
	o.want(next+"--require-converged", 1, "the members have not converged", "n2: it is held", "the cluster is paused")
	o.report("v0", "n1")
	o.want(next+"--require-converged", 1, "1 is not at v1: n1", "n2: it is held", "the cluster is paused")
	o.report("v1", "n1")
	o.want("cluster resume", 0)
	o.want("cluster unhold --node n2", 0)
	o.want(next+"--gate slo --dry-run", 0, `no manager is up: gate "slo" is asked on the orchestrator's host`)
	o.want(next+"--gate slo --dry-run --require-converged", 0)
	for _, test := range []struct {
		node              string
		workflows, static []string
		text              string
		refused           int
	}{
		{"n2", []string{"other"}, []string{"converge", "validate"}, `n2: its static block names workflow "converge", which its host does not define`, 1},
		{"n2", []string{"converge"}, []string{"converge", "validate"}, `n2: its static block names workflow "validate", which its host does not define`, 1},
		{"n3", []string{"converge"}, []string{}, "n3: its configuration has no static block", 1},
		{"n3", nil, []string{"converge"}, "", 0}, // not known
		{"n3", []string{"converge"}, []string{"converge"}, "", 0},
	} {
		o.record(test.node, test.workflows, test.static)
		o.want(next+"--dry-run", 0, test.text)
		o.want(next+"--require-converged --dry-run", test.refused, test.text)
		o.record(test.node, nil, nil)
	}
	o.record("n3", []string{}, []string{})
	o.want("update trigger v2 --dry-run", 0, "v2 would be desired") // a script may report the version
	o.record("n3", nil, nil)
	members(t, o.s, "boss")
	o.want("cluster join --node boss --role manager", 0)
	o.record("boss", []string{"other"}, []string{})
	o.want(next+"--gate slo --dry-run", 0, `boss: no manager that is up defines gate "slo"`)
	o.want(next+"--gate slo --dry-run --require-converged", 1, `boss: no manager that is up defines gate "slo"`)
	o.record("boss", []string{"slo"}, []string{})
	o.want(next+"--gate slo --dry-run --require-converged", 0)
	if err := o.s.Client().KVPut(t.Context(), &consul.KVPair{Key: "jorc/default/nodes/n3", Value: []byte("{")}); err != nil {
		t.Fatal(err)
	}
	o.want(next+"--dry-run", 0, "nodes/n3: the document cannot be read")
	got := o.run(next + "--dry-run -o json")
	var answer rollout.Triggered
	if err := json.Unmarshal([]byte(got.stdout), &answer); err != nil || len(answer.Obstacles) != 1 || answer.Obstacles[0].Kind != rollout.ObstacleUnreadable {
		t.Errorf("as JSON: %+v, %v", answer.Obstacles, err)
	}
	o.want(next+"--require-converged", 1)
	o.want(next, 0, "nodes/n3: the document cannot be read")
	if d := o.document(); d.Version != "v2" {
		t.Errorf("it wrote %+v", d)
	}
}
