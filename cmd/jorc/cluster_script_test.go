package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	"github.com/jorc/jorc/internal/consultest"
)

// job is what a script is rendered over.
type job map[string]string

func (j job) Param(name string) string     { return j[name] }
func (j job) ParamExists(name string) bool { _, ok := j[name]; return ok }
func quoted(s string) string               { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func (j job) render(t *testing.T, text string) string {
	t.Helper()
	all := template.New("script").Funcs(template.FuncMap{"quote": quoted})
	if _, err := all.ParseFiles(filepath.Join("..", "..", "templates", "cluster-utilities.tmpl")); err != nil {
		t.Fatal(err)
	}
	if _, err := all.Parse(text); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := all.Execute(&b, j); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestClusterUtilities runs a script made of the shipped functions, with a
// token that may write the profile and nothing else, under default deny.
func TestClusterUtilities(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	env := onServer(t, s)
	do := doer(t, env)
	do(result{0, "", ""}, "init", "prod")
	do(result{0, "", ""}, "profile", "set", "size", "3", "--cluster", "prod")
	token := jorc(t, env, "cluster", "profile", "token", "--ttl", "5m", "--cluster", "prod")
	if token.code != exitOK || token.stderr != "" {
		t.Fatalf("token: %+v", token)
	}
	binary := builtOnce(t)
	sh := func(j job, script string) (int, string) {
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-uc", j.render(t, `{{ template "cluster-utilities.tmpl" . }}`+script))
		cmd.Env = []string{
			"PATH=" + filepath.Dir(binary) + ":" + os.Getenv("PATH"), "CONSUL_HTTP_ADDR=" + s.HTTPAddr,
			"PROFILE_TOKEN=" + strings.TrimSpace(token.stdout),
		}
		out, _ := cmd.CombinedOutput() // the code says it
		return cmd.ProcessState.ExitCode(), string(out)
	}
	member := job{"cluster/profile": "prod", "size": "2"}
	for _, test := range []struct {
		name   string
		job    job
		script string
		code   int
		want   string
	}{
		{"rendered and now", member, `echo {{ .Param "size" }}; get_param size`, 0, "2\n3\n"},
		{"default", member, `get_param gone none`, 0, "none\n"},
		{"set", member, `set_param size 4 3 && get_param size`, 0, "4\n"},
		{"no match", member, `set_param size 5 3 2>/dev/null`, 4, ""},
		{"first", member, `add_param who -1 && get_param who && ! add_param who 2 2>/dev/null`, 0, "-1\n"},
		{"default of a reference", member, `set_param other x none none && get_param other`, 0, "x\n"},
		{"variables", member, `echo "$CLUSTER_PROFILE" "${PROFILE_TOKEN:+set}"`, 0, "prod set\n"},
		{"beyond the token", member, `cluster_members 2>/dev/null`, 5, ""},
		{"no cluster", job{}, `:`, 0, "jorc: warning: this job has no param cluster/profile: is the host a member of a cluster?\n"},
	} {
		if code, out := sh(test.job, test.script); code != test.code || out != test.want {
			t.Errorf("%s: exit %d, %q; want %d, %q", test.name, code, out, test.code, test.want)
		}
	}
	if code, out := sh(job{"cluster/profile": "gone"}, `:`); code != 0 || !strings.Contains(out, "warning: the profile of cluster gone cannot be read") {
		t.Errorf("a cluster that is not there: exit %d, %q", code, out)
	}
}
