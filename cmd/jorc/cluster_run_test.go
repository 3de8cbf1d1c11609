package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/workflow"
)

// testFleet is a cluster "prod" whose members run in this process.
type testFleet struct {
	t      *testing.T
	server *consultest.Server
	dir    string
	env    map[string]string
	grace  time.Duration // how long an agent may be down; 0: the default
	ctx    context.Context
	all    sync.WaitGroup
}

func newFleet(t *testing.T, leaders int, nodes ...string) *testFleet {
	t.Helper()
	return newFleetOn(t, consultest.Start(t, manyConnections()), leaders, nodes...)
}

// manyConnections lets all hosts of a fleet share one address.
func manyConnections() consultest.Option {
	return consultest.WithConfig(map[string]any{"limits": map[string]any{"http_max_conns_per_client": 1000}})
}

func newFleetOn(t *testing.T, s *consultest.Server, leaders int, nodes ...string) *testFleet {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	f := &testFleet{t: t, server: s, dir: t.TempDir(), env: onServer(t, s), ctx: ctx}
	f.env["JORC_CLUSTER"], f.env["USER"] = "prod", "ann"
	t.Cleanup(func() { cancel(); f.all.Wait() })
	do := doer(t, f.env)
	do(result{0, "", ""}, "init", "prod", "--leaders", fmt.Sprint(leaders))
	for _, node := range nodes {
		do(result{0, "", ""}, "join", "--node", node)
		f.up(node)
		f.work(node)
	}
	return f
}

// up registers a node as if jorc's agent ran there. It has no check of gossip:
// Consul's leader removes nodes that have one and that it does not know.
func (f *testFleet) up(node string) { f.register(node, consul.HealthPassing) }

// down registers a node as if it had failed.
func (f *testFleet) down(node string) { f.register(node, consul.HealthCritical) }

