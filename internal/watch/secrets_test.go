package watch_test

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Masterminds/sprig/v3"
	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/vaulttest"
	"github.com/jorc/jorc/internal/watch"
)

// allFunctions are the names of all template functions: text/template's,
// sprig's, and consul-template's, which only its source lists.
func allFunctions(t *testing.T) []string {
	t.Helper()
	all := map[string]bool{}
	for _, name := range strings.Fields("and call html index slice js len not or print printf println urlquery eq ge gt le lt ne param paramExists paramOr") {
		all[name] = true
	}
	for name := range sprig.HermeticTxtFuncMap() {
		all["sprig_"+name] = true
	}
	// go/build would need GOROOT, which a test built with -trimpath does not have.
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "github.com/hashicorp/consul-template/template").Output()
	if err != nil {
		t.Fatal("go list: ", err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(strings.TrimSpace(string(dir)), "template.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	before := len(all)
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name != "funcMap" {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if pair, ok := n.(*ast.KeyValueExpr); ok {
				if key, ok := pair.Key.(*ast.BasicLit); ok && key.Kind == token.STRING {
					name, err := strconv.Unquote(key.Value)
					if err != nil {
						t.Error(err)
					}
					all[name] = true
				}
			}
			return true
		})
	}
	if n := len(all) - before; n < 90 || !all["parseInt"] || !all["sprig_mustToDate"] {
		t.Fatalf("%d functions of consul-template were found; is its list elsewhere now?", n)
	}
	return slices.Sorted(maps.Keys(all))
}

// logBuffer is a log that may be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestNoFunctionShowsAValue calls every template function with a value in
// several ways. Neither the status nor the log may show the value.
func TestNoFunctionShowsAValue(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	log := &logBuffer{}
	h.edit = func(o *watch.Options) {
		o.Log = hclog.New(&hclog.LoggerOptions{Level: hclog.Trace, Output: io.MultiWriter(log)})
		o.Allow = config.TemplateOptions{AllowFunctions: []string{"plugin"}, RenderTimeout: time.Minute}
	}
	// No number, date, pattern, JSON, YAML, base64, address, key or service is written so.
	const value = "Sesame[7({*|:\t%zz"
	h.put("pw", value)
	h.put("tree/pw", value)
	forms := []string{
		`{{ key "pw" | %s }}`, `{{ key "pw" | %s (key "pw") }}`, `{{ key "pw" | %s (key "pw") (key "pw") }}`, `{{ key "pw" | %s 1 }}`, `{{ key "pw" | %s (key "pw") 1 "x" }}`,
		`{{ range tree "tree" }}{{ .Value | %s "" }}{{ end }}`, `{{ %s (ls "tree") }}`,
	}
	var templates []config.Template
	for _, function := range allFunctions(t) {
		for i, form := range forms {
			templates = append(templates, h.tmpl(fmt.Sprintf("%s-%d", function, i), fmt.Sprintf(form, function)))
		}
	}
	for i, text := range []string{
		`{{ range (key "pw" | len) }}{{ end }}{{ range $a, $b := (key "pw" | len) }}{{ end }}`, `{{ (key "pw").Sesame }}`, `{{ range (key "pw" | split "[") }}{{ range . }}{{ end }}{{ end }}`,
		`{{ define "inner" }}{{ key "pw" | parseInt }}{{ end }}{{ executeTemplate "inner" }}`, `{{ template "inner" }}{{ define "inner" }}{{ key "pw" | parseBool }}{{ end }}`,
		`{{ service (key "pw" | toLower | regexReplaceAll "[^a-z]" "") }}`, `{{ key (key "pw" | sprig_substr 0 6) }}`, `{{ keyOrDefault (key "pw" | sprig_substr 0 6) "" | parseInt }}`,
		`{{ file (key "pw" | sprig_substr 0 6 | printf "/none/%s") }}`, `{{ secret (key "pw" | sprig_substr 0 6 | printf "none/%s") }}`, `{{ mustEnv (key "pw") }}`,
	} {
		templates = append(templates, h.tmpl(fmt.Sprintf("extra-%d", i), text))
	}
	e, stop := h.run(templates...)
	var all []watch.Status
	consultest.Eventually(t, "all templates to be executed with their data", func(context.Context) error {
		all = e.Status() // once for all of them: it costs more than an execution
		for _, s := range all {
			if s.State == watch.StateWaiting && (s.Executions == 0 || mentions(s.Waiting, "key pw") || mentions(s.Waiting, "key prefix tree")) {
				return fmt.Errorf("%s was executed %d times, last at %s: %+v", s.Name, s.Executions, s.Checked.Format(time.RFC3339), s)
			}
		}
		return nil
	})
	failed := 0
	for i, c := range templates {
		s := all[i]
		if shown := fmt.Sprint(s.Error, s.Waiting, s.Held, s.Stale); strings.Contains(strings.ToLower(shown), "sesame") || strings.Contains(shown, "[7(") {
			t.Errorf("%s: the status shows the value: %s", c.Contents, shown)
		}
		if s.State == watch.StateFailed {
			failed++
			if !strings.Contains(c.Contents, `executeTemplate ""`) && !regexp.MustCompile(`^(line 1, column \d+: |parse: |read .*: refused by Consul$)`).MatchString(s.Error) {
				t.Errorf("%s: the error has no position: %s", c.Contents, s.Error)
			}
		}
	}
	if failed < 200 {
		t.Errorf("%d templates failed; want most of them to", failed)
	}
	stop()
	for line := range strings.Lines(log.String()) {
		if strings.Contains(strings.ToLower(line), "sesame") || strings.Contains(line, "[7(") {
			t.Errorf("the log shows the value: %s", line)
		}
	}
}

