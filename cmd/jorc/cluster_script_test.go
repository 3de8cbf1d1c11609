package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/workflow"
)

// scripted is a member whose workflows take in the shipped functions.
type scripted struct {
	t      *testing.T
	env    map[string]string
	binary string
}

func newScripted(t *testing.T, s *consultest.Server, token string) scripted {
	t.Helper()
	return scripted{t: t, binary: builtOnce(t), env: map[string]string{
		"CONSUL_HTTP_ADDR": s.HTTPAddr, "CONSUL_HTTP_TOKEN": token, "JORC_STATE_DIR": t.TempDir(),
		"JORC_CLUSTER": "prod", "JORC_NODE": "n1",
	}}
}

// run runs a script as a workflow's only task, by a jorc that has a's token.
func (a scripted) run(task, script string, flags ...string) (workflow.Result, result) {
	a.t.Helper()
	config := writeFile(a.t, "workflow.hcl", `
workflow "w" {
  task "script" {
    env = { PATH = `+strconv.Quote(filepath.Dir(a.binary)+":"+os.Getenv("PATH"))+` }
    `+task+`
    script = <<-EOT
#!/bin/sh -u
{{ template "cluster-utilities.tmpl" . }}
`+script+`
EOT
  }
}
`)
	got := jorc(a.t, a.env, append([]string{"workflow", "run", "w", "--config", config, "-o", "json"}, flags...)...)
	var res workflow.Result
	if got.stdout != "" {
		if err := json.Unmarshal([]byte(got.stdout), &res); err != nil {
			a.t.Fatalf("%+v: %v", got, err)
		}
	}
	return res, got
}

// output is what a job printed.
func (a scripted) output(id string) string {
	a.t.Helper()
	return jorc(a.t, a.env, "workflow", "logs", id).stdout
}

// TestClusterUtilities runs a script made of the shipped functions, under
// default deny: with a token that jorc makes for the job, or with that of the
// task. Each may write the profile and nothing else, and reads the cluster.
func TestClusterUtilities(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	operator := onServer(t, s)
	operator["JORC_CLUSTER"] = "prod"
	do := doer(t, operator)
	do(result{0, "", ""}, "init", "prod")
	do(result{0, "", ""}, "profile", "set", "size", "3")
	do(result{0, "", ""}, "profile", "set", "colour", "blue", "--role", "db", "--force")
	do(result{0, "", ""}, "join", "--node", "n1", "--role", "db", "--param", "size=2")
	token := jorc(t, operator, "cluster", "profile", "token", "--ttl", "5m")
	if token.code != exitOK || token.stderr != "" {
		t.Fatalf("token: %+v", token)
	}
	tokenFile := writeFile(t, "token", token.stdout)
	// A member's agent may read the profile, and cannot make tokens.
	policy := fleet.New(s.Client(), "jorc", "prod").Policies("n1")[0]
	root, agent := newScripted(t, s, s.RootToken), newScripted(t, s, s.NewToken(policy.Rules))
	withFile := "token_file = " + strconv.Quote(tokenFile)

	for _, test := range []struct {
		name   string
		script string
		code   int
		want   string
	}{
		{"rendered and now", `echo {{ .Param "size" }} {{ .Param "colour" }} {{ .ParamExists "gone" }}; get_param size`, 0, "2 blue false\n3\n"},
		{"default", `get_param gone none`, 0, "none\n"},
		{"set", `set_param size 4 3 && get_param size && set_param size 3`, 0, "4\n"},
		{"text", `set_param pem "$(printf '007 #b\nx\n')" && get_param pem && set_param --string n 1.0 && set_param --string n @x 1.0 && get_param n && remove_param n && remove_param pem`, 0, "007 #b\nx\n@x\n"},
		{"no match", `set_param size 5 9 2>/dev/null`, 4, ""},
		{"first", `add_param who -1 && get_param who && ! add_param who 2 2>/dev/null && remove_param who -1`, 0, "-1\n"},
		{"default of a reference", `set_param other x none none && get_param other && remove_param other`, 0, "x\n"},
		{"members", `cluster_members; cluster_members --count --role db; is_leader && echo leads; effective_param size; effective_param gone none; cluster_wait_for_workflow_complete "" 60s && echo idle`, 0, "n1\n1\nleads\n2\nnone\nidle\n"},
		{"filter", `set_param cluster/filter 'Node == "none"' && cluster_members --count; remove_param cluster/filter; cluster_members --count`, 0, "0\n1\n"},
		{"beyond the token", `cluster_jorc cluster meta set icon x --node n1 2>/dev/null`, 5, ""},
		{"variables", `echo "$CLUSTER_PROFILE"`, 0, "prod\n"},
	} {
		for how, job := range map[string]func() (workflow.Result, result){
			"made":       func() (workflow.Result, result) { return root.run("", test.script) },
			"token_file": func() (workflow.Result, result) { return agent.run(withFile, test.script) },
		} {
			res, got := job()
			host := map[string]scripted{"made": root, "token_file": agent}[how]
			if out := host.output(res.ID); len(res.Tasks) != 1 || res.Tasks[0].ExitCode != test.code || out != test.want {
				t.Errorf("%s, %s: got %+v, %q; want exit %d, %q", test.name, how, got, out, test.code, test.want)
			}
		}
	}
}

