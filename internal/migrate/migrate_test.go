package migrate_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	oracle "github.com/hashicorp/consul-template/config"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/migrate"
)

var update = flag.Bool("update", false, "write the golden files")

// TestGolden converts realistic configurations. The results are valid.
func TestGolden(t *testing.T) {
	t.Parallel()
	dirs, err := filepath.Glob("testdata/consul-template/*")
	if err != nil || len(dirs) < 6 {
		t.Fatalf("got %d configurations (%v), want six", len(dirs), err)
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			got, err := migrate.ConsulTemplate([]string{filepath.Join(dir, "in")}, nil, migrate.Options{Dir: "/work"})
			if err != nil {
				t.Fatal(err)
			}
			var findings strings.Builder
			for _, f := range got.Findings {
				findings.WriteString(strings.ReplaceAll(f.String(), dir+"/in/", "") + "\n")
			}
			golden(t, filepath.Join(dir, "jorc.hcl"), string(got.Config))
			golden(t, filepath.Join(dir, "findings.txt"), findings.String())
			if _, err := config.Load([]string{filepath.Join(dir, "jorc.hcl")}, config.Options{}); err != nil {
				t.Error(err)
			}
			for _, secret := range []string{"b1gs33cr3t", "hunter2", "nomad-secret", "a-token-at-the-top"} {
				if strings.Contains(string(got.Config)+findings.String(), secret) {
					t.Errorf("the result contains the secret %s", secret)
				}
			}
		})
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
	}
}

// TestTable: each setting of consul-template's own structs is in the table, and the
// documentation has a row for it.
func TestTable(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/migration.md")
	if err != nil {
		t.Fatal(err)
	}
	known := typePaths(reflect.TypeFor[oracle.Config](), "")
	if len(known) < 100 {
		t.Fatalf("consul-template has %d settings, want at least 100", len(known))
	}
	for _, path := range known {
		if !migrate.Known(path) {
			t.Errorf("%s is not in the table", path)
		}
	}
	for tool, mark := range map[string]string{"consul-template": "table", "envconsul": "table of envconsul"} {
		doc = documented(t, doc, mark, migrate.Rows(tool))
	}
}

