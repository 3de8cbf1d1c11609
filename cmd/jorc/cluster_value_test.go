package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
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
	_, env := onShared(t)
	do := doer(t, env)
	do(result{0, "", ""}, "init", "default")
	do(result{0, "", ""}, "join", "--node", "n1", "--role", "db")
	for _, text := range []string{"007", "0x1F", "a #b", "1_000", "~", "{a: 1}", "a: b", " x ", "abc.0123456789abcdef", certificate, "tab\there"} {
		do(result{0, "", ""}, "profile", "set", "v", text)
		do(result{0, text, ""}, "profile", "get", "v", "--raw")
		do(result{0, "", ""}, "profile", "set", "v", text, "--ref", text)
		do(result{0, "", ""}, "profile", "set", "f", "@"+writeFile(t, "value", text))
		do(result{0, text, ""}, "profile", "get", "f", "--raw")
		if got := jorcWithInput(t, env, text, "cluster", "profile", "set", "s", "-"); got.code != 0 {
			t.Errorf("%q from stdin: %+v", text, got)
		}
		do(result{0, text, ""}, "profile", "get", "s", "--raw")
		do(result{0, "", ""}, "profile", "add", "a", text)
		do(result{0, "", ""}, "profile", "remove", "a", "--ref", text)
		do(result{0, "", ""}, "profile", "set", "v", text, "--node", "n1")
		do(result{0, text, ""}, "profile", "get", "v", "--raw", "--node", "n1")
		do(result{0, "", ""}, "join", "--node", "n1", "--param", "j="+text)
		do(result{0, text, ""}, "profile", "get", "j", "--raw", "--node", "n1")
		do(result{0, "", ""}, "meta", "set", "m", text)
		do(result{0, text, ""}, "meta", "get", "m", "--raw")
		do(result{0, text, ""}, "profile", "get", "none", "--raw", "--default", text)
	}
}

// TestValueModes: JSON by default, --string for text, --yaml for YAML.
func TestValueModes(t *testing.T) {
	t.Parallel()
	_, env := onShared(t)
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
	do(result{0, "@home", ""}, "profile", "get", "v", "--raw")
	do(result{2, "", "jorc: --string and --yaml exclude each other; see 'jorc cluster profile set --help'\n"}, "profile", "set", "v", "1", "--string", "--yaml")
	for _, bad := range [][]string{{`{"hunter2":1,"hunter2":2}`}, {"hunter2: [", "--yaml"}, {"hunter2\xff"}} {
		got := jorc(t, env, append([]string{"cluster", "profile", "set", "v"}, bad...)...)
		if got.code != exitUsage || !strings.HasPrefix(got.stderr, "jorc: VALUE: ") {
			t.Errorf("%q: %+v", bad, got)
		}
	}
	do(result{0, "@home", ""}, "profile", "get", "v", "--raw")
}