// TestClusterUtilitiesTokens: the error for a token that cannot be created says what
// to do, and no token is where it does not belong.
func TestClusterUtilitiesTokens(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	operator := onServer(t, s)
	operator["JORC_CLUSTER"] = "prod"
	do := doer(t, operator)
	do(result{0, "", ""}, "init", "prod")
	do(result{0, "", ""}, "init", "other")
	do(result{0, "", ""}, "join", "--node", "n1")
	root := newScripted(t, s, s.RootToken)
	agent := newScripted(t, s, s.NewToken(`key_prefix "jorc/prod/" { policy = "read" }`))

	res, got := agent.run("", `echo "<$PROFILE_TOKEN>"`)
	if out := agent.output(res.ID); got.code != exitOK || !strings.Contains(out, "the profile of cluster prod cannot be read") || !strings.HasSuffix(out, "<>\n") {
		t.Errorf("without a token: got %+v, %q", got, out)
	}
	if _, got := agent.run("", `echo {{ .ProfileToken }}`); got.code != exitDenied || !strings.Contains(got.stderr, "only callers with acl:write can") || !strings.Contains(got.stderr, "token_file") {
		t.Errorf("a token that cannot be made: got %+v, want exit 5", got)
	}

	for _, cluster := range []string{"prod", "other"} {
		_, got := agent.run("", `echo {{ .GenerateProfileToken "`+cluster+`" 7200 }}`)
		if got.code != exitDenied || !strings.Contains(got.stderr, "'jorc cluster profile token --cluster "+cluster+" > FILE', and the task gets token_file") {
			t.Errorf("a token for %s that cannot be made: got %+v, want exit 5 and what to do", cluster, got)
		}
	}
	// The remedy that the error names works, and is not named again.
	file := writeFile(t, "token", jorc(t, operator, "cluster", "profile", "token").stdout)
	res, got = agent.run("token_file = "+strconv.Quote(file), `{{ template "setup.tmpl" . }}
drpcli -T "{{ .GenerateProfileToken .ClusterProfile 7200 }}" profiles set $CLUSTER_PROFILE param owner to me || exit
drpcli -T {{ .ProfileToken }} profiles set $CLUSTER_PROFILE param owner to you || exit
get_param owner`)
	if out := agent.output(res.ID); got.code != exitOK || out != "you\n" {
		t.Errorf("with a token_file: got %+v, %q", got, out)
	}
	_, got = agent.run("token_file = "+strconv.Quote(file), `echo {{ .GenerateProfileToken "other" 7200 }}`)
	if got.code != exitDenied || strings.Contains(got.stderr, "the task gets token_file") || !strings.Contains(got.stderr, "the script reads that file instead") {
		t.Errorf("for another cluster with a token_file: got %+v", got)
	}

	// A script that shows its tokens in all ways, and fails.
	res, got = root.run("", `set -x
other={{ .GenerateProfileToken "other" 60 }}
[ "$PROFILE_TOKEN" = {{ .ProfileToken }} ] || exit 9
[ "$PROFILE_TOKEN" != "$other" ] || exit 9
echo "$PROFILE_TOKEN" "$other"
PROFILE_TOKEN=$other CLUSTER_PROFILE=other
set_param who me && get_param who
CLUSTER_PROFILE=prod
set_param who me
exit 7`)
	out := root.output(res.ID)
	if len(res.Tasks) != 1 || res.Tasks[0].ExitCode != 7 || !strings.Contains(out, "\n[redacted] [redacted]\n") || !strings.Contains(out, "\nme\n") || !strings.Contains(out, "ermission denied") {
		t.Errorf("got %+v, %q", got, out)
	}
	var secrets []string
	uuid := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	err := filepath.WalkDir(root.env["JORC_STATE_DIR"], func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "script") {
			return err
		}
		text, err := os.ReadFile(path)
		secrets = append(secrets, uuid.FindAllString(string(text), -1)...)
		info, _ := d.Info()
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s is %v", path, info.Mode())
		}
		return err
	})
	if err != nil || len(secrets) != 3 {
		t.Errorf("tokens in scripts: got %d, %v, want 3", len(secrets), err)
	}
	for _, secret := range secrets {
		if strings.Contains(out+got.stdout+got.stderr, secret) {
			t.Error("a token is in the log")
		}
	}
}