// documented compares a table of docs/migration.md, and writes it with -update.
func documented(t *testing.T, doc []byte, mark, rows string) []byte {
	t.Helper()
	begin, end := "<!-- "+mark+" -->\n", "<!-- end of "+mark+" -->\n"
	if *update {
		before, rest, ok := strings.Cut(string(doc), begin)
		_, after, ended := strings.Cut(rest, end)
		if !ok || !ended {
			t.Fatalf("docs/migration.md has no place for the %s", mark)
		}
		doc = []byte(before + begin + rows + end + after)
		if err := os.WriteFile("../../docs/migration.md", doc, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(string(doc), begin+rows+end) {
		t.Errorf("docs/migration.md does not have the %s (go test -update writes it):\n%s", mark, rows)
	}
	return doc
}

// typePaths are all settings of a struct of consul-template's.
func typePaths(of reflect.Type, prefix string) []string {
	var all []string
	for i := range of.NumField() {
		field := of.Field(i)
		tag, _, _ := strings.Cut(field.Tag.Get("mapstructure"), ",")
		if tag == "-" || !field.IsExported() || field.Name == "ExtFuncMap" {
			continue
		}
		if tag == "" {
			tag = strings.ToLower(field.Name)
		}
		inner := field.Type
		for inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case inner == reflect.TypeFor[oracle.TemplateConfigs]():
			all = append(all, typePaths(reflect.TypeFor[oracle.TemplateConfig](), "template.")...)
		case inner.Kind() == reflect.Struct:
			all = append(all, typePaths(inner, prefix+tag+".")...)
		default:
			all = append(all, prefix+tag)
		}
	}
	return all
}

// TestFlags: consul-template's own flags are settings that override files.
func TestFlags(t *testing.T) {
	t.Parallel()
	file := write(t, "consul { address = \"file:8500\" }\nlog_level = \"info\"\n")
	got, err := migrate.ConsulTemplate(nil, []string{
		"-config", file, "-consul-addr=flag:8500", "--consul-ssl", "-consul-ssl-ca-cert", "/ca.pem", "-wait=1s:2s", "-once",
		"-template", "/in.ctmpl:/out.txt:systemctl reload nginx", "-template=/b.ctmpl:/b.txt", "-consul-retry-attempts", "3",
		"-exec", "/bin/server --port 1", "-exec-env-custom", "A=b", "-vault-agent-token-file=/run/token", "-log-level", "err",
		"-consul-auth", "joe:hunter2", "-template-error-fatal=false", "-vault-addr=http://vault:8200",
	}, migrate.Options{Dir: "/work"})
	if err != nil {
		t.Fatal(err)
	}
	ours := load(t, got.Config)
	for _, v := range []struct{ name, got, want string }{
		{"address", ours.Consul.Address, "https://flag:8500"},
		{"ca_file", ours.Consul.CAFile, "/ca.pem"},
		{"auth_file", ours.Consul.AuthFile, "/etc/jorc/consul.auth"},
		{"log_level", ours.LogLevel, "error"},
		{"token_file", ours.Vault.TokenFile, "/run/token"},
		{"source", ours.Templates[0].Source, "/in.ctmpl"},
		{"reload", strings.Join(ours.Templates[0].Reload, "|"), "sh|-c|systemctl reload nginx"},
		{"wait", ours.Templates[1].Wait.Max.String(), "2s"},
		{"process", strings.Join(ours.Processes[0].Command, "|"), "/bin/server|--port|1"},
		{"kill_signal", ours.Processes[0].KillSignal, "SIGINT"},
		{"custom", strings.Join(ours.Processes[0].Env.Custom, "|"), "A=b"},
	} {
		if v.got != v.want {
			t.Errorf("%s: got %q, want %q", v.name, v.got, v.want)
		}
	}
	var named []string
	for _, f := range got.Findings {
		named = append(named, f.Setting)
		if strings.Contains(f.String(), "hunter2") {
			t.Errorf("%s contains a password", f)
		}
	}
	want := []string{
		"consul.address", "log_level", "once", "consul.retry.attempts",
		"consul.auth.username", "consul.auth.password", "template_error_fatal",
	}
	if !slices.Equal(named, want) {
		t.Errorf("got findings about %q, want %q", named, want)
	}
}

// TestWeakerSettings: a setting by which consul-template is less strict than jorc is no
// "not needed" without a word: it is named as lost, or as without effect.
func TestWeakerSettings(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, src, flag, want string
		lost                  bool
	}{
		{"certificates", "consul { ssl { enabled = true verify = false } }", "", "consul.ssl.verify: no equivalent: certificates are checked; for a test only, set CONSUL_HTTP_SSL_VERIFY=false", true},
		{"certificates at an address", "consul { address = \"https://consul:8501\" ssl { verify = false } }", "", "consul.ssl.verify: no equivalent: certificates are checked", true},
		{"certificates with a CA", "consul { ssl { ca_cert = \"/ca.pem\" verify = false } }", "", "consul.ssl.verify: no equivalent: certificates are checked", true},
		{"certificates by a flag", "consul { ssl { enabled = true } }", "-consul-ssl-verify=false", "-consul-ssl-verify: consul.ssl.verify: no equivalent: certificates are checked", true},
		{"certificates without TLS", "consul { address = \"consul:8500\" ssl { verify = false } }", "", "consul.ssl.verify: not needed: TLS is not used", false},
		{"certificates with TLS off", "consul { ssl { enabled = false verify = false } }", "", "consul.ssl.verify: not needed: TLS is not used", false},
		{"certificates are checked", "consul { ssl { enabled = true verify = true } }", "", "", false},
		{"certificates of Vault", "vault { address = \"https://vault:8200\" ssl { verify = false } }", "", "vault.ssl.verify: no equivalent: certificates are checked; name the CA", true},
		{"one attempt", "consul { retry { enabled = false } }", "", "consul.retry.enabled: no equivalent: jorc always repeats failed requests", true},
		{"one attempt at Vault", "vault { address = \"https://vault:8200\" retry { enabled = false } }", "", "vault.retry.enabled: no equivalent: jorc always repeats failed requests", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var flags []string
			if tt.flag != "" {
				flags = []string{tt.flag}
			}
			got, err := migrate.ConsulTemplate([]string{write(t, tt.src)}, flags, migrate.Options{Dir: "/work"})
			if err != nil {
				t.Fatal(err)
			}
			var findings strings.Builder
			for _, f := range got.Findings {
				findings.WriteString(f.String() + "\n")
			}
			if got.Lost() != tt.lost || !strings.Contains(findings.String(), tt.want) {
				t.Errorf("lost: %v, want %v; findings, want %q:\n%s", got.Lost(), tt.lost, tt.want, &findings)
			}
		})
	}
}

