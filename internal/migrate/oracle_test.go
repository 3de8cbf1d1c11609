package migrate_test

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	oracle "github.com/hashicorp/consul-template/config"
	"github.com/hashicorp/hcl/v2/hclwrite"

	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/migrate"
)

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // consul-template logs there
	os.Exit(m.Run())
}

// oracleCases are the inputs of consul-template's own tests: the string literals of
// its files that are configurations.
func oracleCases(t testing.TB) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/hashicorp/consul-template").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "config", "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatal("no tests of consul-template: ", err)
	}
	var all []string
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if s, err := strconv.Unquote(lit.Value); err == nil && strings.ContainsAny(s, "={") {
					all = append(all, s)
				}
			}
			return true
		})
	}
	return all
}

// TestOracleCases: each configuration of consul-template's own tests that
// consul-template accepts is converted, and jorc means the same by the result.
func TestOracleCases(t *testing.T) {
	t.Parallel()
	accepted := 0
	for _, src := range oracleCases(t) {
		if compare(t, src) {
			accepted++
		}
	}
	if accepted < 100 {
		t.Errorf("consul-template accepts %d of its own cases, want at least 100", accepted)
	}
}

// compare converts src and compares the result with what consul-template reads. It
// reports whether consul-template accepts src.
func compare(t *testing.T, src string) bool {
	t.Helper()
	theirs, err := parseOracle(src)
	if err != nil {
		return false
	}
	file := filepath.Join(t.TempDir(), "consul-template.hcl")
	if err := os.WriteFile(file, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := migrate.ConsulTemplate([]string{file}, nil, migrate.Options{Dir: "/work"})
	if err != nil {
		t.Errorf("%q: %v", src, err)
		return true
	}
	if want := hclwrite.Format(got.Config); !bytes.Equal(got.Config, want) {
		t.Errorf("%q: got\n%s\nHCL's layout is\n%s", src, got.Config, want)
	}
	named := map[string]bool{}
	for _, f := range got.Findings {
		named[f.Setting] = true
		if f.At.File != file || f.At.Line == 0 || f.Reason == "" {
			t.Errorf("%q: finding %+v without position or reason", src, f)
		}
	}
	for _, path := range setPaths(reflect.ValueOf(theirs).Elem(), "") {
		if !migrate.Known(path) {
			t.Errorf("%q: %s is not in the table", src, path)
		}
		if migrate.Lossy(path) && !named[path] {
			t.Errorf("%q: %s is neither converted nor named: %v", src, path, got.Findings)
		}
	}
	compareTemplates(t, src, theirs, got, named)
	return true
}

// parseOracle is consul-template's parser, which panics on some input.
func parseOracle(src string) (c *oracle.Config, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return oracle.Parse(src)
}

// setPaths are the settings that are set in a struct of consul-template's.
func setPaths(v reflect.Value, prefix string) []string {
	var all []string
	for i := range v.NumField() {
		field := v.Type().Field(i)
		tag, _, _ := strings.Cut(field.Tag.Get("mapstructure"), ",")
		if tag == "-" || !field.IsExported() || field.Name == "ExtFuncMap" {
			continue
		}
		if tag == "" {
			tag = strings.ToLower(field.Name)
		}
		name := prefix + tag
		f := v.Field(i)
		for f.Kind() == reflect.Pointer && !f.IsNil() {
			f = f.Elem()
		}
		switch {
		case f.IsZero() && f.Kind() != reflect.Bool && f.Kind() != reflect.String:
		case v.Field(i).Kind() != reflect.Pointer && f.IsZero():
		case f.Type() == reflect.TypeFor[oracle.TemplateConfigs]():
			for j := range f.Len() {
				all = append(all, setPaths(f.Index(j).Elem(), "template.")...)
			}
		case f.Kind() == reflect.Struct:
			all = append(all, setPaths(f, name+".")...)
		default:
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// compareTemplates compares jorc's templates with consul-template's.
func compareTemplates(t *testing.T, src string, theirs *oracle.Config, got *migrate.Result, named map[string]bool) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "jorc.hcl")
	if err := os.WriteFile(file, got.Config, 0o600); err != nil {
		t.Fatal(err)
	}
	ours, err := config.Load([]string{file}, config.Options{})
	if err != nil {
		if !expected(err, theirs) {
			t.Errorf("%q becomes\n%s\nwhich jorc refuses: %v", src, got.Config, err)
		}
		return
	}
	if theirs.Consul != nil && theirs.Consul.Address != nil && *theirs.Consul.Address != "" && !named["consul.address"] {
		if want := *theirs.Consul.Address; !strings.HasSuffix(ours.Consul.Address, strings.TrimPrefix(want, "http://")) {
			t.Errorf("%q: address: got %q, want %q", src, ours.Consul.Address, want)
		}
	}
	theirs.Finalize()
	var want []*oracle.TemplateConfig
	for _, tc := range *theirs.Templates {
		if *tc.Destination != "" && (*tc.Source == "") != (*tc.Contents == "") {
			want = append(want, tc)
		}
	}
	if len(ours.Templates) != len(want) {
		t.Errorf("%q: got %d templates, want %d", src, len(ours.Templates), len(want))
		return
	}
	compareProcess(t, src, ours.Processes, theirs.Exec)
	for i, ct := range want {
		compareTemplate(t, src, ours.Templates[i], ct, theirs)
	}
}

func compareTemplate(t *testing.T, src string, got config.Template, want *oracle.TemplateConfig, all *oracle.Config) {
	t.Helper()
	perms := ""
	if *want.Perms != 0 {
		perms = fmt.Sprintf("%04o", uint32(*want.Perms))
	}
	wait := want.Wait
	if !*wait.Enabled {
		wait = all.Wait
	}
	var window config.Wait
	if *wait.Enabled && *wait.Min > 0 {
		window = config.Wait{Min: *wait.Min, Max: max(*wait.Min, *wait.Max)}
	}
	left, right := oracle.StringVal(want.LeftDelim), oracle.StringVal(want.RightDelim)
	if left == "" {
		left = oracle.StringVal(all.DefaultDelims.Left)
	}
	if right == "" {
		right = oracle.StringVal(all.DefaultDelims.Right)
	}
	for _, v := range []struct {
		name      string
		got, want any
	}{
		{"source", got.Source, absolute(*want.Source)},
		{"contents", got.Contents, *want.Contents},
		{"destination", got.Destination, absolute(*want.Destination)},
		{"create_dirs", got.CreateDirs, *want.CreateDestDirs},
		{"backup", got.Backup, *want.Backup},
		{"error_on_missing_key", got.ErrorOnMissingKey, *want.ErrMissingKey},
		{"left_delim", got.LeftDelim, left},
		{"right_delim", got.RightDelim, right},
		{"perms", got.Perms, perms},
		{"user", got.User, oracle.StringVal(want.User)},
		{"group", got.Group, oracle.StringVal(want.Group)},
		{"sandbox_path", got.SandboxPath, absolute(*want.SandboxPath)},
		{"function_denylist", fmt.Sprint(got.FunctionDenylist), fmt.Sprint(want.FunctionDenylist)},
		{"wait", got.Wait, window},
	} {
		if v.got != v.want {
			t.Errorf("%q: %s: got %#v, want %#v", src, v.name, v.got, v.want)
		}
	}
	compareCommand(t, src, got, want)
}

func compareCommand(t *testing.T, src string, got config.Template, want *oracle.TemplateConfig) {
	t.Helper()
	argv := slices.Clone([]string(want.Exec.Command))
	if len(argv) == 0 || strings.TrimSpace(argv[0]) == "" {
		if len(got.Reload) > 0 {
			t.Errorf("%q: got reload %q, want none", src, got.Reload)
		}
		return
	}
	if len(argv) == 1 && len(strings.Fields(argv[0])) > 1 {
		argv = []string{"sh", "-c", argv[0]}
	}
	if n := len(got.Reload) - len(argv); n < 0 || !slices.Equal(got.Reload[n:], argv) {
		t.Errorf("%q: got reload %q, want %q at its end", src, got.Reload, argv)
	}
	if limit := *want.Exec.Timeout; limit > 0 && got.ReloadTimeout != limit || limit == 0 && got.ReloadTimeout < time.Hour {
		t.Errorf("%q: got reload_timeout %s, want %s", src, got.ReloadTimeout, limit)
	}
}

// compareProcess compares jorc's process with consul-template's exec mode.
func compareProcess(t *testing.T, src string, got []config.Process, want *oracle.ExecConfig) {
	t.Helper()
	if !*want.Enabled || len(want.Command) == 0 || strings.TrimSpace(want.Command[0]) == "" {
		if len(got) > 0 {
			t.Errorf("%q: got process %+v, want none", src, got)
		}
		return
	}
	if len(got) != 1 {
		t.Errorf("%q: got %d processes, want one", src, len(got))
		return
	}
	p := got[0]
	kill := "SIG" + strings.TrimPrefix(command.SignalName((*want.KillSignal).(syscall.Signal)), "SIG")
	reload := ""
	if *want.ReloadSignal != nil {
		reload = command.SignalName((*want.ReloadSignal).(syscall.Signal))
	}
	for _, v := range []struct {
		name      string
		got, want any
	}{
		{"command", strings.Join(p.Command[len(p.Command)-1:], " "), lastWord(want.Command, p.Command)},
		{"kill_timeout", p.KillTimeout, max(*want.KillTimeout, time.Millisecond)},
		{"splay", p.Splay, *want.Splay},
		{"pristine", p.Env.Pristine, *want.Env.Pristine},
		{"allowlist", fmt.Sprint(p.Env.Allowlist), fmt.Sprint(append(slices.Clone(want.Env.Allowlist), want.Env.AllowlistDeprecated...))},
	} {
		if v.got != v.want {
			t.Errorf("%q: %s: got %#v, want %#v", src, v.name, v.got, v.want)
		}
	}
	if kill != "SIG" && p.KillSignal != kill || p.ReloadSignal != reload && reload != "" {
		t.Errorf("%q: got signals %s and %s, want %s and %s", src, p.KillSignal, p.ReloadSignal, kill, reload)
	}
}

// lastWord is the last argument of the command that consul-template runs.
func lastWord(theirs, ours []string) string {
	if len(theirs) > 1 || len(ours) == 3 && ours[1] == "-c" {
		return theirs[len(theirs)-1]
	}
	words := strings.Fields(theirs[0])
	return words[len(words)-1]
}

func absolute(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join("/work", path)
}

// expected reports whether jorc refuses only what no host can have: values that
// consul-template's parser does not check.
func expected(err error, theirs *oracle.Config) bool {
	var wrong *config.Error
	if !errors.As(err, &wrong) {
		return false
	}
	for _, p := range wrong.Problems {
		known := false
		for _, part := range []string{
			"is not an address", "names no host", "has no valid port", "URL such as", // addresses that are words
			"Destination used twice", "Destination below a file", "would overwrite", "must name a file",
			"belong together", // a key without its certificate
			"octal permissions", "is not a valid", "has zero byte", "bytes, at most",
			"such as \"http://127.0.0.1:8080/health\"", "contains a zero byte", "cannot contain a zero byte",
		} {
			known = known || strings.Contains(p.Message, part)
		}
		if !known {
			return false
		}
	}
	return theirs != nil
}
