package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

// doer runs command lines below "jorc cluster" against one server.
func doer(t *testing.T, env map[string]string) func(want result, args ...string) {
	return func(want result, args ...string) {
		t.Helper()
		if got := jorc(t, env, append([]string{"cluster"}, args...)...); got != want {
			t.Errorf("jorc cluster %s:\ngot  %+v\nwant %+v", strings.Join(args, " "), got, want)
		}
	}
}

func TestClusterCommands(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	env["JORC_CLUSTER"] = "prod"
	env["USER"] = "ann"
	do := doer(t, env)
	do(result{1, "", "jorc: cluster \"prod\": no such cluster: create it with 'jorc cluster init prod'\n"}, "profile", "show")
	do(result{0, "", ""}, "init", "prod", "--leaders", "2", "--manager", "boss")
	do(result{0, "", "jorc: cluster \"prod\" exists already; nothing was changed\n"}, "init", "prod")
	do(result{0, "prod\t1\n", ""}, "list", "-o", "plain")
	do(result{1, "", ""}, "leader")
	do(result{0, "", ""}, "join", "--role", "db", "--zone", "r1", "--param", "disks=4", "--param", "name=x", "--provides", "mysql")
	do(result{0, "", ""}, "join", "--node", "web-1", "--role", "web", "--requires", "mysql", "--provides", "http")
	do(result{0, "", ""}, "join", "--node", "web-1")
	do(result{0, s.Node + "\nweb-1\n", ""}, "leader")
	do(result{0, "boss\t\t\tmanager\t\t\tdown\n" + s.Node + "\t" + s.IP + "\tr1\tdb,leader\t\tpassing\tdown\nweb-1\t\t\tweb,leader\t\t\tdown\n", ""}, "members", "-o", "plain")
	do(result{0, "2\n", ""}, "members", "--role", "leader", "--count")
	do(result{0, s.Node + "\t4\n", ""}, "members", "--filter", `Params["disks"] == 4`, "--fields", "node,params.disks", "-o", "plain")
	do(result{0, "web-1\n", ""}, "members", "--fields", "Node", "--sort", "-node", "--limit", "1", "-o", "plain")
	do(result{2, "", "jorc: --filter: column 1, at \"Zon == a\": there is no field \"Zon\": Address, Agent, Datacenter, Health, Meta, Node, NodeMeta, Params, Roles, " +
		"Services, Status, Version, Workflows, Zone are; see 'jorc cluster members --help'\n"}, "members", "--filter", "Zon == a")
	do(result{0, "web-1 requires mysql (functional): provided by " + s.Node + "\n", ""}, "deps")
	do(result{0, "", ""}, "deps", "--check")
	do(result{0, "", ""}, "join", "--requires", "http")
	do(result{1, s.Node + " -[http]-> web-1 -[mysql]-> " + s.Node + "\n", ""}, "deps", "--check")
	do(result{0, "", ""}, "meta", "set", "icon", "db", "--node", "web-1")
	do(result{0, "db", ""}, "meta", "get", "icon", "--raw", "--node", "web-1")
	do(result{1, "", "jorc: meta \"icon\" in cluster \"prod\" does not exist\n"}, "meta", "get", "icon")
	do(result{0, "", ""}, "pause", "--reason", "why")
	do(result{0, "", "jorc: cluster \"prod\": it is paused already; nothing was changed\n"}, "pause")
	do(result{0, "", ""}, "resume")
	do(result{0, "", ""}, "hold", "--role", "db")
	do(result{0, "", ""}, "unhold", "--node", s.Node)
	do(result{0, "", ""}, "observe-only", "on")
	do(result{2, "", "jorc: --role and --node exclude each other; see 'jorc cluster hold --help'\n"}, "hold", "--role", "x", "--node", "y")
	if err := s.Client().KVPut(t.Context(), &consul.KVPair{Key: "jorc/prod/host/hurt/member", Value: []byte("{")}); err != nil {
		t.Fatal(err)
	}
	hurt := "jorc: host/hurt/member was left out: read key \"jorc/prod/host/hurt/member\": damaged document: unexpected end of JSON input\n"
	do(result{0, "3\n", hurt}, "members", "--count")
	do(result{1, s.Node + " -[http]-> web-1 -[mysql]-> " + s.Node + "\n", hurt}, "deps", "--check")
	do(result{0, "", ""}, "leave", "--node", "hurt")
	do(result{0, "", ""}, "leave", "--node", "web-1")
	do(result{0, "", "jorc: node \"web-1\" is no member of cluster \"prod\"; host \"web-1\": no such host; hosts: boss, " + s.Node + "\n"}, "leave", "--node", "web-1")
	do(result{1, "", "jorc: make a token for the profile of cluster \"prod\": Consul's ACLs are switched off: none is needed\n"}, "profile", "token")

	exported := jorc(t, env, "cluster", "export")
	file := writeFile(t, "export.json", exported.stdout)
	do(result{0, "", ""}, "import", file, "--cluster", "copy")
	do(result{0, "", ""}, "import", file, "--cluster", "copy")
	do(result{0, "copy", ""}, "profile", "get", "cluster/profile", "--raw", "--cluster", "copy")
	do(result{0, "2\n", ""}, "members", "--count", "--cluster", "copy")
	do(result{0, "", ""}, "profile", "set", "k", "1", "--cluster", "copy")
	do(result{4, "", "jorc: cluster \"copy\" exists already and its profile differs: changed meanwhile: nothing was written; --replace overwrites it\n"},
		"import", file, "--cluster", "copy")
	do(result{0, "", ""}, "import", file, "--cluster", "copy", "--replace")
	again := jorc(t, env, "cluster", "export", "copy")
	if want := strings.ReplaceAll(exported.stdout, `"prod"`, `"copy"`); again.stdout != want {
		t.Errorf("export of the import:\n%s\nwant\n%s", again.stdout, want)
	}
	do(result{2, "", "jorc: this deletes cluster \"copy\" with its profile, members and history: confirm with --yes; see 'jorc cluster delete --help'\n"}, "delete", "copy")
	do(result{0, "", ""}, "delete", "copy", "--yes")
	do(result{0, "prod\t2\n", ""}, "list", "-o", "plain")
}