// TestEnvconsul: each setting that envconsul's documentation shows is converted or
// named, and jorc means the same by the result.
func TestEnvconsul(t *testing.T) {
	t.Parallel()
	src := `
consul {
  address = "127.0.0.1:8500"
  token   = "b1gs33cr3t"
  retry { attempts = 12 }
  ssl { enabled = true  ca_cert = "/ca.pem" }
}
vault {
  address     = "https://vault:8200"
  token       = "hunter2"
  renew_token = true
}
log_level = "warn"
max_stale = "10m"
pid_file  = "/run/envconsul.pid"
pristine  = true
sanitize  = true
upcase    = true
wait { min = "5s" max = "10s" }
# The defaults.
prefix { path = "/config/global" }
prefix {
  path      = "config/redis"
  no_prefix = false
}
prefix {
  path   = "config/app@dc1"
  format = "app_{{ key }}"
}
secret {
  path   = "secret/my-app"
  format = "vault_{{key}}"
}
secret {
  no_prefix = true
  path      = "secret/db"
  key { name = "user" format = "DB_USER" }
}
service { query = "web" }
exec {
  command       = "/bin/app --verbose"
  kill_signal   = "SIGHUP"
  kill_timeout  = "2s"
  splay         = "5s"
  reload_signal = "SIGUSR1"
  env { allowlist = ["HOME", "CONSUL_*"] }
}
syslog { enabled = true facility = "LOCAL5" }
`
	got, err := migrate.Envconsul([]string{write(t, src)}, nil, migrate.Options{Dir: "/work"})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/envconsul/jorc.hcl", string(got.Config))
	var findings strings.Builder
	for _, f := range got.Findings {
		f.At.File = "envconsul.hcl"
		findings.WriteString(f.String() + "\n")
	}
	golden(t, "testdata/envconsul/findings.txt", findings.String())
	if text := string(got.Config) + findings.String(); strings.Contains(text, "b1gs33cr3t") || strings.Contains(text, "hunter2") || strings.Contains(text, "consul-template") {
		t.Errorf("the result contains a secret or names another tool:\n%s", text)
	}
	p := load(t, got.Config).Processes[0]
	if !p.Env.Pristine || !p.Env.Upcase || !p.Env.Sanitize || len(p.Env.Prefixes) != 3 || len(p.Env.Secrets) != 2 || p.Wait.Max.String() != "10s" {
		t.Errorf("got %+v", p)
	}
}

// TestEnvconsulFlags: flags of old and new versions, then the command.
func TestEnvconsulFlags(t *testing.T) {
	t.Parallel()
	old := write(t, "consul = \"file:8500\"\nprefixes = [\"a\", \"b\"]\nkill_signal = \"SIGQUIT\"\ntimeout = \"7s\"\nauth { enabled = true password = \"hunter2\" }\n")
	got, err := migrate.Envconsul(nil, []string{
		"-config", old, "-consul-addr=flag:8500", "-prefix", "app/config", "-secret=secret/passwords", "-upcase", "-sanitize=false", "-pristine",
		"-once", "-ssl-verify=false", "-kill-timeout", "3s", "/bin/app", "-flag", "of the app",
	}, migrate.Options{Dir: "/work"})
	if err != nil {
		t.Fatal(err)
	}
	ours := load(t, got.Config)
	p := ours.Processes[0]
	names := []string{}
	for _, source := range append(p.Env.Prefixes, p.Env.Secrets...) {
		names = append(names, source.Path+" "+source.VariableName("k"))
	}
	for _, v := range []struct{ name, got, want string }{
		{"address", ours.Consul.Address, "flag:8500"},
		{"command", strings.Join(p.Command, "|"), "/bin/app|-flag|of the app"},
		{"sources", strings.Join(names, ", "), "a k, b k, app/config k, secret/passwords secret_passwords_k"},
		{"kill_signal", p.KillSignal, "SIGQUIT"},
		{"kill_timeout", p.KillTimeout.String(), "3s"},
	} {
		if v.got != v.want {
			t.Errorf("%s: got %q, want %q", v.name, v.got, v.want)
		}
	}
	if !p.Env.Pristine || !p.Env.Upcase || p.Env.Sanitize {
		t.Errorf("got %+v", p.Env)
	}
	for _, args := range [][]string{{"-nope", "x"}, {"-prefix"}, {"-upcase=perhaps", "x"}} {
		if _, err := migrate.Envconsul(nil, args, migrate.Options{Dir: "/work"}); !errors.Is(err, migrate.ErrInput) {
			t.Errorf("%q: got %v, want ErrInput", args, err)
		}
	}
}

