package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/configtest"
	"github.com/jorc/jorc/internal/pace"
)

// problems loads a file and returns what is wrong with it.
func problems(t *testing.T, path string) []config.Problem {
	t.Helper()
	_, err := config.Load([]string{path}, config.Options{})
	var e *config.Error
	if err != nil && !errors.As(err, &e) {
		t.Fatalf("got %v (%T), want a *config.Error", err, err)
	}
	if e == nil {
		return nil
	}
	return e.Problems
}

// TestEachSettingIsChecked: of each setting of the reference, a misspelt name and values of other types are
// refused where they stand, with the line.
func TestEachSettingIsChecked(t *testing.T) {
	t.Parallel()
	const unknown = "Unsupported argument"
	for _, b := range config.Reference() {
		for _, s := range b.Settings {
			t.Run(b.Path(s), func(t *testing.T) {
				t.Parallel()
				misspelt := s
				misspelt.Name = s.Name[:1] + "q" + s.Name[1:]
				place(t, configtest.Written(b, misspelt, `"x"`), misspelt.Name, unknown)
				for _, value := range []string{`[[["x"]]]`, `{ a = { b = ["x"] } }`, `f("x")`, `"${var.x}"`, `"a${`} {
					place(t, configtest.Written(b, s, value), s.Name, "")
				}
			})
		}
	}
}

// place loads a text and wants each problem in a line that there is; if it wants a message,
// one with it in the line of the argument name.
func place(t *testing.T, text, name, message string) {
	t.Helper()
	path := write(t, "c.hcl", text)
	lines := strings.Split(text, "\n")
	found := false
	for _, p := range problems(t, path) {
		if p.File != path || p.Line < 1 || p.Line > len(lines)+1 || p.Column < 1 || p.Message == "" || p.Excerpt == "" {
			t.Errorf("%s:\n%s\nproblem without place: %+v", name, text, p)
			continue
		}
		at := lines[min(p.Line, len(lines))-1]
		found = found || strings.Contains(p.Message, message) && strings.HasPrefix(strings.TrimSpace(at), name)
	}
	if message != "" && !found {
		t.Errorf("%s: no problem %q in its line:\n%s\n%v", name, message, text, problems(t, path))
	}
}

// TestMostStages: a host has as many stages as it can be granted something for, and no more.
func TestMostStages(t *testing.T) {
	t.Parallel()
	text := "member {}\n"
	for i := range pace.MostStages {
		text += fmt.Sprintf("template \"t%d\" {\n  contents = \"x\"\n  destination = \"/d%d\"\n  stage \"s%d\" {}\n}\n", i, i, i)
	}
	if all := problems(t, write(t, "c.hcl", text)); len(all) > 0 {
		t.Error(all)
	}
	text += "template \"more\" {\n  contents = \"x\"\n  destination = \"/more\"\n  stage \"more\" {}\n}\n"
	place(t, text, "stage \"more\"", "at most 22 stages")
}