func TestProfileCommands(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	do := doer(t, env)
	do(result{0, "", ""}, "init", "default")
	do(result{0, "", ""}, "profile", "set", "n", "1")
	do(result{0, "1\n", ""}, "profile", "get", "n")
	do(result{0, "", ""}, "profile", "set", "n", "1.0", "--ref", "1")
	do(result{0, "1.0\n", ""}, "profile", "get", "n")
	do(result{4, "", "jorc: param \"n\" is not what the reference asks for: nothing was written; read it again and decide\n"}, "profile", "set", "n", "2", "--ref", "3")
	do(result{4, "", "jorc: param \"n\" exists already: nothing was written; read it again and decide\n"}, "profile", "add", "n", "2")
	do(result{4, "", "jorc: param \"new\" does not exist, and the reference asks for a value: nothing was written; read it again and decide\n"}, "profile", "set", "new", "2", "--ref", "1")
	do(result{0, "", ""}, "profile", "set", "new", "2", "--ref", "none", "--default", "none")
	do(result{0, "none", ""}, "profile", "get", "my/data", "--raw", "--default", "none")
	do(result{1, "", "jorc: param \"my/data\" of cluster \"default\": it does not exist; --default gives a value for that case\n"}, "profile", "get", "my/data")
	do(result{0, "", ""}, "profile", "set", "big", "123456789012345678901234567890")
	do(result{0, "123456789012345678901234567890\n", ""}, "profile", "get", "big")
	do(result{0, "", ""}, "profile", "set", "list", "@"+writeFile(t, "list.yaml", "- a\n- {b: 1}\n"), "--yaml")
	do(result{0, `["a",{"b":1}]` + "\n", ""}, "profile", "get", "list")
	do(result{0, "", ""}, "profile", "remove", "list")
	do(result{0, "", ""}, "profile", "remove", "list")
	do(result{2, "", "jorc: --absent and --ref exclude each other; see 'jorc cluster profile set --help'\n"}, "profile", "set", "n", "1", "--ref", "1", "--absent")
	do(result{2, "", "jorc: --default needs --ref; see 'jorc cluster profile set --help'\n"}, "profile", "set", "n", "1", "--default", "1")

	before := writeFile(t, "before.json", `{"n": 1, "big": 0}`)
	after := writeFile(t, "after.json", `{"n": 5, "big": 0, "more": true}`)
	do(result{0, "", ""}, "profile", "params", after, "--ref", before)
	do(result{0, "5\n", ""}, "profile", "get", "n")
	if got := jorc(t, env, "cluster", "profile", "params", after, "--ref", before); got.code != exitConflict || !strings.Contains(got.stderr, `"more" exists already`) {
		t.Errorf("the same again: %+v", got)
	}
	patch := writeFile(t, "patch.json", `[{"op": "test", "path": "/params/n", "value": 5}, {"op": "add", "path": "/params/a~1b", "value": null}]`)
	do(result{0, "", ""}, "profile", "patch", patch)
	do(result{0, "null\n", ""}, "profile", "get", "a/b")
	failing := writeFile(t, "failing.json", `[{"op": "remove", "path": "/params/n"}, {"op": "test", "path": "/params/gone", "value": null}]`)
	if got := jorc(t, env, "cluster", "profile", "patch", failing); got.code != exitConflict {
		t.Errorf("a test that fails: %+v", got)
	}
	do(result{0, "5\n", ""}, "profile", "get", "n")
	schema := writeFile(t, "schema.json", `{"type": "integer", "maximum": 9, "default": 3}`)
	do(result{0, "", ""}, "profile", "schema", "set", "limit", schema)
	if got := jorc(t, env, "cluster", "profile", "set", "limit", "10"); got.code != exitFailed || !strings.Contains(got.stderr, "maximum: more than 9") {
		t.Errorf("a value past its schema: %+v", got)
	}
	do(result{1, "", "jorc: param \"limit\" of cluster \"default\": it does not exist; --default gives a value for that case\n"}, "profile", "get", "limit")
	do(result{0, "3\n", ""}, "profile", "get", "limit", "--effective")
	do(result{0, "", ""}, "join", "--role", "db")
	do(result{0, "", ""}, "profile", "set", "limit", "4", "--role", "db")
	do(result{0, "4\n", ""}, "profile", "get", "limit", "--effective")
	do(result{0, "", ""}, "profile", "set", "limit", "5", "--node", s.Node)
	do(result{0, "5\n", ""}, "profile", "get", "limit", "--effective")
	do(result{0, "4\n", ""}, "profile", "get", "limit", "--effective", "--role", "db")
	do(result{1, "", "jorc: host \"other\": no such host; hosts: " + s.Node + "\n"}, "profile", "set", "limit", "5", "--node", "other")
	do(result{0, "", ""}, "profile", "schema", "remove", "limit")
	half := strings.Repeat("x", 450<<10)
	got := jorc(t, env, "cluster", "profile", "set", "half", "@"+writeFile(t, "half.json", `"`+half+`"`))
	if got.code != exitOK || !strings.Contains(got.stderr, "88 % of Consul's 512 KiB") {
		t.Errorf("near the limit: %+v", got)
	}
	if got := jorc(t, env, "cluster", "profile", "set", "more", "@"+writeFile(t, "more.json", `"`+half+`"`)); got.code != exitFailed {
		t.Errorf("beyond the limit: %+v", got)
	}
}