// TestSchemaOfStringsKeepsText: a number that a param of strings is given stays
// as it is spelled, for cluster, role and member, and in references.
func TestSchemaOfStringsKeepsText(t *testing.T) {
	t.Parallel()
	_, env := onShared(t)
	do := doer(t, env)
	do(result{0, "", ""}, "init", "default")
	do(result{0, "", ""}, "join", "--node", "n1", "--role", "db")
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

// TestSchemasHoldEverywhere: what 'profile set' refuses is refused by join and
// import, for the cluster, roles and members, and nothing is written.
func TestSchemasHoldEverywhere(t *testing.T) {
	t.Parallel()
	_, env := onShared(t)
	do := doer(t, env)
	do(result{0, "", ""}, "init", "default")
	do(result{0, "", ""}, "profile", "schema", "set", "disks", writeFile(t, "schema", `{"type": "integer", "minimum": 1}`))
	do(result{0, "", ""}, "profile", "schema", "set", "name", writeFile(t, "schema", `{"type": "string"}`))
	refused := func(pattern string, args ...string) {
		t.Helper()
		got := jorc(t, env, append([]string{"cluster"}, args...)...)
		if (got.code != exitFailed && got.code != exitUsage) || !strings.Contains(got.stderr, pattern) || strings.Contains(got.stderr, "hunter2") {
			t.Errorf("jorc cluster %s: %+v, want a refusal with %q that does not contain the value", strings.Join(args, " "), got, pattern)
		}
	}
	refused(`param "disks" of member "n1" is refused by its schema: type`, "join", "--node", "n1", "--param", "disks=hunter2")
	do(result{0, "0\n", ""}, "members", "--count")
	do(result{0, "", ""}, "join", "--node", "n1", "--param", "disks=4", "--param", "name=1e3")
	do(result{0, `"1e3"` + "\n", ""}, "profile", "get", "name", "--node", "n1")
	refused(`is refused by its schema: minimum`, "join", "--node", "n1", "--param", "disks=0", "--zone", "z")
	refused(`is refused by its schema`, "profile", "set", "disks", "hunter2", "--node", "n1")
	refused(`of role "db" is refused by its schema`, "profile", "set", "disks", "hunter2", "--role", "db", "--force")
	do(result{0, "4\n", ""}, "profile", "get", "disks", "--node", "n1")

	archive := jorc(t, env, "cluster", "export").stdout
	for name, wrong := range map[string]string{
		"member":      strings.Replace(archive, `"disks": 4`, `"disks": "hunter2"`, 1),
		"cluster":     strings.Replace(archive, `"cluster/profile": "default"`, `"cluster/profile": "default", "disks": 0`, 1),
		"filter":      strings.Replace(archive, `"cluster/profile": "default"`, `"cluster/profile": "default", "cluster/filter": "Zone =="`, 1),
		"with schema": strings.Replace(archive, `"type": "integer"`, `"type": "strong"`, 1),
	} {
		if wrong == archive {
			t.Fatalf("%s: the export does not hold what the test changes: %s", name, archive)
		}
		got := jorc(t, env, "cluster", "import", writeFile(t, "export.json", wrong), "--cluster", "copy")
		if got.code == exitOK || strings.Contains(got.stderr, "hunter2") {
			t.Errorf("import with a wrong %s: %+v", name, got)
		}
	}
	do(result{1, "", "jorc: cluster \"copy\": no such cluster; clusters: default; create it with 'jorc cluster init copy'\n"}, "profile", "show", "--cluster", "copy")
	do(result{0, "", ""}, "import", writeFile(t, "export.json", archive), "--cluster", "copy")
	do(result{0, "4\n", ""}, "profile", "get", "disks", "--node", "n1", "--cluster", "copy")
}

// TestSchemaOfPresentValues: a schema that roles or members break is refused, with all of
// their names; --force sets it and names them.
func TestSchemaOfPresentValues(t *testing.T) {
	t.Parallel()
	_, env := onShared(t)
	do := doer(t, env)
	do(result{0, "", ""}, "init", "default")
	do(result{0, "", ""}, "join", "--node", "n1", "--param", "disks=hunter2")
	do(result{0, "", ""}, "join", "--node", "n2", "--param", "disks=2")
	do(result{0, "", ""}, "profile", "set", "disks", "hunter2", "--role", "db", "--force")
	file := writeFile(t, "schema", `{"type": "integer"}`)
	const broken = `param "disks" of role "db" is refused by its schema: type: is a string, want integer; param "disks" of member "n1" is refused by its schema: type: is a string, want integer`
	do(result{1, "", "jorc: " + broken + "; nothing was written: correct the values, or --force sets the schema all the same\n"}, "profile", "schema", "set", "disks", file)
	do(result{1, "", "jorc: schema of param \"disks\" in cluster \"default\" does not exist\n"}, "profile", "schema", "get", "disks")
	if got := jorc(t, env, "cluster", "profile", "patch", writeFile(t, "patch", `[{"op": "add", "path": "/schemas/disks", "value": {"type": "array"}}]`)); got.code == 0 || !strings.Contains(got.stderr, "refused by its schema") {
		t.Errorf("patch: %+v", got)
	}
	do(result{0, "", "jorc: the schema was set; values that break it stay until they are changed: " + broken + "\n"}, "profile", "schema", "set", "disks", file, "--force")
	do(result{0, "", ""}, "profile", "set", "disks", "3", "--node", "n1")
	do(result{0, "", ""}, "profile", "remove", "disks", "--role", "db")
	do(result{0, "", ""}, "profile", "schema", "set", "disks", file)
}

// TestParamsWithAMeaning: a param that jorc reads is refused when it is wrong,
// whichever way it is set.
func TestParamsWithAMeaning(t *testing.T) {
	t.Parallel()
	_, env := onShared(t)
	do := doer(t, env)
	do(result{0, "", ""}, "init", "default")
	do(result{0, "", ""}, "join", "--node", "n1", "--role", "db")
	for key, values := range map[string]struct{ good, bad []string }{
		"cluster/filter":          {[]string{`Zone == "a"`, "", "null"}, []string{"Zone ==", "7", `{"a":1}`, "Nope == 1"}},
		"cluster/leader-grace":    {[]string{"2m", "null"}, []string{"10s", "120", "soon", "-1m"}},
		"cluster/leader-eligible": {[]string{"true", "false"}, []string{"yes", `"true"`, "1", "null"}},
		"cluster/rules":           {[]string{`[{"workflow": "w"}]`, "[]", "null"}, []string{"w", `[{"workflow": ""}]`, `[{"workflow": "w", "filter": "Zone =="}]`, `[{"workflow": "w", "after": "nope"}]`}},
	} {
		for _, v := range values.good {
			do(result{0, "", ""}, "profile", "set", key, v)
		}
		before := jorc(t, env, "cluster", "profile", "show")
		for _, v := range values.bad {
			patch := writeFile(t, "patch", `[{"op": "add", "path": "/params/`+strings.ReplaceAll(key, "/", "~1")+`", "value": `+asJSON(v)+`}]`)
			for _, args := range [][]string{
				{"profile", "set", key, v},
				{"profile", "set", key, v, "--role", "db"},
				{"profile", "set", key, v, "--node", "n1"},
				{"join", "--node", "n1", "--param", key + "=" + v},
				{"profile", "patch", patch},
			} {
				got := jorc(t, env, append([]string{"cluster"}, args...)...)
				if got.code == exitOK || !strings.Contains(got.stderr, key) {
					t.Errorf("jorc cluster %s: %+v, want a refusal that names %s", strings.Join(args, " "), got, key)
				}
			}
		}
		if after := jorc(t, env, "cluster", "profile", "show"); after != before {
			t.Errorf("%s: something was written: %+v", key, after)
		}
	}
}

// asJSON returns a value as the commands read it.
func asJSON(text string) string {
	if json.Valid([]byte(text)) {
		return text
	}
	data, err := json.Marshal(text)
	if err != nil {
		return "null"
	}
	return string(data)
}
