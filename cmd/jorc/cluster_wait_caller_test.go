package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/workflow"
)

// scripts makes a member with a role whose workflows are scripts, in which jorc is the
// program that is tested.
func (f *testFleet) scripts(node, role string, scripts map[string]string) {
	f.t.Helper()
	var all []config.Workflow
	for name, script := range scripts {
		all = append(all, config.Workflow{Name: name, Tasks: []config.Task{{Name: "script", Idempotent: true, Script: "#!/bin/sh -u\n" + script}}})
	}
	f.member(node, role, all...)
}

// member makes a member with a role and workflows.
func (f *testFleet) member(node, role string, all ...config.Workflow) {
	f.t.Helper()
	client, token := f.agentOf(node)
	c := fleet.New(client, "jorc", "prod")
	var names []string
	for _, w := range all {
		names = append(names, w.Name)
	}
	if _, err := c.Join(f.t.Context(), node, func(r cluster.Record) (cluster.Record, error) {
		r.Roles, r.Workflows = []string{role}, cluster.ReportedWorkflows(names)
		return r, nil
	}); err != nil {
		f.t.Fatal(err)
	}
	f.up(node)
	o := workflow.Options{Node: node, Workflows: all, Environ: []string{
		"DIR=" + f.dir, "PATH=" + filepath.Dir(builtOnce(f.t)) + ":" + os.Getenv("PATH"),
		"CONSUL_HTTP_ADDR=" + f.server.HTTPAddr, "CONSUL_HTTP_TOKEN=" + token, "JORC_CLUSTER=prod",
	}, Params: workflow.ParamsOf(c, node)}
	runner := func(kind string) *workflow.Runner {
		o.StateDir = filepath.Join(f.dir, node, kind)
		return workflow.New(o)
	}
	w := runs.NewWorker(runs.WorkerOptions{
		Store: c.Store(), Node: node, Runner: runner("jobs"), Manager: runner("manager"), Gates: runner("gates"),
	})
	f.all.Go(func() { _ = w.Run(f.ctx) })
}

// agentOf returns a client and the token of the agent on a node, with the policy that
// bootstrap-acl makes for it; without ACLs no token.
func (f *testFleet) agentOf(node string) (*consul.Client, string) {
	f.t.Helper()
	if f.server.RootToken == "" {
		return f.server.Client(), ""
	}
	got := jorc(f.t, f.env, "cluster", "bootstrap-acl", "--node", node, "--create", "-o", "json")
	var all []fleet.Policy
	if err := json.Unmarshal([]byte(got.stdout), &all); err != nil || len(all) == 0 {
		f.t.Fatalf("bootstrap-acl: %+v: %v", got, err)
	}
	token, err := f.server.Client().CreateToken(f.t.Context(), node, 0, all[0].Name)
	if err != nil {
		f.t.Fatal(err)
	}
	return f.server.ClientWithToken(token.SecretID), token.SecretID
}

func (f *testFleet) release() {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, "go"), nil, 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// waitScript waits as the documented script does, and says when it begins.
const waitScript = `
{{template "cluster-utilities.tmpl" .}}
touch "$DIR/began-$JORC_JOB"
cluster_wait_for_workflow_complete || exit
test -e "$DIR/go"
`

// busyScript ends when it is released.
const busyScript = `until test -e "$DIR/go"; do sleep 0.05; done`

// announced waits until a run's job on a node says that it waits.
func (f *testFleet) announced(run, node string) {
	f.t.Helper()
	f.eventually("the wait of "+run, func() error {
		p, err := kv.NewText(kv.New(f.server.Client(), "jorc/prod"), "runs/.waits/"+node+"/"+run).Get(f.t.Context())
		if err == nil && !p.Exists {
			err = os.ErrNotExist
		}
		return err
	})
}