func (f *testFleet) register(node, status string) {
	f.t.Helper()
	err := f.server.Client().CatalogRegister(f.t.Context(), &consul.CatalogRegistration{
		Node: node, Address: "127.0.0.1", Service: &consul.AgentService{ID: "jorc-prod", Service: "jorc"},
		Checks: consul.HealthChecks{
			{Node: node, CheckID: "service:jorc-prod", ServiceID: "jorc-prod", ServiceName: "jorc", Status: status},
		},
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *testFleet) work(node string) {
	store := kv.New(f.server.Client(), "jorc/prod")
	runner := workflow.New(workflow.Options{
		StateDir: filepath.Join(f.dir, node), Node: node, Environ: []string{"DIR=" + f.dir},
		Workflows: []config.Workflow{
			{Name: "install", AllowParams: []string{"n"}, Tasks: []config.Task{{Name: "one", Command: []string{"sh", "-c", "echo $JORC_NODE >>$DIR/order"}}}},
			{Name: "say", Tasks: []config.Task{{Name: "one", Command: []string{"echo", "all is well"}}}},
			{Name: "half", Tasks: []config.Task{{Name: "one", Script: `[ $JORC_NODE = a ] && exit 3; until [ -e $DIR/go ]; do sleep 0.05; done`}}},
			{Name: "hang", Tasks: []config.Task{{Name: "one", Idempotent: true, Script: `trap "" TERM; echo $$ >$DIR/hung-$JORC_NODE; while :; do sleep 0.05; done`}}},
			{Name: "show", AllowParams: []string{"x"}, Tasks: []config.Task{{
				Name: "one", Command: []string{"sh", "-c", `printf '%s' "$2" >$DIR/shown; env >$DIR/env`, "sh", "--", `{{.Param "x"}}`},
			}}},
			{Name: "linger", Tasks: []config.Task{{Name: "one", Command: []string{"sh", "-c", "exit 196"}}}},
			{Name: "break", Tasks: []config.Task{{Name: "two", Command: []string{"sh", "-c", "echo no such disk; exit 3"}}}},
		},
	})
	f.all.Go(func() {
		_ = runs.NewWorker(runs.WorkerOptions{Store: store, Node: node, Runner: runner}).Run(f.ctx)
	})
}

func (f *testFleet) orchestrate() {
	o := orchestrator.New(orchestrator.Options{
		Client: f.server.Client(), Prefix: "jorc", Cluster: "prod", Node: f.server.Node, Interval: 200 * time.Millisecond,
		Grants: true, RunGrace: f.grace,
	})
	f.all.Go(func() { _ = o.Run(f.ctx) })
	f.eventually("the orchestrator", func() error {
		there, err := fleet.Orchestrated(f.t.Context(), kv.New(f.server.Client(), "jorc/prod"))
		if err == nil && !there {
			err = errors.New("it does not hold the lock")
		}
		return err
	})
}

// TestMilestones is the script that installs leaders first and workers when
// these are done.
func TestMilestones(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, "a", "b", "c")
	f.orchestrate()
	script := exec.Command("sh", "-euc", `
jorc cluster wait --for members=3 --timeout 60s
jorc cluster run install --role leader --wait --timeout 60s
jorc cluster run install --role worker --max-parallel 1 --wait --timeout 60s --id workers
jorc cluster run install --role worker --max-parallel 1 --wait --timeout 60s --id workers
jorc cluster wait --timeout 60s
! jorc cluster run break --role leader --wait --timeout 60s
`)
	script.Env = append(os.Environ(), "PATH="+filepath.Dir(builtOnce(t))+":"+os.Getenv("PATH"))
	for k, v := range f.env {
		script.Env = append(script.Env, k+"="+v)
	}
	out, err := script.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	data, err := os.ReadFile(filepath.Join(f.dir, "order"))
	if err != nil {
		t.Fatal(err)
	}
	leader := strings.TrimSpace(jorc(t, f.env, "cluster", "leader").stdout)
	if lines := strings.Fields(string(data)); len(lines) != 3 || lines[0] != leader {
		t.Errorf("leader %s, order %v", leader, lines)
	}
	if want := "jorc: " + leader + ": failed: exit code 3: no such disk"; !strings.Contains(string(out), want) {
		t.Errorf("got %s, want %q in it", out, want)
	}
}

var changing = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z|node-\d+-\d+-\d+-\d+`)

// TestRetryOf: a retry runs what failed, on the members on which it failed.
func TestRetryOf(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, "a")
	do := doer(t, f.env)
	f.orchestrate()
	do(result{0, "good\n", ""}, "run", "install", "--id", "good", "--wait")
	do(result{1, "bad\n", "jorc: a: failed: exit code 3: no such disk\n"}, "run", "break", "--id", "bad", "--wait")
	do(result{4, "", "jorc: run \"good\": too late: it succeeded on every member\n"}, "run", "--retry-of", "good")
	do(result{1, "", "jorc: run \"none\": no such run; runs: bad, good\n"}, "run", "--retry-of", "none")
	do(result{1, "again\n", "jorc: a: failed: exit code 3: no such disk\n"}, "run", "--retry-of", "bad", "--id", "again", "--wait")
	do(result{0, "fixed\n", ""}, "run", "install", "--retry-of", "bad", "--id", "fixed", "--canary", "1", "--batches", "50%,100%", "--max-failures", "0", "--wait")
}

// define makes the record of a member name the workflows that its host defines, as its
// agent would.
func (f *testFleet) define(node string, workflows ...string) {
	f.t.Helper()
	c := fleet.New(f.server.Client(), "jorc", "prod")
	if _, err := c.Join(f.t.Context(), node, func(r cluster.Record) (cluster.Record, error) {
		r.Workflows = cluster.ReportedWorkflows(workflows)
		return r, nil
	}); err != nil {
		f.t.Fatal(err)
	}
}

// TestRunParams: params of a run stay data, and a run that passes others than the host
// allows, or what no run may have, does not begin.
func TestRunParams(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, "a")
	f.orchestrate()
	do := doer(t, f.env)
	shown := filepath.Join(f.dir, "shown")
	for _, value := range []string{
		"plain", `it's "quoted"`, "; touch $DIR/pwned", "$(touch $DIR/pwned)", "`touch $DIR/pwned`", "a\ntouch $DIR/pwned\n", "--help", "-rf", "--",
		`{{.Version}}`, "LD_PRELOAD=/tmp/evil.so", "ä 世界", "",
	} {
		if got := jorc(t, f.env, "cluster", "run", "show", "--string", "--param", "x="+value, "--wait", "--timeout", "60s"); got.code != 0 {
			t.Errorf("%q: %+v", value, got)
		}
		if got, err := os.ReadFile(shown); err != nil || string(got) != value {
			t.Errorf("got %q, %v, want %q", got, err, value)
		}
		if env, err := os.ReadFile(filepath.Join(f.dir, "env")); err != nil || strings.Contains(string(env), "\nLD_PRELOAD=") || strings.Contains(string(env), "\nx=") {
			t.Errorf("%q: the environment is %s, %v", value, env, err)
		}
	}
	if err := os.Remove(shown); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"y", "LD_PRELOAD", "PATH", "JORC_JOB", "cluster/leader", "X", "x "} {
		id := fmt.Sprint("not-", i)
		do(result{1, id + "\n", fmt.Sprintf("jorc: a: failed: workflow \"show\": invalid: it does not allow param %q of a run: its allow_params on this host do not name it\n", name)},
			"run", "show", "--param", name+"=/tmp/evil.so", "--param", "x=1", "--id", id, "--wait", "--timeout", "60s")
	}
	for what, value := range map[string]string{"a megabyte": strings.Repeat("x", 1<<20), "100 KB": strings.Repeat("x", 100<<10), "a zero byte": `"a\u0000b"`, "no UTF-8": "a\xffb"} {
		got := jorc(t, f.env, "cluster", "run", "show", "--param", "x="+value, "--id", "refused")
		if got.code != 2 || got.stdout != "" || len(got.stderr) > 500 {
			t.Errorf("%s: exit %d, %.500s", what, got.code, got.stdout+got.stderr)
		}
	}
	if got := jorc(t, f.env, "cluster", "runs", "refused"); got.code != 1 || !strings.Contains(got.stderr, "no such run") {
		t.Errorf("a refused run: %+v", got)
	}
	if _, err := os.Stat(shown); err == nil {
		t.Error("a run that was refused has run")
	}
	if _, err := os.Stat(filepath.Join(f.dir, "pwned")); err == nil {
		t.Error("a value was executed")
	}
}

