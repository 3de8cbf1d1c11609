package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// jorcWithInput runs a command as jorc does, with this on stdin.
func jorcWithInput(t *testing.T, environ map[string]string, input string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	h := testHost(environ, &stdout, &stderr)
	h.stdin = strings.NewReader(input)
	return result{run(t.Context(), args, h), stdout.String(), stderr.String()}
}

const certificate = "-----BEGIN CERTIFICATE-----\nMIIB+zCC/aADAgEC#\n-----END CERTIFICATE-----\n"

// TestTextStaysText: what is not JSON is stored byte for byte, whichever way it
// is given.
func TestTextStaysText(t *testing.T) {
	t.Parallel()
	env := onServer(t, consultest.Start(t))
	do := doer(t, env)
	do(result{0, "", ""}, "init", "default")
	do(result{0, "", ""}, "join", "--node", "n1")
	for _, text := range []string{"007", "0x1F", "a #b", "1_000", "~", "{a: 1}", "a: b", " x ", "abc.0123456789abcdef", certificate, "tab\there"} {
		do(result{0, "", ""}, "profile", "set", "v", text)
		do(result{0, text + "\n", ""}, "profile", "get", "v", "--raw")
		do(result{0, "", ""}, "profile", "set", "v", text, "--ref", text)
		do(result{0, "", ""}, "profile", "set", "f", "@"+writeFile(t, "value", text))
		do(result{0, text + "\n", ""}, "profile", "get", "f", "--raw")
		if got := jorcWithInput(t, env, text, "cluster", "profile", "set", "s", "-"); got.code != 0 {
			t.Errorf("%q from stdin: %+v", text, got)
		}
		do(result{0, text + "\n", ""}, "profile", "get", "s", "--raw")
		do(result{0, "", ""}, "profile", "add", "a", text)
		do(result{0, "", ""}, "profile", "remove", "a", "--ref", text)
		do(result{0, "", ""}, "profile", "set", "v", text, "--node", "n1")
		do(result{0, text + "\n", ""}, "profile", "get", "v", "--raw", "--node", "n1")
		do(result{0, "", ""}, "join", "--node", "n1", "--param", "j="+text)
		do(result{0, text + "\n", ""}, "profile", "get", "j", "--raw", "--node", "n1")
		do(result{0, "", ""}, "meta", "set", "m", text)
		do(result{0, text + "\n", ""}, "meta", "get", "m", "--raw")
		do(result{0, text + "\n", ""}, "profile", "get", "none", "--raw", "--default", text)
	}
}

// TestValueModes: JSON by default, --string for text, --yaml for YAML.
func TestValueModes(t *testing.T) {
	t.Parallel()
	env := onServer(t, consultest.Start(t))
	do := doer(t, env)
	do(result{0, "", ""}, "init", "default")
	for _, tt := range []struct {
		want string
		args []string
	}{
		{`1.10`, []string{"1.10"}},
		{`12345678901234567890`, []string{"12345678901234567890"}},
		{`1e999`, []string{"1e999"}},
		{`{"a":[1.0,null]}`, []string{`{"a": [1.0, null]}`}},
		{`"1.10"`, []string{"1.10", "--string"}},
		{`"null\n"`, []string{"@" + writeFile(t, "text", "null\n"), "--string"}},
		{`null`, []string{"@" + writeFile(t, "json", "null\n")}},
		{`{"a":31,"b":"x"}`, []string{"{a: 0x1F, b: x}", "--yaml"}},
		{`["a",{"b":1.50}]`, []string{"@" + writeFile(t, "list.yaml", "- a\n- {b: 1.50}\n"), "--yaml"}},
	} {
		do(result{0, "", ""}, append([]string{"profile", "set", "v"}, tt.args...)...)
		do(result{0, tt.want + "\n", ""}, "profile", "get", "v")
	}
	if got := jorcWithInput(t, env, "@home", "cluster", "profile", "set", "v", "-", "--string"); got.code != 0 {
		t.Errorf("a text that begins with @: %+v", got)
	}
	do(result{0, "@home\n", ""}, "profile", "get", "v", "--raw")
	do(result{2, "", "jorc: --string and --yaml exclude each other; see 'jorc cluster profile set --help'\n"}, "profile", "set", "v", "1", "--string", "--yaml")
	for _, bad := range [][]string{{`{"hunter2":1,"hunter2":2}`}, {"hunter2: [", "--yaml"}, {"hunter2\xff"}} {
		got := jorc(t, env, append([]string{"cluster", "profile", "set", "v"}, bad...)...)
		if got.code != exitUsage || !strings.HasPrefix(got.stderr, "jorc: VALUE: ") {
			t.Errorf("%q: %+v", bad, got)
		}
	}
	do(result{0, "@home\n", ""}, "profile", "get", "v", "--raw")
}

// TestSchemaOfStringsKeepsText: a number that a param of strings is given stays
// as it is spelled, for cluster, role and member, and in references.
func TestSchemaOfStringsKeepsText(t *testing.T) {
	t.Parallel()
	env := onServer(t, consultest.Start(t))
	do := doer(t, env)
	do(result{0, "", ""}, "init", "default")
	do(result{0, "", ""}, "join", "--node", "n1")
	do(result{0, "", ""}, "profile", "schema", "set", "v", writeFile(t, "schema", `{"type": "string"}`))
	for _, scope := range [][]string{nil, {"--role", "db"}, {"--node", "n1"}} {
		args := func(args ...string) []string { return append(append([]string{"profile"}, args...), scope...) }
		do(result{0, "", ""}, args("set", "v", "1.10")...)
		do(result{0, `"1.10"` + "\n", ""}, args("get", "v")...)
		do(result{0, "", ""}, args("set", "v", "true", "--ref", "1.10")...)
		do(result{0, `"true"` + "\n", ""}, args("get", "v")...)
		do(result{0, "", ""}, args("remove", "v", "--ref", "true")...)
		do(result{0, "", ""}, args("set", "v", "null", "--ref", "1", "--default", "1")...)
		do(result{0, `"null"` + "\n", ""}, args("get", "v")...)
	}
}
