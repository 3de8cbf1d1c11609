package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/workflow"
)

// rebarFleet is a cluster "prod" under default deny: a manager, on whose host
// Consul and the orchestrator run, and five members, each with a token of its own that has the
// policies of bootstrap-acl. Their workflows are scripts in the style of Digital
// Rebar's. Members may write the profile by the token_file of their tasks, but n1,
// which may create tokens; the manager's tasks have an operator's token.
type rebarFleet struct {
	t        *testing.T
	server   *consultest.Server
	dir      string
	bin      string
	operator map[string]string // environment of commands
	files    map[string]string // token files by kind
	tasks    map[string]string // scripts by workflow
	ctx      context.Context
	all      sync.WaitGroup
}

var rebarMembers = []string{"n1", "n2", "n3", "n4", "n5"}

func newRebarFleet(t *testing.T, scripts map[string]string) *rebarFleet {
	t.Helper()
	s := consultest.Start(t, consultest.WithACL(), consultest.WithConfig(map[string]any{"limits": map[string]any{"http_max_conns_per_client": 1000}}))
	ctx, cancel := context.WithCancel(context.Background())
	f := &rebarFleet{t: t, server: s, dir: t.TempDir(), bin: t.TempDir(), files: map[string]string{}, tasks: scripts, ctx: ctx}
	t.Cleanup(func() { cancel(); f.all.Wait() })
	// Such scripts read the names with jq, which is not installed everywhere.
	uuids := "#!/bin/sh\n[ \"$*\" = '-rc .[].Uuid' ] && exec sed -n 's/^ *\"Uuid\": \"\\(.*\\)\",*$/\\1/p'\n"
	if err := os.WriteFile(filepath.Join(f.bin, "jq"), []byte(uuids), 0o755); err != nil {
		t.Fatal(err)
	}
	root := onServer(t, s)
	root["JORC_CLUSTER"] = "prod"
	must := doer(t, root)
	must(result{0, "", ""}, "init", "prod", "--leaders", "0", "--manager", s.Node)
	policies := map[string][]string{}
	for _, node := range append([]string{s.Node}, rebarMembers...) {
		got := jorc(t, root, "cluster", "bootstrap-acl", "--node", node, "--elector", "--create", "-o", "json")
		var all []fleet.Policy
		if err := json.Unmarshal([]byte(got.stdout), &all); err != nil || len(all) != 5 {
			t.Fatalf("bootstrap-acl: %+v: %v", got, err)
		}
		policies[node] = []string{all[0].Name, all[1].Name, all[2].Name, all[3].Name} // agent, operator, orchestrator, elector, and that of DNS
	}
	f.operator = map[string]string{"CONSUL_HTTP_ADDR": s.HTTPAddr, "CONSUL_HTTP_TOKEN": f.token(policies[s.Node][1]), "JORC_CLUSTER": "prod", "USER": "ann"}
	f.files["operator"] = writeFile(t, "operator", f.operator["CONSUL_HTTP_TOKEN"])
	f.files["profile"] = writeFile(t, "profile", jorc(t, root, "cluster", "profile", "token", "--ttl", "1h").stdout)
	boss := s.ClientWithToken(f.token(policies[s.Node][2]))
	f.work(s.Node, boss, f.files["operator"])
	o := orchestrator.New(orchestrator.Options{
		Client: boss, Prefix: "jorc", Cluster: "prod", Node: s.Node, Interval: 200 * time.Millisecond,
		Grants: true,
	})
	f.all.Go(func() { _ = o.Run(f.ctx) })
	mint := consul.ACLPolicy{Name: "mint", Rules: `acl = "write"`}
	if _, err := s.Client().PutPolicy(t.Context(), &mint); err != nil {
		t.Fatal(err)
	}
	for _, node := range rebarMembers {
		names, file := policies[node][:1], f.files["profile"]
		if node == "n1" {
			names, file = []string{names[0], mint.Name}, ""
		}
		token := f.token(names...)
		f.up(node)
		env := map[string]string{"CONSUL_HTTP_ADDR": s.HTTPAddr, "CONSUL_HTTP_TOKEN": token, "JORC_CLUSTER": "prod"}
		doer(t, env)(result{0, "", ""}, "join", "--node", node, "--role", "k3s")
		f.work(node, s.ClientWithToken(token), file)
	}
	return f
}