// TestWaitOfTwoScripts: two scripts on one manager that wait until the cluster is idle, and a
// third on another one: none waits for another, all wait for what works. Under default deny
// the tasks have the token of their host's agent.
func TestWaitOfTwoScripts(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]consultest.Option{"no ACLs": {manyConnections()}, "default deny": {manyConnections(), consultest.WithACL()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleetOn(t, consultest.Start(t, options...), 1)
			do := doer(t, f.env)
			f.scripts("m1", cluster.RoleManager, map[string]string{"one": waitScript})
			f.scripts("m2", cluster.RoleManager, map[string]string{"two": waitScript})
			f.scripts("w1", "web", map[string]string{"busy": busyScript})
			f.orchestrate()
			do(result{0, "busy\n", ""}, "run", "busy", "--id", "busy")
			do(result{0, "first\n", ""}, "run", "one", "--on-manager", "--id", "first")
			f.announced("first", "m1")
			do(result{0, "second\n", ""}, "run", "one", "--on-manager", "--id", "second")
			do(result{0, "third\n", ""}, "run", "two", "--on-manager", "--id", "third")
			f.announced("third", "m2")
			inVain(t, f.env, "run second is running: 0 of 0 members done, 0 running", "--for", "run=second")
			f.release()
			for _, run := range []string{"first", "second", "third", "busy"} {
				do(result{0, "", ""}, "wait", "--for", "run="+run)
			}
			do(result{0, "", ""}, "wait")
			left, err := kv.NewTextTree(kv.New(f.server.Client(), "jorc/prod"), "runs/.waits/").Names(t.Context())
			if err != nil || len(left) != 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// TestWaitWithoutTheRight: a wait in a task whose token may not say that it waits leaves out its own
// run, and warns that another host's wait does not see it.
func TestWaitWithoutTheRight(t *testing.T) {
	t.Parallel()
	f := newFleetOn(t, consultest.Start(t, manyConnections(), consultest.WithACL()), 1)
	do := doer(t, f.env)
	reader := consul.ACLPolicy{Name: "reader", Rules: `key_prefix "" { policy = "read" } node_prefix "" { policy = "read" } service_prefix "" { policy = "read" }`}
	if _, err := f.server.Client().PutPolicy(t.Context(), &reader); err != nil {
		t.Fatal(err)
	}
	token, err := f.server.Client().CreateToken(t.Context(), "reader", 0, "reader")
	if err != nil {
		t.Fatal(err)
	}
	f.scripts("m1", cluster.RoleManager, map[string]string{
		"one": `CONSUL_HTTP_TOKEN=` + token.SecretID + ` jorc cluster wait 2>"$DIR/said"`,
	})
	f.orchestrate()
	do(result{0, "one\n", ""}, "run", "one", "--on-manager", "--id", "one", "--wait")
	data, err := os.ReadFile(filepath.Join(f.dir, "said"))
	want := "two jobs that wait for each other would wait until their timeouts, because they cannot see each other: "
	if got := string(data); err != nil || !strings.Contains(got, want) || !strings.Contains(got, "runs/.waits/m1/one") {
		t.Errorf("the task says %q, %v", got, err)
	}
}

// TestWaitBehindItself: a job that waits for a run that cannot end before it does fails
// at once: its own run, one that is queued behind it, and one whose job waits for it.
func TestWaitBehindItself(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	do := doer(t, f.env)
	said := `; echo "$?" >>"$DIR/said-$JORC_WORKFLOW"; cat "$DIR/why" >>"$DIR/said-$JORC_WORKFLOW"`
	f.scripts("m1", cluster.RoleManager, map[string]string{
		"own":    `jorc cluster wait --for "run=own" 2>"$DIR/why"` + said,
		"behind": `jorc cluster run say --on-manager --id inner --wait 2>"$DIR/why" >/dev/null` + said,
		"say":    `true`,
	})
	f.scripts("m2", cluster.RoleManager, map[string]string{
		"cross": `touch "$DIR/crosses"; jorc cluster wait --for run=other 2>"$DIR/why-cross"; echo "$?" >>"$DIR/said-cross"`,
	})
	f.scripts("w1", "web", map[string]string{
		"other":  `jorc cluster wait --for run=cross 2>"$DIR/why"` + said,
		"member": `jorc cluster run plain --id plain --wait 2>"$DIR/why" >/dev/null` + said,
		"plain":  `true`,
	})
	f.orchestrate()
	wantSaid := func(workflow, why string) {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(f.dir, "said-"+workflow))
		if want := "1\njorc: " + why + "\n"; err != nil || string(data) != want {
			t.Errorf("%s: got %q, %v, want %q", workflow, data, err, want)
		}
	}
	behind := func(run, node string) string {
		return fmt.Sprintf("run %s cannot end before the job on %s that waits for it: it is queued behind that job, or its own job waits for it", run, node)
	}
	do(result{0, "own\n", ""}, "run", "own", "--on-manager", "--id", "own", "--wait")
	wantSaid("own", "run own is the run of the job that waits for it: it cannot end first")
	do(result{0, "behind\n", ""}, "run", "behind", "--on-manager", "--id", "behind", "--wait")
	wantSaid("behind", behind("inner", "m1"))
	do(result{0, "", ""}, "wait", "--for", "run=inner")
	do(result{0, "member\n", ""}, "run", "member", "--id", "member", "--wait")
	wantSaid("member", behind("plain", "w1"))
	do(result{0, "", ""}, "wait", "--for", "run=plain")

	do(result{0, "other0\n", ""}, "run", "say", "--on-manager", "--id", "other0", "--wait")
	do(result{0, "cross\n", ""}, "run", "cross", "--on-manager", "--id", "cross", "--needs-approval")
	do(result{0, "other\n", ""}, "run", "other", "--id", "other")
	f.announced("other", "w1")
	do(result{0, "ID     STATE\ncross  pending\n", ""}, "approve", "cross")
	do(result{0, "", ""}, "wait", "--for", "run=cross")
	if data, err := os.ReadFile(filepath.Join(f.dir, "said-cross")); err != nil || string(data) != "1\n" {
		t.Errorf("got %q, %v", data, err)
	}
	data, err := os.ReadFile(filepath.Join(f.dir, "why-cross"))
	if want := "jorc: " + behind("other", "m2") + "\n"; err != nil || string(data) != want {
		t.Errorf("got %q, %v, want %q", data, err, want)
	}
	do(result{0, "", ""}, "wait", "--for", "run=other")
}

// TestGateBesideScript: a script that waits on a manager until the cluster is idle waits for
// a rollout, whose gate runs on the same manager meanwhile; the gate itself may wait, too.
func TestGateBesideScript(t *testing.T) {
	t.Parallel()
	for name, gate := range map[string]string{
		"asks":  `echo well`,
		"waits": `{{template "cluster-utilities.tmpl" .}}` + "\ncluster_wait_for_workflow_complete && echo well\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, consultest.Start(t), "http { address = \"127.0.0.1:0\" }\ncluster = \"prod\"\norchestrator { interval = \"1s\" }\n")
			ctx, cancel := context.WithCancel(context.Background())
			f := &testFleet{t: t, server: m.server, dir: m.dir, env: onServer(t, m.server), ctx: ctx}
			t.Cleanup(func() { cancel(); f.all.Wait() })
			f.env["JORC_CLUSTER"], m.env = "prod", append(m.env, "JORC_CLUSTER=prod")
			do := doer(t, f.env)
			do(result{0, "", ""}, "init", "prod")
			f.scripts("boss", cluster.RoleManager, map[string]string{"script": waitScript, "slo": gate})
			c, all := fleet.New(m.client, "jorc", "prod"), rollout.New(m.client, "jorc", "prod")
			for _, node := range []string{"a", "b"} {
				do(result{0, "", ""}, "join", "--node", node)
				f.up(node)
				if _, err := c.ReportVersion(t.Context(), node, "v1"); err != nil {
					t.Fatal(err)
				}
			}
			m.agent()
			if _, err := all.Trigger(t.Context(), rollout.Request{Version: "v2", By: "ann", Policy: func(p *pace.Policy) {
				p.Batches, p.Gate = []pace.Amount{{N: 1}, {N: 100, Percent: true}}, pace.Gate{Workflow: "slo"}
			}}); err != nil {
				t.Fatal(err)
			}
			m.must("cluster", "run", "script", "--on-manager", "--id", "script")
			f.announced("script", "boss")
			f.release()
			f.eventually("the end of the rollout", func() error {
				s, err := all.Load(t.Context())
				if err != nil {
					return err
				}
				if s.Document.Over() {
					return nil
				}
				state, err := all.Observe(t.Context(), s)
				if err != nil {
					return err
				}
				for _, h := range rollout.Progress(s.Document, state, time.Now()) {
					if h.State == pace.Pending && !strings.Contains(h.Detail, "not admitted yet") {
						if _, err := c.ReportVersion(t.Context(), h.Node, "v2"); err != nil {
							return err
						}
					}
				}
				return fmt.Errorf("it is %s, %+v", s.Document.StateText(), s.Document.Gate)
			})
			do(result{0, "", ""}, "wait", "--for", "run=script")
			if s, err := all.Load(t.Context()); err != nil || s.Document.Phase != pace.Done || s.Document.PassedGate == nil {
				t.Errorf("got %+v, %v", s.Document, err)
			}
		})
	}
}