// TestRunUndefined: a run of what is not defined on a member is refused before it
// begins, and one whose hosts do not report workflows is not.
func TestRunUndefined(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, "a", "b", "c")
	do := doer(t, f.env)
	f.define("a", "install", "say")
	f.define("b", "say")
	const absent = "jorc: no orchestrator runs: the run begins when an agent with an orchestrator block is up\n"
	const refused = "jorc: workflow \"install\" is not defined on 1 of 3 members: nothing was written; define it there, or leave them out with --skip-undefined: b\n"
	do(result{1, "", refused}, "run", "install", "--id", "r")
	do(result{1, "NODE  WORKFLOW\na     defined\nb     not defined\nc     unknown\n", refused}, "run", "install", "--dry-run")
	do(result{0, "NODE  WORKFLOW\na     defined\nc     unknown\n", "jorc: dry run: nothing was written; the run would be for 2 members\n"}, "run", "install", "--dry-run", "--skip-undefined")
	got := jorc(t, f.env, "cluster", "run", "install", "--dry-run", "-o", "json")
	var targets runs.Targets
	if err := json.Unmarshal([]byte(got.stdout), &targets); err != nil || got.code != 1 || fmt.Sprint(targets) != "{install [a b c] [b] [c] []}" {
		t.Errorf("as JSON: %+v, %v", got, err)
	}
	do(result{1, "", "jorc: workflow \"instal\" is not defined on 2 of 2 members: nothing was written, did you mean \"install\"?; workflows: install, say\n"},
		"run", "instal", "--filter", `Node != "c"`)
	do(result{1, "", "jorc: workflow \"install\" is not defined on 1 of 1 members: nothing was written; define it there: b\n"},
		"run", "install", "--filter", `"install" not in Workflows and Workflows is not nil`)
	do(result{2, "", "jorc: --dry-run and --wait cannot be combined; see 'jorc cluster run --help'\n"}, "run", "install", "--dry-run", "--wait")
	do(result{2, "", "jorc: --on-manager and --skip-undefined cannot be combined; see 'jorc cluster run --help'\n"}, "run", "install", "--on-manager", "--skip-undefined")
	do(result{0, "", ""}, "runs", "-o", "plain")

	do(result{0, "some\n", absent}, "run", "install", "--id", "some", "--skip-undefined", "--filter", `Node != "x"`)
	f.orchestrate()
	do(result{0, "", ""}, "wait", "--for", "run=some", "--timeout", "60s")
	if got := jorc(t, f.env, "cluster", "runs", "some", "-o", "plain").stdout; !strings.HasPrefix(got, "a\tdone\t") || !strings.Contains(got, "\nc\tdone\t") || strings.Count(got, "\n") != 2 {
		t.Errorf("got %q", got)
	}

	// A workflow that goes between the question and the start fails on its host alone.
	f.define("a", "install", "gone")
	f.define("b", "gone")
	do(result{1, "late\n", "jorc: a: failed: workflow \"gone\": no such workflow on this node; workflows: break, half, hang, install, linger, say, show\n"},
		"run", "gone", "--id", "late", "--filter", `Node == "a"`, "--wait")
	f.define("a", "install")
	do(result{0, "late\n", "jorc: run \"late\" was asked for already; it is failed\n"}, "run", "gone", "--id", "late", "--filter", `Node == "a"`)

	// A workflow of managers.
	do(result{0, "", ""}, "join", "--node", "m", "--role", "manager")
	f.up("m")
	f.define("m", "say")
	do(result{1, "", "jorc: workflow \"install\" is not defined on 1 of 1 members: nothing was written; define it there: m\n"}, "run", "install", "--on-manager")
	do(result{0, "NODE  WORKFLOW\nm     defined\n", "jorc: dry run: nothing was written; the run would be for 1 member\n"}, "run", "say", "--on-manager", "--dry-run")
}