func (f *rebarFleet) token(policies ...string) string {
	f.t.Helper()
	token, err := f.server.Client().CreateToken(f.t.Context(), "test", 0, policies...)
	if err != nil {
		f.t.Fatal(err)
	}
	return token.SecretID
}

// up registers a node as if Consul's and jorc's agents ran there.
func (f *rebarFleet) up(node string) {
	f.t.Helper()
	f.server.Bystanders(node)
	err := f.server.Client().CatalogRegister(f.t.Context(), &consul.CatalogRegistration{
		Node: node, Address: "10.0.0." + fmt.Sprint(1+slices.Index(rebarMembers, node)),
		Service: &consul.AgentService{ID: "jorc-prod", Service: "jorc"},
		Checks: consul.HealthChecks{
			{Node: node, CheckID: "serfHealth", Name: "Serf Health Status", Status: consul.HealthPassing},
			{Node: node, CheckID: "service:jorc-prod", ServiceID: "jorc-prod", ServiceName: "jorc", Status: consul.HealthPassing},
		},
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

// work does the part of a node in runs, with the node's own token.
func (f *rebarFleet) work(node string, client *consul.Client, tokenFile string) {
	c := fleet.New(client, "jorc", "prod")
	o := workflow.Options{
		StateDir: filepath.Join(f.dir, "state-"+node), Node: node, Params: workflow.ParamsOf(c, node), Tokens: workflow.TokensOf(client, "jorc", "prod"),
		Environ: []string{
			"PATH=" + f.bin + ":" + filepath.Dir(builtOnce(f.t)) + ":" + os.Getenv("PATH"), "DIR=" + f.dir, "HOME=" + f.dir,
			"CONSUL_HTTP_ADDR=" + f.server.HTTPAddr, consultest.NoConfig,
		},
	}
	for name, script := range f.tasks {
		task := config.Task{Name: "script", Script: script, TokenFile: tokenFile}
		o.Workflows = append(o.Workflows, config.Workflow{Name: name, Tasks: []config.Task{task}})
	}
	runner := workflow.New(o)
	f.all.Go(func() {
		_ = runs.NewWorker(runs.WorkerOptions{Store: c.Store(), Node: node, Runner: runner}).Run(f.ctx)
	})
}

// run runs a workflow and fails the test unless it succeeds on all its members.
func (f *rebarFleet) run(args ...string) {
	f.t.Helper()
	got := jorc(f.t, f.operator, append([]string{"cluster", "run", "--wait", "--timeout", "2m"}, args...)...)
	if got.code != exitOK {
		logs := jorc(f.t, f.operator, "cluster", "runs", strings.TrimSpace(got.stdout)).stdout
		for _, node := range append([]string{f.server.Node}, rebarMembers...) {
			for _, file := range must(filepath.Glob(filepath.Join(f.dir, "state-"+node, "jobs", "*", "*log*"))) {
				logs += node + " " + filepath.Base(filepath.Dir(file)) + ":\n" + string(must(os.ReadFile(file)))
			}
		}
		f.t.Fatalf("run %v: %+v\n%s", args, got, logs)
	}
}

// must returns v; an error ends the test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (f *rebarFleet) read(name string) string {
	f.t.Helper()
	data, err := os.ReadFile(filepath.Join(f.dir, name))
	if err != nil {
		f.t.Error(err)
	}
	return string(data)
}

// machines decodes what 'drpcli machines list' printed, as jq would.
func (f *rebarFleet) machines(name string) (all []struct {
	Uuid, Name, Address string
	Params, Meta        map[string]any
},
) {
	f.t.Helper()
	if err := json.Unmarshal([]byte(f.read(name)), &all); err != nil {
		f.t.Errorf("%s: %v", name, err)
	}
	return all
}

const rebarSetup = "#!/bin/bash\nset -u\n{{template \"setup.tmpl\" .}}\n"

// documented returns the script of a workflow in docs/cluster.md, from the block
// that is tested as kind.
func documented(t *testing.T, kind, name string) string {
	t.Helper()
	data, err := os.ReadFile("../../docs/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "<!-- tested: "+kind+" -->\n```hcl\n")
	text, _, found := strings.Cut(rest, "```\n")
	conf, err := config.Load([]string{writeFile(t, "workflow.hcl", text)}, config.Options{})
	if err != nil || !found || len(conf.Workflows) != 1 || conf.Workflows[0].Name != name {
		t.Fatalf("docs/cluster.md has no workflow %q: %v", name, err)
	}
	return conf.Workflows[0].Tasks[0].Script
}

// TestRebarRace: of five members that want a param one gets it, and of five that
// enter a list three do, whatever the token of their jobs is.
func TestRebarRace(t *testing.T) {
	t.Parallel()
	f := newRebarFleet(t, map[string]string{
		"first": rebarSetup + `
mine=$(get_param my/owner)
while [[ $mine = "none" ]]; do
  if drpcli -r "$mine" -T "$PROFILE_TOKEN" profiles set $CLUSTER_PROFILE param my/owner to "$JORC_NODE" >/dev/null 2>&1; then
    echo $JORC_NODE >>$DIR/won
    break
  fi
  mine=$(get_param my/owner)
done
get_param my/owner >>$DIR/owner
`,
		"elect": rebarSetup + `
servers=$(get_param k3s/servers)
while [[ $(tr -cd '"' <<<"$servers" | wc -c) -lt 6 ]]; do
  if [[ $servers = "[]" ]]; then next="[\"$JORC_NODE\"]"; else next="${servers%]},\"$JORC_NODE\"]"; fi
  drpcli -T $PROFILE_TOKEN -r "$servers" profiles set $CLUSTER_PROFILE param k3s/servers to "$next" 2>/dev/null && break
  servers=$(get_param k3s/servers)
done
[[ $(get_param k3s/servers) = *"\"$JORC_NODE\""* ]] && echo $JORC_NODE >>$DIR/servers
exit 0
`,
	})
	set := func(key, schema string) {
		t.Helper()
		doer(t, f.operator)(result{0, "", ""}, "profile", "schema", "set", key, writeFile(t, "schema", schema))
	}
	set("my/owner", `{"type": "string", "default": "none"}`)
	set("k3s/servers", `{"type": "array", "default": []}`)
	f.run("first")
	won := f.read("won")
	if got, want := f.read("owner"), strings.Repeat(won, 5); len(strings.Fields(won)) != 1 || got != want {
		t.Errorf("%q won, and the members read %q", won, got)
	}
	f.run("elect")
	servers := strings.Fields(f.read("servers"))
	var have []string
	got := jorc(t, f.operator, "cluster", "profile", "get", "k3s/servers")
	if err := json.Unmarshal([]byte(got.stdout), &have); err != nil || len(have) != 3 {
		t.Fatalf("%+v: %v, want three servers", got, err)
	}
	for _, node := range have {
		if !slices.Contains(servers, node) {
			t.Errorf("servers are %v, and %s does not know it: %v", have, node, servers)
		}
	}
}

// TestRebarManager: the manager's script finds leaders and workers, gives the leaders
// an icon, starts workflows on them and waits; the leader's script stores a token
// to join with, and the workers' read it, text as it is.
func TestRebarManager(t *testing.T) {
	t.Parallel()
	const pem = "-----BEGIN CERTIFICATE-----\nMIIB+0x1F/a #b=\n-----END CERTIFICATE-----"
	f := newRebarFleet(t, map[string]string{
		"install": documented(t, "manager", "install"),
		"report": rebarSetup + `
{{template "cluster-utilities.tmpl" .}}
drpcli machines list cluster/manager Eq false cluster/leader Eq {{.Param "cluster/leader"}} {{.Param "cluster/filter"}} --slim Meta >$DIR/workers.json
drpcli machines list {{.Param "cluster/filter"}} cluster/leader Eq true --slim Params,Meta >$DIR/leaders.json
drpcli machines list {{.Param "cluster/filter"}} >$DIR/all.json
{ drpcli machines count {{.Param "cluster/filter"}}; drpcli machines count {{.Param "cluster/filter"}} cluster/manager Eq true; cluster_members | wc -l; } >$DIR/counts
drpcli profiles show prod 2>$DIR/refused
echo $? >>$DIR/refused
drpcli machines workflow n5 noop >$DIR/started.json
`,
		"noop": "true",
		"server": rebarSetup + `
is_leader || exit 8
{{if .Param "cluster/leader"}}:{{else}}exit 7{{end}}
drpcli -T "$PROFILE_TOKEN" profiles add $CLUSTER_PROFILE param k3s/join to "K10::server:007" || exit
drpcli -T $PROFILE_TOKEN profiles set $CLUSTER_PROFILE param k3s/pem to "` + pem + `" || exit
drpcli -T $PROFILE_TOKEN profiles add $CLUSTER_PROFILE param k3s/join to again 2>/dev/null && exit 9
printf '0x1F\n' | drpcli -T $PROFILE_TOKEN profiles add $CLUSTER_PROFILE param k3s/stdin to - || exit
touch $DIR/server
`,
		"worker": rebarSetup + `
[ -e $DIR/server ] || exit 9
is_leader; [ $? = 1 ] || exit 8
(export CONSUL_HTTP_ADDR=127.0.0.1:1; is_leader 2>/dev/null; [ $? = 3 ]) || exit 7
(export CLUSTER_PROFILE=nope; is_leader 2>/dev/null; [ $? -ge 2 ]) || exit 6
[ "$(get_param k3s/join)" = "K10::server:007" ] || exit 5
get_param k3s/pem >$DIR/pem.$JORC_NODE
drpcli machines meta set $JORC_NODE key icon to mine 2>/dev/null && exit 4 # the token is for the profile
exit 0
`,
	})
	got := jorc(t, f.operator, "cluster", "leader", "--elect", "--count", "1")
	leader := strings.TrimSpace(got.stdout)
	if got.code != exitOK || !slices.Contains(rebarMembers, leader) {
		t.Fatalf("leader: %+v", got)
	}
	f.run("install", "--on-manager")
	f.run("report", "--on-manager")
	if l := f.machines("leaders.json"); len(l) != 1 || l[0].Uuid != leader || l[0].Name != leader || !strings.HasPrefix(l[0].Address, "10.0.0.") || l[0].Params != nil || l[0].Meta != nil {
		t.Errorf("leaders: %+v", l)
	}
	workers := f.machines("workers.json")
	if len(workers) != 4 || slices.ContainsFunc(workers, func(m struct {
		Uuid, Name, Address string
		Params, Meta        map[string]any
	},
	) bool {
		return m.Uuid == leader || m.Params["cluster/leader"] != false || m.Params["cluster/k3s"] != true || m.Meta != nil
	}) {
		t.Errorf("workers: %+v", workers)
	}
	for _, m := range f.machines("all.json") {
		if icon := m.Meta["icon"]; (icon == "anchor") != (m.Uuid == leader) || m.Params["cluster/manager"] != (m.Uuid == f.server.Node) {
			t.Errorf("%s: %+v", m.Uuid, m)
		}
	}
	if got := f.read("counts"); got != "6\n1\n6\n" {
		t.Errorf("counts: %q", got)
	}
	if got := f.read("refused"); !strings.Contains(got, "use 'jorc cluster profile'") || !strings.HasSuffix(got, "\n2\n") {
		t.Errorf("a form that does not exist: %q", got)
	}
	var started struct{ Uuid, Workflow, Run string }
	if err := json.Unmarshal([]byte(f.read("started.json")), &started); err != nil || started.Uuid != "n5" || started.Workflow != "noop" || started.Run == "" {
		t.Errorf("started: %+v, %v", started, err)
	}
	for _, m := range workers {
		if got := f.read("pem." + m.Uuid); got != pem+"\n" {
			t.Errorf("%s reads %q", m.Uuid, got)
		}
	}
	do := doer(t, f.operator)
	do(result{0, `"K10::server:007"` + "\n", ""}, "profile", "get", "k3s/join")
	do(result{0, "0x1F\n", ""}, "profile", "get", "k3s/stdin", "--raw")

	// A filter of jorc's own language, as the param has it, passes word by word, too.
	do(result{0, "", ""}, "profile", "set", "cluster/filter", `Node != "`+leader+`" and "k3s" in Roles`)
	do(result{0, "4\n", ""}, "members", "--cluster-filter", "--count")
}
