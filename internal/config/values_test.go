package config_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jorc/jorc/internal/config"
)

// loadTemplate loads a template with one more argument, written as given.
func loadTemplate(t testing.TB, argument string) (config.Template, error) {
	t.Helper()
	text := "template \"t\" {\n contents = \"x\"\n destination = \"/jorc-test/x\"\n slot = \"s\"\n " + argument + "\n}\n"
	c, err := config.Load([]string{write(t, "jorc.hcl", text)}, config.Options{})
	if err != nil {
		return config.Template{}, err
	}
	return c.Templates[0], nil
}

func TestDurations(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   string
		want time.Duration
		ok   bool
	}{
		{"30s", 30 * time.Second, true},
		{"1h30m", 90 * time.Minute, true},
		{"50ms", 50 * time.Millisecond, true},
		{"0", 0, true},
		{"0s", 0, true},
		{"30", 0, false},
		{"1.5", 0, false},
		{"-1s", 0, false},
		{"", 0, false},
		{"1d", 0, false},
		{"s", 0, false},
		{" 1s", 0, false},
		{"9999999999h", 0, false},
	} {
		got, err := loadTemplate(t, fmt.Sprintf("empty_after = %q", tt.in))
		if got.EmptyAfter != tt.want || (err == nil) != tt.ok {
			t.Errorf("%q: got %v, %v; want %v, ok %v", tt.in, got.EmptyAfter, err, tt.want, tt.ok)
		}
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in       string
		min, max time.Duration
		ok       bool
	}{
		{"50ms:2s", 50 * time.Millisecond, 2 * time.Second, true},
		{"5s", 5 * time.Second, 20 * time.Second, true},
		{"5s:5s", 5 * time.Second, 5 * time.Second, true},
		{"0s", 0, 0, true},
		{"0s:0s", 0, 0, true},
		{in: "0s:5s"},
		{in: "5s:1s"},
		{in: "5s:"},
		{in: ":5s"},
		{in: "1s:2s:3s"},
		{in: "5"},
		{in: ""},
		{in: "2000000h"},
	} {
		got, err := loadTemplate(t, fmt.Sprintf("wait = %q", tt.in))
		if want := (config.Wait{Min: tt.min, Max: tt.max}); got.Wait != want || (err == nil) != tt.ok {
			t.Errorf("%q: got %v, %v; want %v, ok %v", tt.in, got.Wait, err, want, tt.ok)
		}
	}
}

func TestTaggedAddresses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   string
		want config.Address
		ok   bool
	}{
		{"10.0.0.5", config.Address{Host: "10.0.0.5"}, true},
		{"10.0.0.5:80", config.Address{Host: "10.0.0.5", Port: 80}, true},
		{"web.example:8080", config.Address{Host: "web.example", Port: 8080}, true},
		{"web", config.Address{Host: "web"}, true},
		{"[::1]:80", config.Address{Host: "::1", Port: 80}, true},
		{"::1", config.Address{Host: "::1"}, true},
		{"[::1]", config.Address{Host: "::1"}, true},
		{"fe80::1%eth0", config.Address{Host: "fe80::1%eth0"}, true},
		{in: ""},
		{in: ":80"},
		{in: "host:"},
		{in: "host:0"},
		{in: "host:65536"},
		{in: "host:+80"},
		{in: "host:http"},
		{in: "a:b:c"},
		{in: "[::1"},
		{in: "[10.0.0.5]"},
		{in: "http://host"},
		{in: "me@host:80"},
		{in: "two words"},
	} {
		text := fmt.Sprintf("service \"web\" {\n tagged_addresses = { lan = %q }\n}\n", tt.in)
		c, err := config.Load([]string{write(t, "jorc.hcl", text)}, config.Options{})
		var got config.Address
		if err == nil {
			got = c.Services[0].TaggedAddresses["lan"]
		}
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("%q: got %v, %v; want %v, ok %v", tt.in, got, err, tt.want, tt.ok)
		}
	}
}

func TestConsulAddress(t *testing.T) {
	t.Parallel()
	for in, ok := range map[string]bool{
		"127.0.0.1:8500": true, "consul": true, "[::1]:8500": true, "http://consul:8500": true, "https://consul": true,
		"https://consul/path": true, "unix:///run/consul.sock": true, "https://[::1]:8501": true,
		"unix://run": false, "ftp://x": false, "http://": false, "http://a b": false, "http://me:pw@x": false, "http://x?y": false,
	} {
		_, err := config.Load(nil, config.Options{Overrides: config.Overrides{HTTPAddr: &in}})
		if (err == nil) != ok {
			t.Errorf("%q: got %v, want ok %v", in, err, ok)
		}
	}
}