// TestClusterUtilitiesAlone: without a cluster, or without ACLs, the functions
// that need none work.
func TestClusterUtilitiesAlone(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	host := newScripted(t, s, "")
	res, got := host.run("", `jorc_stop enough`)
	if out := host.output(res.ID); got.code != exitStopped || !strings.Contains(out, "jorc: warning: the profile of cluster prod cannot be read") || !strings.HasSuffix(out, "enough\n") {
		t.Errorf("no cluster: got %+v, %q", got, out)
	}
	do := doer(t, host.env)
	do(result{0, "", ""}, "init", "prod")
	res, got = host.run("", `echo "<$PROFILE_TOKEN{{ .ProfileToken }}>"; set_param a 1; get_param a`)
	if out := host.output(res.ID); got.code != exitOK || out != "<>\n1\n" {
		t.Errorf("no ACLs: got %+v, %q", got, out)
	}
	// A param is as of the job's creation, what a function prints as of now.
	res, got = host.run("", `[ "{{ .Param "a" }}" = "$(get_param a)" ] || { echo {{ .Param "a" }} "$(get_param a)"; exit 0; }
jorc_not_yet same`, "--id", "later", "--timeout", "1ns")
	if got.code != exitTimeout || res.State != workflow.Pending {
		t.Fatalf("got %+v", got)
	}
	do(result{0, "", ""}, "profile", "set", "a", "2")
	if res, got = host.run("", `:`, "--id", "later"); got.code != exitOK {
		t.Fatalf("got %+v", got)
	}
	if out := host.output(res.ID); !strings.HasSuffix(out, "\n1 2\n") {
		t.Errorf("got %q", out)
	}
	host.env["CONSUL_HTTP_ADDR"] = "127.0.0.1:1"
	res, got = host.run("", `jorc_stop enough`)
	if out := host.output(res.ID); got.code != exitStopped || !strings.HasSuffix(out, "enough\n") {
		t.Errorf("no Consul: got %+v, %q", got, out)
	}
}

