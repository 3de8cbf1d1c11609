package config_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/jorc/jorc/internal/config"
)

const testdata = "../../testdata/config/"

// noPlaces leaves out what differs between two files that say the same.
var noPlaces = cmp.Options{
	cmpopts.IgnoreFields(config.Config{}, "Owners", "Warnings"),
	cmpopts.IgnoreFields(config.Template{}, "Pos"),
	cmpopts.IgnoreFields(config.Requires{}, "Pos"),
	cmpopts.IgnoreFields(config.Trigger{}, "Pos"),
	cmpopts.EquateEmpty(),
}

func load(t *testing.T, o config.Options, paths ...string) *config.Config {
	t.Helper()
	c, err := config.Load(paths, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// write puts a file into a new directory and gives its path.
func write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// apart is a file of testdata whose paths below /etc are not the machine's.
func apart(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(testdata + name)
	if err != nil {
		t.Fatal(err)
	}
	return write(t, name, regexp.MustCompile(`"/etc/(nginx|mysql)`).ReplaceAllString(string(text), `"/jorc-test/etc/$1`))
}

func TestExample(t *testing.T) {
	t.Parallel()
	want := config.Default()
	want.Cluster = "prod"
	want.Consul.TokenFile = "/etc/jorc/token"
	want.Services = []config.Service{{
		Name: "web", ID: "web", Port: 8080, Tags: []string{"http"},
		TaggedAddresses: map[string]config.Address{"eth0": {Host: "10.0.0.5", Port: 8080}},
		Checks:          []config.Check{{ID: "service:web", Script: []string{"/usr/lib/checks/web.sh"}, Interval: 10 * time.Second, Timeout: 5 * time.Second}},
	}}
	want.Requires = []config.Requires{{Target: "mysql", Count: 1, For: "functional"}}
	want.Static = &config.Static{
		Workflow: "converge", Validation: "validate", ValidationInterval: 5 * time.Minute,
		Paths: []string{"/jorc-test/etc/nginx/nginx.conf", "/jorc-test/etc/mysql/**"},
	}
	want.Templates = []config.Template{{
		Name: "upstreams", Source: "/etc/jorc/templates/upstreams.ctmpl", Destination: "/jorc-test/etc/nginx/conf.d/upstreams.conf", Perms: "0644",
		Check: []string{"nginx", "-t", "-c", "{{.Staged}}"}, CheckTimeout: 30 * time.Second,
		Reload: []string{"systemctl", "reload", "nginx"}, ReloadTimeout: 30 * time.Second,
		MinInstances: map[string]int{"web": 1}, ShrinkAfter: 5 * time.Minute, EmptyAfter: 30 * time.Second, OnEdit: config.OnEditRestore,
		Wait:     config.Wait{Min: 50 * time.Millisecond, Max: 2 * time.Second},
		Together: "edge", Slot: "edge-reload", MaxParallel: 2,
	}}
	want.Workflows = []config.Workflow{{Name: "converge", Tasks: []config.Task{{
		Name: "puppet", Command: []string{"puppet", "apply", "--detailed-exitcodes", "/etc/puppet/site.pp"},
		OkExitCodes: []int{0, 2}, Timeout: 30 * time.Minute, Retries: 2, Idempotent: true, OnlyIf: []string{"/usr/lib/jorc/precondition.sh"},
	}}}}
	want.Triggers = []config.Trigger{{Name: "pool-changed", Service: "web", Workflow: "rebalance"}}
	want.Member = &config.Member{Roles: []string{"db"}, Zone: "rack-7", Params: map[string]any{"disks": int64(4)}}
	want.Orchestrator = &config.Orchestrator{Enabled: true, Interval: 10 * time.Second, Clusters: []string{"prod"}}
	want.LogStore = &config.LogStore{Dir: "/srv/logs"}

	for _, name := range []string{"example.hcl", "example.json"} {
		got := load(t, config.Options{}, apart(t, name))
		if diff := cmp.Diff(&want, got, noPlaces); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if len(got.Warnings) != 2 || !strings.Contains(got.Warnings[0].Message, `"validate", which is not defined`) {
			t.Errorf("%s: got warnings %v, want two about workflows", name, got.Warnings)
		}
		if pos := got.Templates[0].Pos; !strings.Contains(pos, name+":") {
			t.Errorf("%s: the template is at %q", name, pos)
		}
	}
}

func TestDefault(t *testing.T) {
	t.Parallel()
	want := config.Default()
	for name, paths := range map[string][]string{"no path": nil, "empty directory": {t.TempDir()}, "empty file": {write(t, "empty.hcl", "")}} {
		if diff := cmp.Diff(&want, load(t, config.Options{}, paths...), noPlaces); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if want.VersionFile != "/var/lib/jorc/version" || want.Consul.MaxConnections != 64 || want.HTTP.Addr != "127.0.0.1:8520" || want.Control.Socket != "/var/lib/jorc/control.sock" || want.FleetLock != nil {
		t.Errorf("got %+v", want)
	}
}

func TestDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"20-b.hcl": `service "b" {}`, "10-a.json": `{"service": {"a": {}}}`, "30-c.hcl": "\xef\xbb\xbfservice \"c\" {}",
		".hidden.hcl": "not read", "notes.txt": "not read", "40.hcl~": "not read",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, sub := range []string{"sub", "dir.hcl"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "sub", "x.hcl"), []byte("not read"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := load(t, config.Options{}, dir, filepath.Join(dir, "20-b.hcl")) // named twice, read once
	var names []string
	for _, s := range got.Services {
		names = append(names, s.Name)
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, names); diff != "" {
		t.Error(diff)
	}
}

func TestMissingFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "none.hcl")
	_, err := config.Load([]string{path}, config.Options{})
	var e *config.Error
	if !errors.Is(err, fs.ErrNotExist) || !errors.As(err, &e) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want an error about %s", err, path)
	}
}