func TestTemplateValues(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in string
		ok bool
	}{
		{`max_shrink = "50%"`, true},
		{`max_shrink = "0%"`, true},
		{`max_shrink = "100%"`, true},
		{`max_shrink = "3"`, true},
		{`max_shrink = 3`, true},
		{`max_shrink = "101%"`, false},
		{`max_shrink = "-1"`, false},
		{`max_shrink = "5.5%"`, false},
		{`max_shrink = "%"`, false},
		{`max_shrink = ""`, false},
		{`max_shrink = 1.5`, false},
		{`perms = "0644"`, true},
		{`perms = "600"`, true},
		{`perms = "4755"`, true},
		{`perms = "0888"`, false},
		{`perms = "10000"`, false},
		{`perms = "0o644"`, false},
		{`perms = "6"`, false},
		{`perms = ""`, false},
		{`perms = 0644`, false},
		{`function_denylist = null`, true},
		{`function_denylist = ["a", null]`, false},
		{`min_instances = { web = 1e30 }`, false},
		{`min_instances = { "" = 1 }`, false},
	} {
		if _, err := loadTemplate(t, tt.in); (err == nil) != tt.ok {
			t.Errorf("%s: got %v, want ok %v", tt.in, err, tt.ok)
		}
	}
}

func TestMaxParallel(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int{"": -1, "max_parallel = 0": 0, "max_parallel = 3": 3} {
		got, err := loadTemplate(t, in)
		if err != nil || got.MaxParallel != want {
			t.Errorf("with %q: got %d, %v; want %d", in, got.MaxParallel, err, want)
		}
	}
}

func TestSinks(t *testing.T) {
	t.Parallel()
	got := load(t, config.Options{}, write(t, "c.hcl", `
orchestrator {
  sink "log" {}
  sink "file" { path = "/var/log/jorc/events.jsonl" }
  sink "webhook" {
    url         = "https://hooks.example/in?key=x"
    secret_file = "/etc/jorc/hook-secret"
  }
  sink "webhook" { url = "http://127.0.0.1:9000/" }
}`))
	want := []config.EventSink{
		{Kind: "log"},
		{Kind: "file", Path: "/var/log/jorc/events.jsonl"},
		{Kind: "webhook", URL: "https://hooks.example/in?key=x", SecretFile: "/etc/jorc/hook-secret"},
		{Kind: "webhook", URL: "http://127.0.0.1:9000/"},
	}
	if diff := cmp.Diff(want, got.Orchestrator.Sinks); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for name, test := range map[string]struct{ text, want string }{
		"unknown":          {`sink "webhok" {}`, `Did you mean "webhook"?`},
		"twice":            {"sink \"log\" {}\nsink \"log\" {}", "Duplicate sink"},
		"one file twice":   {"sink \"file\" { path = \"/a\" }\nsink \"file\" { path = \"/a\" }", "Duplicate sink"},
		"no path":          {`sink "file" {}`, `needs the argument "path"`},
		"no address":       {`sink "webhook" {}`, `needs the argument "url"`},
		"not an address":   {`sink "webhook" { url = "hooks.example/in" }`, "must begin with http://"},
		"no host":          {`sink "webhook" { url = "https:///in" }`, "names no host"},
		"secret":           {"sink \"webhook\" {\n url = \"http://a/\"\n secret = \"hunter2\"\n}", "Secret in the configuration"},
		"other's argument": {`sink "log" { path = "/a" }`, "Unsupported argument"},
	} {
		_, err := config.Load([]string{write(t, "c.hcl", "orchestrator {\n"+test.text+"\n}")}, config.Options{})
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v; want %q", name, err, test.want)
		}
	}
}

// TestDuplicateWebhook: the message does not repeat a URL, which may hold a
// secret.
func TestDuplicateWebhook(t *testing.T) {
	t.Parallel()
	sink := "sink \"webhook\" {\n url = \"https://hooks.example/hunter2\"\n}\n"
	_, err := config.Load([]string{write(t, "c.hcl", "orchestrator {\n"+sink+sink+"}")}, config.Options{})
	if err == nil || !strings.Contains(err.Error(), "The URL is already at") {
		t.Fatalf("got %v", err)
	}
	if message, _, _ := strings.Cut(err.Error(), "\n"); strings.Contains(message, "hunter2") {
		t.Errorf("the message shows the URL: %s", message)
	}
}