// TestSecretsInExcerpts: the line that an error shows has no value of a name that suggests a
// secret, however the value is written, and the error is about something else in that line.
func TestSecretsInExcerpts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text string }{
		{"string", `member { params = { password = "hunter2", a = f() } }`},
		{"quoted name", `member { params = { "db-password" = "hunter2", a = f() } }`},
		{"colon", `member { params = { db_password : "hunter2", a = f() } }`},
		{"number", `member { params = { pin_token = 48151623, a = f() } }`},
		{"list", `member { params = { tokens = ["x", "hunter2", 48151623], a = f() } }`},
		{"object", `member { params = { credentials = { user = "hunter2", n = { m = ["hunter2"] } }, a = f() } }`},
		{"escapes", `member { params = { api_key = "x\"hunter2\\", a = f() } }`},
		{"line of a list", "member {\n params = {\n secrets = [\n \"hunter2\", f(),\n ]\n }\n}"},
		{"line of an object", "member {\n params = {\n secrets = {\n a = \"hunter2\"\n b = [\"hunter2\", f()]\n }\n }\n}"},
		{"heredoc", "member {\n params = {\n password = <<-EOF\n hunter2 ${f()}\n EOF\n }\n}"},
		{"header", "service \"w\" {\n check {\n header = { Authorization = [\"Bearer hunter2\", \"hunter2\"], X = 1 }\n }\n}"},
		{"argument of a command", "workflow \"w\" {\n task \"t\" { command = [\"curl\", \"-H\", \"Authorization: Bearer hunter2\", 5] }\n}"},
		{"flag of a command", "workflow \"w\" {\n task \"t\" { command = [\"psql\", \"--password=hunter2\", 5] }\n}"},
		{"value of a flag", "workflow \"w\" {\n task \"t\" { command = [\"psql\", \"--password\", \"hunter2\", 5] }\n}"},
		{"variable of a script", "workflow \"w\" {\n task \"t\" { script = \"DB_PASSWORD=hunter2 run ${f()}\" }\n}"},
		{"user of a URL", `member { params = { db = "postgres://me:hunter2@db/x", a = f() } }`},
		{"path of a URL", `member { params = { hook = "https://hooks.example/hunter2", a = f() } }`},
		{"forbidden", "consul {\n token = \"hunter2\"\n}"},
		{"forbidden number", "vault {\n token = 48151623\n}"},
		{"after a misspelt name", `cluter_token = "hunter2"`},
		{"without a line's end", `member { params = { password = "hunter2`},
	} {
		for _, p := range problems(t, write(t, "c.hcl", tt.text)) {
			if text := p.String(); strings.Contains(text, "hunter2") || strings.Contains(text, "48151623") {
				t.Errorf("%s: the error shows the secret:\n%s", tt.name, text)
			}
		}
		if problems(t, write(t, "c.hcl", tt.text)) == nil {
			t.Errorf("%s: got no error", tt.name)
		}
	}
	for name, text := range map[string]string{
		"string": `{"member": {"params": {"password": "hunter2"}}, "unknown": 1}`,
		"number": `{"member": {"params": {"token": 48151623}}, "unknown": 1}`,
		"list":   `{"member": {"params": {"tokens": ["x", "hunter2"]}}, "unknown": 1}`,
		"object": `{"member": {"params": {"secrets": {"a": {"b": "hunter2"}}}}, "unknown": 1}`,
		"syntax": `{"member": {"params": {"password": "hunter2", "x": }}}`,
	} {
		all := problems(t, write(t, "c.json", text))
		if len(all) == 0 {
			t.Errorf("json, %s: got no error", name)
		}
		for _, p := range all {
			if text := p.String(); strings.Contains(text, "hunter2") || strings.Contains(text, "48151623") {
				t.Errorf("json, %s: the error shows the secret:\n%s", name, text)
			}
		}
	}
}

// TestExcerptsShowTheRest: what is not secret is still shown, with its mark below.
func TestExcerptsShowTheRest(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, want string }{
		{`member { params = { password = "hunter2", name = f(), b = "shown" } }`, `    1: member { params = { password = "*******", name = f(), b = "shown" } }`},
		{`member { params = { token_file = "/etc/token", a = f() } }`, `    1: member { params = { token_file = "/etc/token", a = f() } }`},
		{`member { params = { tokens = ["a", true], a = f() } }`, `    1: member { params = { tokens = ["*", true], a = f() } }`},
		{`member { params = { tokenizer = f(), other = "shown" } }`, ``},
	} {
		all := problems(t, write(t, "c.hcl", tt.text))
		if len(all) == 0 {
			t.Errorf("%s: got no error", tt.text)
			continue
		}
		if line, mark, _ := strings.Cut(all[0].Excerpt, "\n"); tt.want != "" && (line != tt.want || !strings.Contains(mark, "^")) {
			t.Errorf("got\n%s\n%s\nwant\n%s", line, mark, tt.want)
		}
	}
}

