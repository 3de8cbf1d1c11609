package main

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// runDrpcli calls 'jorc cluster drpcli' as the function of setup.tmpl does.
func runDrpcli(t *testing.T, env map[string]string, stdin string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	h := testHost(env, &stdout, &stderr)
	h.stdin = strings.NewReader(strings.Join(append([]string{strconv.Itoa(len(args))}, args...), "\x00") + "\x00" + stdin)
	return result{run(t.Context(), []string{"cluster", "drpcli"}, h), stdout.String(), stderr.String()}
}

// TestDrpcliForms: a form that does not exist exits 2 and names the jorc command,
// and no error contains a value.
func TestDrpcliForms(t *testing.T) {
	t.Parallel()
	env := onServer(t, consultest.Start(t))
	env["JORC_CLUSTER"] = "prod"
	do := doer(t, env)
	do(result{0, "", ""}, "init", "prod", "--manager", "boss")
	do(result{0, "", ""}, "join", "--node", "a", "--param", "site/rack=7")
	for _, test := range []struct {
		args string
		code int
		says string
	}{
		{"profiles show prod", 2, "use 'jorc cluster profile'"},
		{"profiles set prod param k hunter2", 2, "use 'jorc cluster profile'"},
		{"machines set a param k to hunter2", 2, "use 'jorc cluster profile set --node'"},
		{"machines wait a WorkflowComplete true 60", 2, "use 'jorc cluster wait'"},
		{"machines meta get a", 2, "use 'jorc cluster meta'"},
		{"machines workflow a", 2, "use 'jorc cluster members'"},
		{"jobs list", 2, "use 'jorc cluster runs'"},
		{"plugins list", 2, "use 'jorc cluster --help'"},
		{"", 2, "use 'jorc cluster --help'"},
		{"-E https://x machines list", 2, "flag -E is not supported"},
		{"machines list --slim Everything", 2, "--slim leaves out Params, Meta or both"},
		{"profiles set prod param k to v --slim Meta", 2, "--slim needs 'machines list'"},
		{"profiles add prod param k to v -r hunter2", 2, "-r needs 'profiles set'"},
		{"profiles set prod param k to hunter2 -r", 2, "flag -r needs a value"},
		{"machines count WorkflowComplete Eq false", 2, "use 'jorc cluster members --filter'"},
		{"machines count Zone ==", 2, "not understood"},
		{"profiles set nope param k to v", 1, `cluster "nope"`},
		{"machines workflow nope install", 1, `"nope"`},
		{"machines meta set nope key icon to x", 1, `"nope"`},
		{"profiles set prod param k to 1 -r 2", 4, "nothing was written"},
		{"profiles set prod param k to v -r ", 0, ""},
		{"profiles add prod param k to v", 4, ""},
	} {
		args := strings.Fields(test.args)
		if strings.HasSuffix(test.args, " ") {
			args = append(args, "") // an empty reference
		}
		got := runDrpcli(t, env, "", args...)
		if got.code != test.code || !strings.Contains(got.stderr, test.says) || strings.Contains(got.stderr, "hunter2") || got.stdout != "" {
			t.Errorf("drpcli %s: %+v; want exit %d and %q", test.args, got, test.code, test.says)
		}
	}
	for _, test := range []struct{ args, want string }{
		{"", "2"},
		{"Profiles Eq prod", "2"},
		{"Profiles Eq other", "0"},
		{"cluster/manager Eq true", "1"},
		{"cluster/manager Eq false Profiles Eq prod", "1"},
		{"site/rack Eq 7", "1"},
		{"site/rack Eq 07", "0"},
		{"Name Eq a", "1"},
		{"Uuid Eq a cluster/leader Eq true", "1"},
		{`Node != boss and Params["site/rack"] == 7 cluster/leader Eq true`, "1"},
	} {
		if got := runDrpcli(t, env, "", append([]string{"machines", "count"}, strings.Fields(test.args)...)...); got != (result{0, test.want + "\n", ""}) {
			t.Errorf("machines count %s: %+v, want %s", test.args, got, test.want)
		}
	}
	if got := runDrpcli(t, env, "", "machines", "count", "Profiles Eq prod", `Node == "a"`); got != (result{0, "1\n", ""}) {
		t.Errorf("quoted filters: %+v", got)
	}
	if got := runDrpcli(t, env, "a\nb", "profiles", "set", "prod", "param", "text", "to", "-"); got != (result{0, "", ""}) {
		t.Errorf("stdin: %+v", got)
	}
	do(result{0, `"a\nb"` + "\n", ""}, "profile", "get", "text")
	if got := jorc(t, env, "cluster", "drpcli"); got.code != exitUsage || !strings.Contains(got.stderr, "setup.tmpl") {
		t.Errorf("without arguments on stdin: %+v", got)
	}
}