// TestForeignSettings: a setting of consul-template in jorc's own configuration is valid
// there, or the error says what jorc calls it or why jorc does not have it.
func TestForeignSettings(t *testing.T) {
	t.Parallel()
	for _, path := range typePaths(reflect.TypeFor[oracle.Config](), "") {
		block, name, nested := strings.Cut(path, ".")
		name, _, _ = strings.Cut(name, ".") // in a block of a block, that block's name counts
		src := block + " = 1\n" + block + " {\n}\n"
		switch {
		case block == "template":
			src = "template \"x\" {\n  " + name + " = 1\n  " + name + " {\n  }\n}\n"
		case block == "exec", !nested && (block == "log_level" || block == "version"):
			continue
		case block == "consul" || block == "vault":
			src = block + " {\n  " + name + " = 1\n  " + name + " {\n  }\n}\n"
		}
		_, err := config.Load([]string{write(t, src)}, config.Options{})
		var wrong *config.Error
		if !errors.As(err, &wrong) {
			t.Errorf("%q: got %v", src, err)
			continue
		}
		known, explained := true, false
		for _, p := range wrong.Problems {
			known = known && !strings.Contains(p.Message, "is not expected here.")
			explained = explained || strings.Contains(p.Message, "'jorc migrate' converts") || strings.Contains(p.Message, "Did you mean to define argument")
		}
		if !known && !explained {
			t.Errorf("%s: got %v, want an explanation", path, err)
		}
	}
}

// TestWrongInput: what cannot be read is an error with its file.
func TestWrongInput(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, src, want string
		flags           []string
	}{
		{"syntax", "consul {", ":1:", nil},
		{"number", "x = 99999999999999999999", ":1: ", nil},
		{"nesting", strings.Repeat("[", 5000), "nested too deep", nil},
		{"flag", "", "no flag -nope", []string{"-nope", "x"}},
		{"argument", "", "is not a flag", []string{"nope"}},
		{"value", "", "needs a value", []string{"-consul-addr"}},
		{"bool", "", "true or false", []string{"-once=perhaps"}},
	} {
		_, err := migrate.ConsulTemplate([]string{write(t, tt.src)}, tt.flags, migrate.Options{Dir: "/work"})
		if !errors.Is(err, migrate.ErrInput) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want ErrInput with %q", tt.name, err, tt.want)
		}
	}
	if _, err := migrate.ConsulTemplate([]string{filepath.Join(t.TempDir(), "absent")}, nil, migrate.Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want that the file does not exist", err)
	}
}

// TestTemplateFunctions: what a template calls may need a setting of jorc.
func TestTemplateFunctions(t *testing.T) {
	t.Parallel()
	source := write(t, `[[ env "HOME" ]] {{ env "IGNORED" }} [[ if true ]][[ mustEnv "APP_MODE" | toUpper ]][[ end ]] [[ plugin "x" ]] [[ nomadService "y" ]] [[ env (key "z") ]]`)
	src := "default_delimiters { left = \"[[\" right = \"]]\" }\ntemplate { source = \"" + source + "\" destination = \"/out\" }\n"
	got, err := migrate.ConsulTemplate([]string{write(t, src)}, nil, migrate.Options{Dir: "/work"})
	if err != nil {
		t.Fatal(err)
	}
	options := load(t, got.Config).TemplateOpts
	if !slices.Equal(options.AllowEnv, []string{"APP_MODE", "HOME"}) || !slices.Equal(options.AllowFunctions, []string{"plugin"}) {
		t.Errorf("got %+v", options)
	}
	text := ""
	for _, f := range got.Findings {
		text += f.String() + "\n"
	}
	if !got.Lost() || !strings.Contains(text, "nomadService") || !strings.Contains(text, "computes the name") {
		t.Errorf("got findings\n%s", text)
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file.hcl")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func load(t *testing.T, text []byte) *config.Config {
	t.Helper()
	c, err := config.Load([]string{write(t, string(text))}, config.Options{})
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return c
}

// FuzzConsulTemplate: no input makes the converter panic, and what consul-template
// accepts is converted or named.
func FuzzConsulTemplate(f *testing.F) {
	for _, src := range oracleCases(f) {
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src string) {
		if compare(t, src) {
			return
		}
		got, err := migrate.ConsulTemplate([]string{write(t, src)}, nil, migrate.Options{Dir: "/work"})
		if err == nil && len(got.Config) == 0 {
			t.Error("no error and no result")
		}
	})
}

// FuzzStrings: strings are written as HCL's own package writes them.
func FuzzStrings(f *testing.F) {
	for _, s := range []string{"", "a\n\r\t\"\\b", "${a} %{b} $ {c} $${d} %%{e} $", "ünï\u0301\u00a0\u200b\U000e0001\x00", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := migrate.Quote(s), string(hclwrite.TokensForValue(cty.StringVal(s)).Bytes()); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}
