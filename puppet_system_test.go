//go:build system

package jorc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

const puppetModule = "deploy/puppet/jorc"

// What puppet apply --detailed-exitcodes says.
const (
	puppetSame     = 0
	puppetError    = 1 // no catalog
	puppetChanged  = 2
	puppetFailed   = 4
	puppetChangedF = 6 // changed something, failed at something else
)

// puppetHost is a host with Consul, jorc and Puppet, and no other agents.
type puppetHost struct {
	t      *testing.T
	dir    string
	jorc   string
	server *consultest.Server
}

func newPuppetHost(t *testing.T) *puppetHost {
	t.Helper()
	if _, err := exec.LookPath("puppet"); err != nil {
		t.Fatal("no puppet program: apt-get install --no-install-recommends puppet-agent")
	}
	h := &puppetHost{t: t, dir: t.TempDir(), jorc: filepath.Join(buildJorc(t), "jorc"), server: consultest.Start(t)}
	h.write("hiera.yaml", "version: 5\n")
	return h
}

func (h *puppetHost) path(name string) string { return filepath.Join(h.dir, name) }

func (h *puppetHost) write(name, text string) string {
	h.t.Helper()
	if err := os.WriteFile(h.path(name), []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
	return h.path(name)
}

func (h *puppetHost) read(name string) string {
	h.t.Helper()
	data, err := os.ReadFile(h.path(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		h.t.Fatal(err)
	}
	return string(data)
}

// class is the manifest's beginning: where things are on this host.
func (h *puppetHost) class() string {
	return fmt.Sprintf("class { 'jorc': command => '%s', http_addr => '%s', dns_addr => '%s', state_dir => '%s', services_dir => '%s' }\n",
		h.jorc, h.server.HTTPAddr, h.server.DNSAddr, h.path("state"), h.path("services"))
}

// puppet is a command of Puppet that keeps all its state below the host's directory.
func (h *puppetHost) puppet(command string, args ...string) *exec.Cmd {
	h.t.Helper()
	modules, err := filepath.Abs(filepath.Dir(puppetModule))
	if err != nil {
		h.t.Fatal(err)
	}
	all := strings.Fields(command)
	for _, name := range []string{"conf", "var", "run", "log", "public"} {
		all = append(all, "--"+name+"dir="+h.path("puppet-"+name))
	}
	all = append(all, "--modulepath="+modules, "--hiera_config="+h.path("hiera.yaml"), "--color=false")
	cmd := exec.CommandContext(h.t.Context(), "puppet", append(all, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + h.dir, "LANG=C.UTF-8", consultest.NoConfig}
	return cmd
}

// apply applies a manifest and returns what Puppet said.
func (h *puppetHost) apply(want int, manifest string, args ...string) string {
	h.t.Helper()
	out, err := h.puppet("apply --detailed-exitcodes", append(args, "-e", manifest)...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		h.t.Fatal(err)
	}
	got := 0
	if exit != nil {
		got = exit.ExitCode()
	}
	if got != want {
		h.t.Fatalf("puppet apply: exit %d, want %d\n%s\n%s", got, want, manifest, out)
	}
	return string(out)
}

func (h *puppetHost) register(s *consul.ServiceRegistration) {
	h.t.Helper()
	if err := h.server.Client().RegisterService(h.t.Context(), s); err != nil {
		h.t.Fatal(err)
	}
}

func (h *puppetHost) has(text string, parts ...string) {
	h.t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			h.t.Errorf("want %q in %q", part, text)
		}
	}
}

// output is what a running command has said.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// TestPuppetModule: the manifests are valid, and each parameter is documented.
func TestPuppetModule(t *testing.T) {
	t.Parallel()
	h := newPuppetHost(t)
	manifests, err := filepath.Glob(puppetModule + "/manifests/*.pp")
	if err != nil || len(manifests) < 4 {
		t.Fatalf("manifests: %v, %v", manifests, err)
	}
	if out, err := h.puppet("parser validate", manifests...).CombinedOutput(); err != nil {
		t.Errorf("puppet parser validate: %v\n%s", err, out)
	}
	parameter := regexp.MustCompile(`(?m)^  [A-Z].*? \$(\w+) *(=|,$)`)
	for _, file := range manifests {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		h.has(string(data), "# @summary ")
		for _, m := range parameter.FindAllStringSubmatch(string(data), -1) {
			h.has(string(data), "# @param "+m[1]+"\n#   ")
		}
	}
}

// TestPuppetBlocker: a catalog stops at the blocker until the service is there.
func TestPuppetBlocker(t *testing.T) {
	t.Parallel()
	h := newPuppetHost(t)
	manifest := h.class() + `
jorc::service_blocker { 'db': tries => 1000, try_sleep => 0.1 }
-> file { '` + h.path("after") + `': content => 'x' }
`
	var said output
	cmd := h.puppet("apply --detailed-exitcodes --debug", "-e", manifest)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	consultest.Eventually(t, "the blocker", func(context.Context) error {
		if !strings.Contains(said.String(), "--tries=1000 --try-sleep=0.1s --timeout=10100s db'") {
			return errors.New("it does not wait yet: " + said.String())
		}
		return nil
	})
	if h.read("after") != "" {
		t.Error("the file was there before the service")
	}
	h.register(&consul.ServiceRegistration{Name: "db", Port: 1, Address: "10.0.0.1"})
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != puppetChanged {
		t.Fatalf("puppet apply: got %v, want exit 2\n%s", err, said.String())
	}
	waited := strings.Index(said.String(), "executed successfully")
	if wrote := strings.Index(said.String(), "defined content as"); waited < 0 || wrote < waited || h.read("after") != "x" {
		t.Errorf("the file was not written after the wait: %s", said.String())
	}
	h.apply(puppetSame, manifest)
}

// TestPuppetBlockerGivesUp: what needs a service that does not come is not
// applied, everything else is.
func TestPuppetBlockerGivesUp(t *testing.T) {
	t.Parallel()
	h := newPuppetHost(t)
	h.register(&consul.ServiceRegistration{Name: "db", Port: 1, Address: "10.0.0.1"})
	h.register(&consul.ServiceRegistration{Name: "sick", Port: 1, Checks: []*consul.ServiceCheck{{Name: "x", TTL: "1h", Status: "critical"}}})
	said := h.apply(puppetChangedF, h.class()+`
jorc::service_blocker { 'mq': tries => 2, try_sleep => 0 }
-> file { '`+h.path("after")+`': content => 'x' }
file { '`+h.path("beside")+`': content => 'x' }
`)
	h.has(said, "mq: 0 of 1: none registered", "Skipping because of failed dependencies")
	if h.read("after") != "" || h.read("beside") != "x" {
		t.Errorf("after: %q, beside: %q", h.read("after"), h.read("beside"))
	}

	for parameters, want := range map[string]int{
		"target => 'db', count => 1":                                                 puppetSame,
		"target => 'db', count => 2, tries => 1":                                     puppetFailed,
		"target => 'sick', tries => 1":                                               puppetFailed,
		"target => 'sick', for => 'addressable'":                                     puppetSame,
		"target => 'sick', for => 'addressable', extra => ['--passing'], tries => 1": puppetFailed,
		"target => 'mq', timeout => 1":                                               puppetFailed,
		"target => 'db=2', count => 2":                                               puppetError,
		"target => '--help'":                                                         puppetError,
		"target => '$(touch${IFS}" + h.path("shell") + ")', tries => 1":              puppetFailed,
		"target => ';touch\t" + h.path("shell") + "'":                                puppetError,
	} {
		h.apply(want, h.class()+"jorc::service_blocker { 'x': "+parameters+" }")
	}
	if _, err := os.Stat(h.path("shell")); !errors.Is(err, os.ErrNotExist) {
		t.Error("a shell has read an argument")
	}
}

// service is the definition of an instance at the agent, "" for none.
func (h *puppetHost) service(id string) string {
	h.t.Helper()
	found, err := h.server.Client().AgentServices(h.t.Context(), "")
	if err != nil {
		h.t.Fatal(err)
	}
	s := found[id]
	if s == nil {
		return ""
	}
	return fmt.Sprintf("%s %s:%d %v %s", s.Service, s.Address, s.Port, s.Tags, s.TaggedAddresses["eth0"].Address)
}

func TestPuppetService(t *testing.T) {
	t.Parallel()
	h := newPuppetHost(t)
	web := func(port int) string {
		return h.class() + fmt.Sprintf(`
jorc::service { 'web':
  id => 'web/1', port => %d, address => '10.0.0.5', tags => ['http', "quote'\"s"], tagged_addresses => { 'eth0' => '10.0.0.6' },
  meta => { 'b' => '2', 'a' => '1' }, checks => [{ 'tcp' => '127.0.0.1:1', 'interval' => '1h' }], extra => { 'enable_tag_override' => true },
}`, port)
	}
	h.apply(puppetSame, web(80), "--noop")
	if got := h.service("web/1"); got != "" {
		t.Errorf("registered with --noop: %s", got)
	}
	// Consul is not there: the next run makes up for it.
	down := strings.Replace(web(80), h.server.HTTPAddr, "127.0.0.1:1", 1)
	h.apply(puppetChangedF, down)
	h.apply(puppetFailed, down)
	h.apply(puppetChanged, web(80))
	if got, want := h.service("web/1"), `web 10.0.0.5:80 [http quote'"s] 10.0.0.6`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	h.apply(puppetSame, web(80))
	h.apply(puppetChanged, web(81))
	h.has(h.service("web/1"), "10.0.0.5:81")
	h.apply(puppetSame, web(81))

	gone := h.class() + "jorc::service { 'web': ensure => absent, id => 'web/1' }"
	h.apply(puppetFailed, strings.Replace(gone, h.server.HTTPAddr, "127.0.0.1:1", 1))
	h.apply(puppetChanged, gone)
	if got := h.service("web/1"); got != "" {
		t.Errorf("still there: %s", got)
	}
	h.apply(puppetSame, gone)
}

// TestPuppetHiera: services are looked up, once per catalog, and trouble with
// that is never taken for "no service".
func TestPuppetHiera(t *testing.T) {
	t.Parallel()
	h := newPuppetHost(t)
	for i, address := range []string{"10.0.0.2", "10.0.0.1"} {
		h.register(&consul.ServiceRegistration{ID: fmt.Sprint("a::b", i), Name: "a::b", Address: address})
	}
	counting := h.write("jorc", fmt.Sprintf("#!/bin/sh\necho x >>'%s'\nexec '%s' \"$@\"\n", h.path("calls"), h.jorc))
	if err := os.Chmod(counting, 0o700); err != nil {
		t.Fatal(err)
	}
	level := "version: 5\nhierarchy:\n  - name: services\n    lookup_key: jorc::service_lookup\n    "
	asking := func(addr string) {
		h.write("hiera.yaml", level+fmt.Sprintf("options: {command: '%s', arguments: ['--http-addr=%s']}\n", counting, addr))
	}
	asking(h.server.HTTPAddr)
	says := func(code int, expression string, want ...string) {
		h.t.Helper()
		h.has(h.apply(code, "notice(String("+expression+", '%p'))"), want...)
	}
	says(puppetSame, "[lookup('services::a::b::lan'), lookup('service::a::b::lan'), lookup('services::none::lan', default_value => 'none')]",
		"[['10.0.0.1', '10.0.0.2'], '10.0.0.1', 'none']")
	if got := h.read("calls"); got != "x\n" {
		t.Errorf("jorc was asked %d times", strings.Count(got, "x"))
	}
	says(puppetSame, "['services::none::lan', 'service::none::lan', 'services::lan', 'other'].map |$key| { lookup($key, default_value => 'none') }",
		"['none', 'none', 'none', 'none']")
	says(puppetError, "lookup('services::none::lan')", "did not find a value for the name 'services::none::lan'")
	out, err := h.puppet("lookup --render-as json", "services::a::b::lan").Output()
	if err != nil || strings.TrimSpace(string(out)) != `["10.0.0.1","10.0.0.2"]` {
		t.Errorf("puppet lookup: %s, %v", out, err)
	}
	h.register(&consul.ServiceRegistration{ID: "warning", Name: "a::b", Address: "10.0.0.3", Check: &consul.ServiceCheck{TTL: "1h", Status: "warning"}})
	h.register(&consul.ServiceRegistration{ID: "critical", Name: "a::b", Address: "10.0.0.4", Check: &consul.ServiceCheck{TTL: "1h", Status: "critical"}})
	says(puppetSame, "lookup('services::a::b::lan')", "['10.0.0.1', '10.0.0.2', '10.0.0.3']")
	h.write("hiera.yaml", level+fmt.Sprintf("options: {command: '%s', arguments: ['--http-addr=%s'], for: addressable}\n", counting, h.server.HTTPAddr))
	says(puppetSame, "lookup('services::a::b::lan')", "['10.0.0.1', '10.0.0.2', '10.0.0.3', '10.0.0.4']")
	asking("127.0.0.1:1")
	says(puppetError, "lookup('services::a::b::lan', default_value => 'none')", "service export --format=hiera: jorc: ", "connection refused")
	h.write("hiera.yaml", level+"options: {command: /no/jorc}\n")
	says(puppetError, "lookup('services::a::b::lan')", "/no/jorc cannot be run")

	h.write("hiera.yaml", level+"datadir: '"+h.dir+"'\n    path: services.yaml\n")
	says(puppetSame, "lookup('services::web::lan', default_value => 'none')", "'none'")
	for text, want := range map[string]string{
		"services::web::lan: [10.0.0.9]": "'10.0.0.9'",
		"services::web::lan: []":         "did not find a value",
		"services::web::lan: 10.0.0.9":   "services::web::lan in " + h.path("services.yaml") + " must be a list of addresses, but is ",
		"services::web::lan: [1]":        "must be a list of addresses",
		"services::web::lan:":            "must be a list of addresses",
		"[a]":                            "must be a mapping of services",
		"a: [":                           "is not YAML",
	} {
		h.write("services.yaml", text)
		code := puppetError
		if strings.HasPrefix(want, "'") {
			code = puppetSame
		}
		says(code, "lookup('service::web::lan')", want)
	}
}

// TestPuppetReason: a task that runs Puppet fails with Puppet's error, not with the
// last line of its output.
func TestPuppetReason(t *testing.T) {
	t.Parallel()
	h := newPuppetHost(t)
	bad := "exec { 'bad': command => '/bin/false' } notify { 'after': require => Exec['bad'] }"
	manifests := map[int]string{puppetFailed: bad, puppetChangedF: bad + " notify { 'other': }"}
	for code, manifest := range manifests {
		args := h.puppet("apply --detailed-exitcodes --color=ansi", "-e", manifest).Args
		config, err := json.Marshal(map[string]any{"state_dir": h.path(fmt.Sprint("state", code)), "workflow": map[string]any{
			"converge": map[string]any{"task": map[string]any{"puppet": map[string]any{"command": args, "ok_exit_codes": []int{0, 2}}}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), h.jorc, "--config="+h.write(fmt.Sprint(code, ".json"), string(config)),
			"--http-addr="+h.server.HTTPAddr, "workflow", "run", "converge")
		cmd.Env = h.puppet("").Env
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Errorf("exit code %d: the job succeeded", code)
		}
		h.has(string(out), fmt.Sprintf("exit code %d: Error: /Stage[main]/Main/Exec[bad]/returns: change from 'notrun' to ['0'] failed: ", code))
	}
}

// TestPuppetDocument applies what the document shows, on this host's paths.
func TestPuppetDocument(t *testing.T) {
	t.Parallel()
	h := newPuppetHost(t)
	h.register(&consul.ServiceRegistration{Name: "mysql", Port: 3306, Address: "10.0.0.1"})
	here := strings.NewReplacer("/usr/bin/jorc", h.jorc, "127.0.0.1:8500", h.server.HTTPAddr, "127.0.0.1:8600", h.server.DNSAddr,
		"/etc/app", h.dir, "class { 'jorc':\n", "class { 'jorc':\n  state_dir => '"+h.path("state")+"', services_dir => '"+h.path("services")+"',\n")
	manifest := ""
	for _, b := range blocks(t, "docs/puppet.md") {
		switch b.kind {
		case "manifest":
			manifest += here.Replace(b.text)
		case "hiera":
			h.write("hiera.yaml", here.Replace(b.text)+"defaults: {datadir: '"+h.dir+"', data_hash: yaml_data}\n")
		case "data":
			h.write("common.yaml", b.text)
		default:
			t.Errorf("nobody tests %s", b.kind)
		}
	}
	h.apply(puppetChanged, manifest)
	h.has(h.service("web"), "web :8080 [http] 10.0.0.5")
	h.apply(puppetSame, manifest)
	if got := h.read("database.conf"); got != "10.0.0.1" {
		t.Errorf("database.conf: %q", got)
	}
	h.register(&consul.ServiceRegistration{Name: "web", ID: "pool", Port: 80, TaggedAddresses: map[string]consul.ServiceAddress{"eth0": {Address: "10.0.0.7", Port: 80}}})
	h.has(h.apply(puppetSame, "notice(String([lookup('app::database'), lookup('app::pool')], '%p'))"), "['10.0.0.1', ['10.0.0.7']]")
}