// TestProfileEdit: what others changed meanwhile stays; a conflict loses
// neither side.
func TestProfileEdit(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	env["TMPDIR"] = t.TempDir()
	do := doer(t, env)
	do(result{0, "", ""}, "init", "default")
	do(result{0, "", ""}, "profile", "set", "mine", "1")
	do(result{0, "", ""}, "profile", "set", "theirs", "1")
	env["EDITOR"] = "true"
	do(result{0, "", "jorc: nothing changed\n"}, "profile", "edit")
	binary := builtOnce(t)
	meanwhile := "CONSUL_HTTP_ADDR=" + s.HTTPAddr + " " + binary + " cluster profile set "
	env["EDITOR"] = meanwhile + `theirs 2; sed -i 's/"mine": 1/"mine": 2/'`
	do(result{0, "", ""}, "profile", "edit")
	do(result{0, "2\n", ""}, "profile", "get", "mine")
	do(result{0, "2\n", ""}, "profile", "get", "theirs")
	env["EDITOR"] = meanwhile + `mine 7; sed -i 's/"mine": 2/"mine": 8/'`
	got := jorc(t, env, "cluster", "profile", "edit")
	if got.code != exitConflict || !strings.Contains(got.stderr, "yours   8\n  theirs  7\n") {
		t.Errorf("both changed the same: %+v", got)
	}
	_, kept, _ := strings.Cut(strings.TrimSpace(got.stderr), "your version is kept in ")
	if data, err := os.ReadFile(kept); err != nil || !strings.Contains(string(data), `"mine": 8`) {
		t.Errorf("the kept version: %s, %v", data, err)
	}
	_ = os.Remove(kept)
	do(result{0, "7\n", ""}, "profile", "get", "mine")
}