// TestUnreadableFiles: what cannot be read is named, together with the problems of the other files.
func TestUnreadableFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	loop := filepath.Join(dir, "loop.hcl")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	large := write(t, "large.hcl", "")
	if err := os.Truncate(large, 1<<30); err != nil {
		t.Fatal(err)
	}
	bad := write(t, "bad.hcl", "clutser = \"x\"\n")
	for _, path := range []string{loop, large, filepath.Join(dir, "none.hcl"), "/dev/zero", filepath.Join(bad, "below.hcl")} {
		_, err := config.Load([]string{path, bad}, config.Options{})
		if err == nil || !strings.Contains(err.Error(), path) || len(err.Error()) > 1000 {
			t.Errorf("%s: got %.300v, want an error that names it", path, err)
		}
	}
}

// TestStrangeText: text that is not a configuration is refused with its place, and never shown as it is to a terminal.
func TestStrangeText(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"UTF-16":        "\xff\xfec\x00l\x00u\x00s\x00t\x00e\x00r\x00",
		"zero bytes":    "cluster = \"a\x00b\"\n",
		"binary":        "\x7fELF\x02\x01\x01\x00",
		"escape":        "cluster = \"\x1b[31mred\"\nunknown = \"\x1b]0;title\x07\"\n",
		"invalid UTF-8": "cluster = \"\xc3\x28\"\n",
		"two documents": "cluster = \"a\"\n\x1f\ncluster = \"b\"\n",
	} {
		for _, ext := range []string{".hcl", ".json"} {
			path := write(t, "c"+ext, text)
			all := problems(t, path)
			if len(all) == 0 {
				t.Errorf("%s%s: got no error", name, ext)
			}
			for _, p := range all {
				if p.File != path || p.Line < 1 || strings.ContainsAny(p.String(), "\x00\x1b\x07\x7f\x1f") {
					t.Errorf("%s%s: got %q", name, ext, p.String())
				}
			}
		}
	}
}

// TestPlacesInSeveralFiles: a problem between two files names both, and lines are counted with either line end.
func TestPlacesInSeveralFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"1.hcl": "# one\r\nservice \"web\" {}\r\n\r\ncluster = \"a\"\r\n",
		"2.hcl": "\n\n\nservice \"web\" {}\ncluster = \"b\"\n",
		"3.hcl": "# ü\n\tconsul { ünknown = 1 }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, p := range problems(t, dir) {
		message, _, _ := strings.Cut(p.Message, ":")
		got = append(got, fmt.Sprintf("%s:%d,%d %s", filepath.Base(p.File), p.Line, p.Column, message))
		if strings.Contains(p.Message, "Duplicate") && !strings.Contains(p.Message, "1.hcl:") {
			t.Errorf("the first place is missing: %s", p.Message)
		}
	}
	want := "2.hcl:4,9 Duplicate service id\n2.hcl:5,1 Duplicate argument\n3.hcl:2,11 Unsupported argument"
	if got := strings.Join(got, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestEnvironmentStaysHidden: no error shows a secret of the environment, whatever else is wrong there.
func TestEnvironmentStaysHidden(t *testing.T) {
	t.Parallel()
	for _, pairs := range [][]string{
		{"CONSUL_HTTP_TOKEN=hunter2\nX-Header: hunter2", "JORC_CLUSTER=a/b"},
		{"CONSUL_HTTP_AUTH=hunter2", "JORC_CLUSTER=a/b"},
		{"VAULT_TOKEN=hunter2\x00", "JORC_CLUSTER=a/b"},
		{"CONSUL_HTTP_ADDR=https://hunter2@x", "JORC_CLUSTER=a/b"},
		{"CONSUL_HTTP_ADDR=https://me:hunter2@x:port"},
		{"CONSUL_HTTP_ADDR=https://x/?token=hunter2"},
		{"VAULT_ADDR=https://me:hunter2@x:port", "JORC_CLUSTER=a/b"},
		{"VAULT_ADDR=https://me:hunter2@[x", "JORC_CLUSTER=a/b"},
	} {
		_, err := config.Load(nil, config.Options{Getenv: env(pairs...)})
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: got %v, want an error without the secret", pairs, err)
		}
	}
}