// TestErrorsOfExecutions: an error names line and column in the template as it was
// written, the function, and what is wrong, as far as that holds no value.
func TestErrorsOfExecutions(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	h.put("pw", "hunter2")
	h.put("app/web", "hunter2")
	const withheld = "failed; its message is withheld because it may quote a value"
	for i, test := range []struct{ text, want string }{
		{`{{ key "pw" | parseInt }}`, "line 1, column 15: parseInt: " + withheld},
		{"a\n{{ range loop 2 }}b\n  {{ key \"pw\" | parseBool }}{{ end }}", "line 3, column 17: parseBool: " + withheld},
		{"{{ if true -}}\n {{ range loop 2 -}}\n{{ end }} {{ key \"pw\" | parseJSON }}{{ end }}", "line 3, column 25: parseJSON: " + withheld},
		{"{{ define \"x\" }}\n{{ key \"pw\" | sprig_mustToDate \"2006\" }}{{ end }}{{ executeTemplate \"x\" }}", "line 2, column 15: sprig_mustToDate: " + withheld},
		{"{{ range key \"pw\" }}\n{{ end }}", "line 1, column 4: range: it needs a list, a map or a number"},
		{`{{ (key "pw").Port }}`, "line 1, column 9: no such field"},
		{`{{ sprig_fail "no web server yet" }}`, "line 1, column 4: sprig_fail: no web server yet"},
		{`{{ sprig_fail (key "pw") }}`, "line 1, column 4: sprig_fail: " + withheld},
		{`{{ range ls "app" }}{{ mustEnv .Key }}{{ end }}`, `line 1, column 24: mustEnv: environment variable "web" is not set, or template_options { allow_env } does not name it`},
		{`{{ mustEnv (key "pw") }}`, "line 1, column 4: mustEnv: environment variable (a computed name) is not set, or template_options { allow_env } does not name it"},
		{`{{ key "pw" | spew_dump }}`, "line 1, column 15: spew_dump: function spew_dump is switched off: it would print values to jorc's own output; use spew_sdump or spew_sprintf"},
	} {
		for length, text := range map[string]string{"": test.text, "long": long(test.text)} {
			name := fmt.Sprintf("t%d%s", i, length)
			if err, want := h.once(h.tmpl(name, text)), fmt.Sprintf("template %q: %s", name, test.want); err == nil || err.Error() != want {
				t.Errorf("%s %s:\ngot  %v\nwant %s", length, test.text, err, want)
			}
		}
	}
}

// long is a template that does the same as text does: its words are looked up in another way.
func long(text string) string {
	return text + "{{/* " + strings.Repeat("a comment of many words ", 200) + "*/}}"
}