// documented runs a workflow's script of docs/cluster.md as its only task.
func (a scripted) documented(task, kind, name string) (workflow.Result, result) {
	a.t.Helper()
	config := writeFile(a.t, "documented.hcl", `workflow "w" {
  task "script" {
    env     = { PATH = `+strconv.Quote(filepath.Dir(a.binary)+":"+os.Getenv("PATH"))+` }
    timeout = "2m"
    `+task+`
    script  = <<-EOF
`+documented(a.t, kind, name)+`
EOF
  }
}
`)
	got := jorc(a.t, a.env, "workflow", "run", "w", "--config", config, "-o", "json")
	var res workflow.Result
	if err := json.Unmarshal([]byte(got.stdout), &res); err != nil || len(res.Tasks) != 1 {
		a.t.Fatalf("%+v: %v", got, err)
	}
	return res, got
}

// TestDocumentedScriptsEnd: the scripts of the documentation end with the first error of drpcli
// that is not a conflict, with its code and its reason.
func TestDocumentedScriptsEnd(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	operator := onServer(t, s)
	operator["JORC_CLUSTER"] = "prod"
	do := doer(t, operator)
	do(result{0, "", ""}, "init", "prod")
	do(result{0, "", ""}, "profile", "schema", "set", "db/owner", writeFile(t, "schema", `{"type": "string", "default": "none"}`))
	do(result{0, "", ""}, "join", "--node", "n1")
	token := s.NewToken(`key_prefix "jorc/prod/" { policy = "read" }`)
	reader, withFile := newScripted(t, s, token), "token_file = "+strconv.Quote(writeFile(t, "token", token))
	for kind, name := range map[string]string{"script": "claim", "manager": "install"} {
		res, got := reader.documented(withFile, kind, name)
		if task := res.Tasks[0]; got.code != exitFailed || task.ExitCode != exitDenied || !strings.Contains(res.Why, "denied by ACLs") {
			t.Errorf("%s: got exit code %d, %q; want 5 and the reason\n%s", name, task.ExitCode, res.Why, reader.output(res.ID))
		}
	}
	root := newScripted(t, s, s.RootToken)
	res, got := root.documented("", "script", "claim")
	if got.code != exitOK {
		t.Errorf("claim: got %+v\n%s", got, root.output(res.ID))
	}
	do(result{0, "n1", ""}, "profile", "get", "db/owner", "--raw")
}

// TestFilterReachesDrpcli: a filter with quotes and parentheses selects members in a script
// that has nothing around it; 'config validate' warns of quotes around it.
func TestFilterReachesDrpcli(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	host := newScripted(t, s, "")
	do := doer(t, host.env)
	do(result{0, "", ""}, "init", "prod")
	do(result{0, "", ""}, "join", "--node", "n1", "--param", "disks=4")
	do(result{0, "", ""}, "join", "--node", "n2", "--param", "disks=99", "--zone", "it's")
	for filter, want := range map[string]string{
		`Params["disks"] != 99`:                                 "1\n0\n",
		`(Params["disks"] != 98) and (Node != "x$(exit 9)\\y")`: "2\n1\n",
		"Zone == \"it's\" or\nZone == \"it's\"":                 "1\n1\n",
	} {
		do(result{0, "", ""}, "profile", "set", "cluster/filter", filter)
		res, got := host.run("", `{{template "setup.tmpl" .}}
drpcli machines count {{.Param "cluster/filter"}} || exit
n="$(drpcli machines count {{.Param "cluster/filter"}} disks Eq 99)" || exit
echo "$n"`)
		if out := host.output(res.ID); got.code != exitOK || out != want {
			t.Errorf("%s: got %+v, %q, want %q", filter, got, out, want)
		}
	}
	config := writeFile(t, "quoted.hcl", `workflow "w" {
  task "t" { script = "drpcli machines list '{{.Param \"cluster/filter\"}}'" }
}
`)
	got := jorc(t, nil, "config", "validate", config)
	if got.code != exitOK || !strings.Contains(got.stderr, `warning: workflow "w": task "t": script: line 1: the param "cluster/filter" stands inside quotes`) {
		t.Errorf("validate: %+v", got)
	}
}