func TestEverything(t *testing.T) {
	t.Parallel()
	got := load(t, config.Options{}, testdata+"full.hcl")
	abs, err := filepath.Abs(testdata)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		what      string
		got, want any
	}{
		{"prefix", got.Prefix, "sites/jorc"},
		{"version file", got.VersionFile, "/etc/current_version"},
		{"status API", got.HTTP.Addr, "[::1]:8521"},
		{"control socket", got.Control, config.Control{Socket: abs + "/run/control.sock", Group: "operators"}},
		{"fleetlock", *got.FleetLock, config.FleetLock{Users: []string{"zincati", "990"}, Drain: 30 * time.Second, Pos: got.FleetLock.Pos}},
		{"relative token file", got.Consul.TokenFile, abs + "/token"},
		{"dns port", got.DNS.Addr, "[::1]:8600"},
		{"max output", got.TemplateOpts.MaxOutput, 1 << 20},
		{"tagged addresses", got.Services[0].TaggedAddresses, map[string]config.Address{
			"lan": {Host: "10.0.0.1", Port: 80}, "wan": {Host: "example.com", Port: 8080}, "lan_v6": {Host: "::1", Port: 81},
			"bare_v6": {Host: "fd00::1", Port: 80}, "consul": {Host: "10.0.0.2", Port: 82},
		}},
		{"weights", got.Services[0].Weights, &config.Weights{Passing: 10, Warning: 2}},
		{"header", got.Services[0].Checks[0].Header, map[string][]string{"Accept": {"text/plain", "*/*"}, "X-Probe": {"1"}}},
		{"check ids", []string{got.Services[0].Checks[0].ID, got.Services[0].Checks[1].ID}, []string{"api-http", "service:api-1:2"}},
		{"default timeouts", []time.Duration{got.Services[0].Checks[2].Timeout, got.Services[0].Checks[5].Timeout}, []time.Duration{10 * time.Second, 0}},
		{"odd service name", got.Services[1].ID, "odd name, ünïcode / slash"},
		{"relative source", got.Templates[1].Source, abs + "/templates/relative.ctmpl"},
		{"heredoc", got.Templates[0].Contents, "{{ range service \"web\" }}server {{ .Address }}:{{ .Port }};\n{{ end }}\n"},
		{"wait without maximum", got.Templates[0].Wait, config.Wait{Min: 5 * time.Second, Max: 20 * time.Second}},
		{"shrink", []string{got.Templates[0].MaxShrink, got.Templates[1].MaxShrink}, []string{"3", "50%"}},
		{"empty after nothing", got.Templates[0].EmptyAfter, time.Duration(0)},
		{"edits", []string{got.Templates[0].OnEdit, got.Templates[1].OnEdit}, []string{config.OnEditReport, config.OnEditRestore}},
		{"template's requires", got.Templates[0].Requires[0].Target, "mysql"},
		{"escaped interpolation", got.Workflows[0].Tasks[0].Script, "echo {{.Version}} ${HOME}"},
		{"task's requires", got.Workflows[0].Tasks[0].Requires[0].For, "addressable"},
		{"kill grace", got.Workflows[0].Tasks[0].KillGrace, 30 * time.Second},
		{"default exit codes", got.Workflows[0].Tasks[0].OkExitCodes, []int{0}},
		{"only_if with a space", got.Workflows[1].Tasks[0].OnlyIf, []string{"/bin/has space"}},
		{"params", got.Member.Params, map[string]any{
			"disks": int64(4), "ratio": 0.5, "ssd": true, "names": []any{"a", nil}, "nested": map[string]any{"deep": "yes"},
		}},
		{"orchestrator", got.Orchestrator, &config.Orchestrator{Enabled: true, Interval: 10 * time.Second}},
		{"s3", got.LogStore.S3, &config.S3{
			Endpoint: "s3.example:9000", Bucket: "logs", Region: "eu-1", Prefix: "jorc/", CredentialsFile: "/etc/jorc/s3", Insecure: true,
		}},
		{"warnings", len(got.Warnings), 1}, // of the service's name, which DNS cannot answer
	} {
		if diff := cmp.Diff(tt.want, tt.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.what, diff)
		}
	}
}