// TestComputedNames: what a template waits for is named, also when the name is made
// of names that Consul holds, but not when it is made of a value.
func TestComputedNames(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	h.put("pw", "hunter2")
	h.put("apps/web-1", "hunter2")
	tests := []struct{ name, text, want string }{
		{"names", `{{ range ls "apps" }}{{ key (printf "ports/%s/main" .Key) }}{{ end }}`, "key ports/web-1/main does not exist"},
		{"values", `{{ range ls "apps" }}{{ key (printf "ports/%s/main" .Value) }}{{ end }}`, "key (a computed name) does not exist"},
		{"secrets", `{{ secret (printf "none/%s" (key "pw")) }}`, "secret (a computed name) since"},
	}
	var templates []config.Template
	for _, test := range tests {
		templates = append(templates, h.tmpl(test.name, test.text), h.tmpl("long-"+test.name, long(test.text)))
	}
	e, _ := h.run(templates...)
	for _, test := range tests {
		for _, name := range []string{test.name, "long-" + test.name} {
			wantStatus(t, e, name, "waiting for "+test.want, func(s watch.Status) bool { return mentions(s.Waiting, test.want) && !mentions(s.Waiting, "hunter") })
		}
	}
}

// TestSecretsStayOutOfErrors: of what Vault holds and answers, and of its
// address, no status shows anything.
func TestSecretsStayOutOfErrors(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	v := vaulttest.Start(t, "127.0.0.1:0", "vault-token")
	v.Put("secret/app", time.Hour, map[string]any{"password": `hunter"2`})
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("vault-token"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.edit = func(o *watch.Options) {
		o.Vault = config.Vault{Address: strings.Replace(v.URL, "://", "://joe:hunter3@", 1), TokenFile: token}
	}
	e, _ := h.run(
		h.tmpl("value", `{{ with secret "secret/app" }}{{ .Data.password | parseInt }}{{ end }}`),
		h.tmpl("answer", `{{ with secret "elsewhere/app" "k=hunter4" }}{{ .Data }}{{ end }}`),
	)
	for name, want := range map[string]string{"value": "parseInt: failed", "answer": "Vault answered 404 Not Found"} {
		wantStatus(t, e, name, want, func(s watch.Status) bool {
			shown := fmt.Sprint(s.Error, s.Waiting)
			if strings.Contains(shown, "hunter") {
				t.Fatalf("%s: the status shows a secret: %s", name, shown)
			}
			return strings.Contains(shown, want)
		})
	}
}

// TestOutputOfChecks: what a check or reload prints that was given a file which
// only some users may read is in a file for jorc's user alone.
func TestOutputOfChecks(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	h.put("pw", "hunter2")
	sh := func(script string) []string { return []string{"sh", "-c", script, "sh", "{{.Staged}}"} }
	for _, test := range []struct {
		name, perms string
		edit        func(*config.Template)
		shown       bool
	}{
		{"check of a private file", "0600", func(c *config.Template) { c.Check = sh(`cat "$1"; exit 1`) }, false},
		{"check of a group's file", "0640", func(c *config.Template) { c.Check = sh(`cat "$1"; exit 1`) }, false},
		{"check of a public file", "0644", func(c *config.Template) { c.Check = sh(`cat "$1"; exit 1`) }, true},
		{"reload of a private file", "0600", func(c *config.Template) {
			c.Reload = []string{"sh", "-c", "cat " + strconv.Quote(c.Destination) + "; exit 1"}
		}, false},
		{"reload of a public file", "0644", func(c *config.Template) {
			c.Reload = []string{"sh", "-c", "cat " + strconv.Quote(c.Destination) + "; exit 1"}
		}, true},
	} {
		c := h.tmpl(test.name, `{{ key "pw" }}`, func(c *config.Template) { c.Perms = test.perms }, test.edit)
		err := h.once(c)
		if err == nil || strings.Contains(err.Error(), "hunter2") != test.shown {
			t.Errorf("%s: got %v; want the output to be shown: %v", test.name, err, test.shown)
			continue
		}
		_, rest, kept := strings.Cut(err.Error(), "its output is in ")
		if kept == test.shown {
			t.Errorf("%s: got %v; want the file with the output to be named: %v", test.name, err, !test.shown)
		}
		if !kept {
			continue
		}
		path, _, _ := strings.Cut(rest, ";")
		data, rerr := os.ReadFile(path)
		info, serr := os.Stat(path)
		if rerr != nil || serr != nil || info.Mode().Perm() != 0o600 || string(data) != "hunter2" || !strings.HasPrefix(path, h.state) {
			t.Errorf("%s: %s holds %q (%v, %v)", test.name, path, data, rerr, serr)
		}
		c.Check, c.Reload = nil, nil
		if strings.HasPrefix(test.name, "check") {
			c.Check = sh("true")
		} else {
			c.Reload = []string{"true"}
		}
		if err := h.once(c); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s: %s is there after a success", test.name, path)
		}
	}
}