// seconds matches times that depend on the machine.
var seconds = regexp.MustCompile(`_seconds": \d+`)

// TestRunCommands: what they print and their exit codes.
func TestRunCommands(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, "a")
	do := doer(t, f.env)
	absent := "jorc: no orchestrator runs: the run begins when an agent with an orchestrator block is up\n"
	do(result{1, "", "jorc: no member of cluster \"prod\" matches: nothing was written; 'jorc cluster members' lists them, managers take no part\n"},
		"run", "install", "--filter", `Node == "x"`)
	do(result{1, "", "jorc: no member of cluster \"prod\" has role \"databse\"; roles: leader\n"}, "run", "install", "--role", "databse")
	do(result{1, "", "jorc: no member of cluster \"prod\" with role \"leader\" matches: nothing was written; 'jorc cluster members' lists them\n"},
		"run", "install", "--role", "leader", "--filter", `Node == "x"`)
	do(result{0, "", ""}, "runs", "-o", "plain")
	do(result{0, "r\n", absent}, "run", "install", "--id", "r", "--needs-approval", "--param", "n=1")
	do(result{0, "r\n", "jorc: run \"r\" was asked for already; it is needs-approval\n" + absent}, "run", "install", "--id", "r", "--needs-approval", "--param", "n=1")
	do(result{4, "", "jorc: run \"r\": another run has this id: nothing was written; see 'jorc cluster runs r'\n"}, "run", "install", "--id", "r")
	do(result{0, "", "jorc: run r: needs-approval: 'jorc cluster approve r' lets it begin\n"}, "runs", "r", "-o", "plain")
	inVain(t, f.env, "run r needs approval: 'jorc cluster approve r' lets it begin", "--for", "run=r")
	do(result{0, "", ""}, "pause", "--reason", "storm")
	do(result{6, "", "jorc: the cluster is paused: storm; 'jorc cluster resume' ends the pause\n"}, "wait", "--for", "run=r")
	do(result{6, "", "jorc: the cluster is paused: storm; 'jorc cluster resume' ends the pause\n"}, "wait")
	do(result{
		6, "{\n  \"cluster\": \"prod\",\n  \"over\": false,\n  \"failed\": [],\n  \"missing\": \"the cluster is paused: storm; 'jorc cluster resume' ends the pause\"\n}\n",
		"jorc: the cluster is paused: storm; 'jorc cluster resume' ends the pause\n",
	}, "wait", "-o", "json")
	do(result{0, "", ""}, "resume")
	for _, test := range []struct{ want, args string }{
		{"missing argument WORKFLOW; see 'jorc cluster run --help'", "run"},
		{"--max-parallel: not a policy: \"0\" selects no member: give at least 1 or 1%; see 'jorc cluster run --help'", "run install --max-parallel 0"},
		{"run id \"a/b\": invalid: letters, digits, '.', '_' and '-' make one, and a letter, a digit or '_' begins it; see 'jorc cluster runs --help'", "runs a/b"},
		{"run: invalid: on a manager it is run once: no filter, role, node or limit applies; see 'jorc cluster run --help'", "run install --on-manager --role x"},
		{"--for: \"nonsense\": invalid: idle, version=V, members=N or run=ID can be waited for; see 'jorc cluster wait --help'", "wait --for nonsense"},
		{"missing argument WORKFLOW; see 'jorc cluster run --help'", "run --max-failures 1"},
		{"--canary must be at least 1; see 'jorc cluster run --help'", "run install --canary 0"},
		{"run: invalid: not a policy: the batches end with 50%, so the others would never be admitted: end with 100%; see 'jorc cluster run --help'", "run install --batches 10%,50%"},
		{"run: invalid: not a policy: max failures is -1: give 0, which stops at the first, or more; see 'jorc cluster run --help'", "run install --max-failures=-1"},
		{"run: invalid: min healthy without steps: all members begin at once; limit them with max parallel, a canary, batches, an order, or zone by zone; see 'jorc cluster run --help'", "run install --min-healthy 1m"},
		{"run: invalid: order: db=0 leaves the role out: do that with a filter; see 'jorc cluster run --help'", "run install --order db=0,web"},
		{"--retry-of and --on-manager cannot be combined: the retry of a run on a manager is on a manager; see 'jorc cluster run --help'", "run --retry-of r --on-manager"},
		{"--timeout goes with --wait, and must not be negative; see 'jorc cluster run --help'", "run install --timeout 1s"},
	} {
		do(result{2, "", "jorc: " + test.want + "\n"}, strings.Fields(test.args)...)
	}
	do(result{1, "", "jorc: run \"none\": no such run; runs: r\n"}, "approve", "none")
	do(result{0, "ID  STATE\nr   pending\n", ""}, "approve", "r")
	already := "jorc: run \"r\": it no longer needs approval; nothing was changed\n"
	do(result{0, "{\n  \"cluster\": \"prod\",\n  \"id\": \"r\",\n  \"state\": \"pending\",\n  \"changed\": false\n}\n", already}, "approve", "r", "-o", "json")
	f.orchestrate()
	do(result{0, "", ""}, "wait", "--for", "run=r", "--timeout", "60s")
	do(result{1, "bad\n", "jorc: a: failed: exit code 3: no such disk\n"}, "run", "break", "--id", "bad", "--wait")
	last := "jorc: a: run bad failed: exit code 3: no such disk\n" // whether it ended before the waiting began or not
	do(result{1, "", last}, "wait")
	do(result{1, "{\n  \"cluster\": \"prod\",\n  \"over\": true,\n  \"failed\": [\n    {\n      \"node\": \"a\",\n      \"why\": \"run bad failed: exit code 3: no such disk\"\n    }\n  ]\n}\n", last}, "wait", "-o", "json")
	do(result{0, "", ""}, "wait", "--filter", `Node == "a" or Node == "b"`, "--for", "members=1")
	do(result{0, "ID   STATE\nbad  failed\n", "jorc: run \"bad\": it has ended, or was cancelled already; nothing was changed\n"}, "cancel", "bad")
	do(result{0, "a: failed: exit code 3: no such disk\n  no such disk\n", ""}, "logs", "bad")
	do(result{0, "a: done\n", "jorc: no output is here; 'jorc workflow logs run-r' on a prints the log\n"}, "logs", "r", "a")
	do(result{1, "", "jorc: host \"x\": no such host; hosts: a, " + f.server.Node + "\n"}, "logs", "bad", "x")
	do(result{0, "a: failed: exit code 3: no such disk\n  no such disk\n", ""}, "logs", "bad", "a")
	do(result{0, "never\n", ""}, "run", "install", "--id", "never", "--needs-approval")
	do(result{0, "{\n  \"cluster\": \"prod\",\n  \"id\": \"never\",\n  \"state\": \"cancelled\",\n  \"changed\": true\n}\n", ""}, "cancel", "never", "-o", "json")
	do(result{0, "", "jorc: run never: cancelled: by ann\n"}, "runs", "never", "-o", "plain")
	do(result{4, "", "jorc: run \"never\": too late: it was cancelled; ask for another\n"}, "approve", "never")
	do(result{1, "never\n", "jorc: run \"never\" was asked for already; it is cancelled\njorc: run never is cancelled: by ann\n"}, "run", "install", "--id", "never", "--needs-approval", "--wait")
	do(result{0, "", ""}, "wait", "--for", "members=1")
	for name, args := range map[string]string{
		"runs.txt": "runs", "runs.json": "runs -o json", "run.txt": "runs bad", "run.json": "runs bad -o json", "logs.json": "logs bad -o json",
	} {
		got := jorc(t, f.env, append([]string{"cluster"}, strings.Fields(args)...)...)
		if got.code != 0 || got.stderr != "" || strings.HasSuffix(name, ".json") && !json.Valid([]byte(got.stdout)) {
			t.Errorf("%s: %+v", args, got)
		}
		got.stdout = seconds.ReplaceAllString(got.stdout, `_seconds": "CHANGES"`)
		golden(t, filepath.Join("testdata", "runs", name), changing.ReplaceAllString(got.stdout, "CHANGES"))
	}
}

// golden holds text to a file; go test -update writes it.
func golden(t *testing.T, file, text string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v: run go test ./cmd/jorc -update", err)
	}
	if string(want) != text {
		t.Errorf("%s: got\n%s\nwant\n%s", file, text, want)
	}
}