// TestShellRace: of 50 processes that read a param and set it if it still is
// as they read it, exactly one wins and the others exit 4; whether it was there,
// was never set, or has only a schema's default.
func TestShellRace(t *testing.T) {
	t.Parallel()
	s, env := onShared(t)
	do := doer(t, env)
	do(result{0, "", ""}, "init", "default")
	do(result{0, "", ""}, "profile", "set", "there", "some text")
	do(result{0, "", ""}, "profile", "schema", "set", "defaulted", writeFile(t, "schema.json", `{"type": "string", "default": "std"}`))
	binary := builtOnce(t)
	dir := t.TempDir()
	for _, name := range []string{"there", "never", "defaulted"} {
		// All read before the first writes: each says that it has read and waits for the word to go.
		script := `cl=$("$1" cluster profile get "$2" --raw --default none) || exit 9
			touch "$3/$2.$4"; until [ -e "$3/$2.go" ]; do sleep 0.05; done
			"$1" cluster profile set "$2" "winner-$4" --ref "$cl" --default none`
		codes := make([]int, 50)
		var racers sync.WaitGroup
		for i := range codes {
			racers.Go(func() {
				cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", script, "sh", binary, name, dir, string(rune('A'+i)))
				cmd.Env = []string{"CONSUL_HTTP_ADDR=" + s.HTTPAddr, "JORC_PREFIX=" + env["JORC_PREFIX"], "PATH=" + os.Getenv("PATH"), "GOMAXPROCS=1", consultest.NoConfig}
				var stderr bytes.Buffer
				cmd.Stderr = &stderr
				_ = cmd.Run() // the code says it
				codes[i] = cmd.ProcessState.ExitCode()
				if codes[i] != exitOK && codes[i] != exitConflict {
					t.Errorf("%s: racer %d exits %d: %s", name, i, codes[i], stderr.String())
				}
			})
		}
		consultest.Eventually(t, "all to have read", func(context.Context) error {
			for i := range codes {
				if _, err := os.Stat(filepath.Join(dir, name+"."+string(rune('A'+i)))); err != nil {
					return err
				}
			}
			return nil
		})
		if err := os.WriteFile(filepath.Join(dir, name+".go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		racers.Wait()
		winner := ""
		for i, code := range codes {
			if code == exitOK {
				winner += "winner-" + string(rune('A'+i))
			}
		}
		if got := jorc(t, env, "cluster", "profile", "get", name, "--raw"); got.stdout != winner {
			t.Errorf("%s: it is %q; those who exit 0: %q", name, got.stdout, winner)
		}
	}
}

func TestMembersJSON(t *testing.T) {
	t.Parallel()
	_, env := onShared(t)
	do := doer(t, env)
	do(result{0, "", ""}, "init", "default")
	do(result{0, "", ""}, "join", "--role", "db")
	got := jorc(t, env, "cluster", "members", "-o", "json")
	var all []map[string]any
	if err := json.Unmarshal([]byte(got.stdout), &all); err != nil || len(all) != 1 {
		t.Fatalf("%v: %+v", err, got)
	}
	for _, field := range []string{"node", "address", "datacenter", "zone", "roles", "params", "meta", "node_meta", "services", "workflows", "version", "status", "health", "agent"} {
		if _, ok := all[0][field]; !ok {
			t.Errorf("field %s is missing", field)
		}
	}
	do(result{0, "[]\n", ""}, "members", "-o", "json", "--filter", "Node == none")
}

// TestInitLater: a cluster begins without leaders, and what init names is done
// when the cluster exists already.
func TestInitLater(t *testing.T) {
	t.Parallel()
	_, env := onShared(t)
	env["JORC_CLUSTER"] = "prod"
	do := doer(t, env)
	do(result{0, "", ""}, "init", "prod", "--leaders", "0")
	for _, node := range []string{"a", "b", "c"} {
		do(result{0, "", ""}, "join", "--node", node)
	}
	do(result{1, "", ""}, "leader", "--elect")
	if got := jorc(t, env, "cluster", "leader", "--elect", "--count", "2"); got.code != 0 || strings.Count(got.stdout, "\n") != 2 {
		t.Errorf("2 leaders: %+v", got)
	}
	const exists = "jorc: cluster \"prod\" exists already; "
	do(result{0, "", exists + "boss is a manager now\n"}, "init", "prod", "--manager", "boss")
	do(result{0, "", exists + "nothing was changed\n"}, "init", "prod", "--manager", "boss", "--leaders", "2")
	do(result{0, "", exists + "nothing was changed; its number of leaders is 2: change it with 'jorc cluster leader --count'\n"}, "init", "prod", "--leaders", "0")
	do(result{0, "boss\tmanager\n", ""}, "members", "--role", "manager", "--fields", "Node,Roles", "-o", "plain")
}

// TestJoinBesideMemberBlock: join says that the member block of the host's agent
// decides, and nothing that it set changes.
func TestJoinBesideMemberBlock(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	m := newMachine(t, s, `
http { address = "127.0.0.1:0" }
member {
  roles  = ["web"]
  params = { disks = 4 }
}
`)
	m.must("cluster", "init", "default")
	m.agent()
	m.eventually("the host to be a member", func() error { return lacks(m.run("cluster", "members", "--role", "web", "-o", "plain").stdout, s.Node) })
	for _, test := range []struct {
		args string
		code int
		says string
	}{
		{"--role web --config " + m.path("jorc.hcl"), 0, ""},
		{"--role db --config " + m.path("jorc.hcl"), 1, "the member block in the configuration of this host's agent decides"},
		{"--zone z --config " + m.path("jorc.hcl"), 1, "nothing was changed: change the block"},
		{"--param disks=5 --config " + m.path("jorc.hcl"), 1, "nothing was changed: change the block"},
		{"--param other=1 --config " + m.path("jorc.hcl"), 0, ""},
		{"--role db --node other --config " + m.path("jorc.hcl"), 0, ""},
		{"--role db --node " + s.Node, 0, "jorc: warning: the agent on " + s.Node + " has a member block"},
	} {
		got := m.run(append([]string{"cluster", "join"}, strings.Fields(test.args)...)...)
		if got.code != test.code || !strings.Contains(got.stderr, test.says) || test.says == "" && got.stderr != "" {
			t.Errorf("join %s: %+v, want exit %d and %q", test.args, got, test.code, test.says)
		}
	}
	m.eventually("the roles and params of the block", func() error {
		return lacks(m.run("cluster", "members", "--filter", `Node == "`+s.Node+`"`, "--fields", "Roles,Params.disks,Params.other", "-o", "plain").stdout, "web,leader\t4\t1\n")
	})
}
