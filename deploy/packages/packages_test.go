//go:build packages

// Package packages_test tests the deb and rpm packages: what they contain, and their
// life in a Debian that systemd booted.
package packages_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestVersionsComeFromTags: a package's version comes from git's tags, and a later commit's
// sorts after an earlier one's.
func TestVersionsComeFromTags(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run(t, "install", "-D", "-m", "0755", "tools/packages", filepath.Join(dir, "tools", "packages"))
	git := func(args ...string) string {
		t.Helper()
		return run(t, append([]string{"git", "-C", dir, "-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)...)
	}
	version := func() string {
		t.Helper()
		return run(t, filepath.Join(dir, "tools", "packages"), "--version")
	}
	commit := func() { git("commit", "-q", "--allow-empty", "-m", "x") }
	git("init", "-q")
	commit()
	versions := []string{version()}
	if !strings.HasPrefix(versions[0], "0.0.0~git") {
		t.Errorf("without a tag: %s", versions[0])
	}
	for _, step := range []struct{ tag, want string }{{"v1.2.3-rc.1", "1.2.3~rc.1"}, {"", "1.2.3~rc.1+1.g"}, {"v1.2.3", "1.2.3"}, {"", "1.2.3+1.g"}, {"v1.2.4", "1.2.4"}} {
		commit()
		if step.tag != "" {
			git("tag", step.tag)
		}
		got := version()
		if got != step.want && (step.tag != "" || !strings.HasPrefix(got, step.want)) {
			t.Errorf("at tag %q: %s, want %s", step.tag, got, step.want)
		}
		run(t, "dpkg", "--compare-versions", versions[len(versions)-1], "lt", got)
		versions = append(versions, got)
	}
}

// TestPackagesAreReproducible compares two builds of one commit.
func TestPackagesAreReproducible(t *testing.T) {
	b := packages(t)
	var sums []string
	for _, dir := range []string{b.new, b.again} {
		text, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		sums = append(sums, string(text))
	}
	if sums[0] != sums[1] {
		t.Errorf("two builds differ:\n%s\n%s", sums[0], sums[1])
	}
	if got, want := strings.Count(sums[0], "\n"), 6; got != want {
		t.Errorf("files = %d, want %d: a deb, an rpm and an SBOM for amd64 and arm64\n%s", got, want, sums[0])
	}
	run(t, "sh", "-c", `cd "$1" && sha256sum --quiet --check SHA256SUMS`, "sh", b.new)
}

// TestPackagesPassLinters runs lintian and rpmlint over the packages of each architecture.
func TestPackagesPassLinters(t *testing.T) {
	b := packages(t)
	for format, linter := range map[string][]string{
		"deb": {"lintian", "--allow-root", "--fail-on", "error"},
		"rpm": {"rpmlint", "--config", "deploy/packages/rpmlint.toml"},
	} {
		found, err := filepath.Glob(filepath.Join(b.new, "*."+format))
		if err != nil || len(found) != 2 {
			t.Fatalf("packages %s: %v, %v; want two", format, found, err)
		}
		t.Log(run(t, append(linter, found...)...))
	}
}

// TestLicense: the packages say under which license they are, and have its text and those of all modules.
func TestLicense(t *testing.T) {
	b := packages(t)
	deb, rpm := native(t, b.new, "deb"), native(t, b.new, "rpm")
	if got, want := run(t, "dpkg-deb", "-f", deb, "License"), "Apache-2.0"; got != want {
		t.Errorf("license of the deb = %s, want %s", got, want)
	}
	if got, want := run(t, "rpm", "-qp", "--nosignature", "--qf", "%{LICENSE}", rpm), "Apache-2.0"; got != want {
		t.Errorf("license of the rpm = %s, want %s", got, want)
	}
	files := run(t, "rpm", "-qp", "--nosignature", "--dump", rpm) // path, size, time, digest, …
	for _, name := range []string{"LICENSE", "NOTICE"} {
		want, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		path := "./usr/share/doc/jorc/" + name
		if got := run(t, "sh", "-c", `dpkg-deb --fsys-tarfile "$1" | tar -xO "$2"`, "sh", deb, path); got != strings.TrimSpace(string(want)) {
			t.Errorf("%s of the deb differs from the repository's", path)
		}
		_, file, _ := strings.Cut(files, path[1:]+" ")
		if fields := strings.Fields(file); len(fields) < 3 || fields[2] != fmt.Sprintf("%x", sha256.Sum256(want)) {
			t.Errorf("%s of the rpm differs from the repository's", path)
		}
	}
}

// TestUpgradeWaitsForJobs installs, configures, upgrades, removes and purges the package.
func TestUpgradeWaitsForJobs(t *testing.T) {
	m, b := newMachine(t), packages(t)

	m.run("dpkg", "-i", "/packages/"+filepath.Base(native(t, b.old, "deb")))
	m.run("systemctl", "start", "jorc")
	if got := m.property("jorc", "ActiveState"); got != "inactive" {
		t.Errorf("without a configuration the agent is %s after a start, want inactive", got)
	}
	if got, _ := m.output("systemctl", "is-enabled", "jorc"); got != "disabled" {
		t.Errorf("after the installation the unit is %s, want disabled", got)
	}

	m.startConsul()
	m.run("cp", "/etc/jorc/jorc.hcl.example", "/etc/jorc/jorc.hcl")
	m.write("/etc/jorc/jobs.hcl", `
trigger "long" {
  key      = "long"
  workflow = "long"
}
workflow "long" {
  task "wait" { script = "until [ -e /run/finish ]; do sleep 0.1; done" }
}
trigger "upgrade" {
  key      = "upgrade"
  workflow = "upgrade"
}
workflow "upgrade" {
  task "dpkg" { command = ["dpkg", "-i", "/packages/`+filepath.Base(native(t, b.old, "deb"))+`"] }
}
`)
	m.run("jorc", "config", "validate", "/etc/jorc")
	m.run("systemctl", "enable", "--now", "jorc")
	m.run("jorc", "wait", "web", "--for", "addressable", "--timeout", "0s")
	m.run("systemctl", "reload", "jorc")
	m.eventually("the example's template is rendered", nonEmpty, "cat", "/etc/hosts.consul")
	registered := m.registration("web")

	// The journal, systemctl and the package say what the agent does.
	m.eventually("systemctl status shows the agent's", contains(`Status: "ready; `), "systemctl", "status", "--no-pager", "jorc")
	if got, want := m.run("jorc", "version", "-o", "json"), `"version": "0.0.0~a"`; !strings.Contains(got, want) {
		t.Errorf("jorc version = %s, want %s as the package", got, want)
	}
	if got := m.run("journalctl", "--no-pager", "-q", "-u", "jorc", "-p", "err", "-o", "cat"); got != "" {
		t.Errorf("errors in the journal before any: %s", got)
	}
	m.write("/etc/jorc/broken.hcl", "nonsense")
	m.run("systemctl", "reload", "jorc")
	m.eventually("the error is one of the journal", contains("[ERROR] jorc: the new configuration is invalid"),
		"journalctl", "--no-pager", "-q", "-u", "jorc", "-p", "err", "-o", "cat")
	for line := range strings.Lines(m.run("journalctl", "--no-pager", "-q", "-o", "cat", "_SYSTEMD_UNIT=jorc.service")) {
		if line[0] >= '0' && line[0] <= '9' || line[0] == '<' {
			t.Errorf("line of the journal %q, want one without a time stamp and priority", line)
		}
	}
	m.run("rm", "/etc/jorc/broken.hcl")
	m.run("systemctl", "reload", "jorc")

	// An upgrade while a job runs.
	m.run("consul", "kv", "put", "long", "1")
	m.eventually("the job runs", contains(`"running"`), "jorc", "workflow", "jobs", "-o", "json")
	before := m.property("jorc", "MainPID")
	m.run("dpkg", "-i", "/packages/"+filepath.Base(native(t, b.new, "deb")))
	if got := m.property("jorc-restart", "ActiveState"); got != "activating" {
		t.Errorf("jorc-restart is %s while a job runs, want activating", got)
	}
	if got := m.property("jorc", "MainPID"); got != before {
		t.Errorf("the upgrade restarted the agent while a job runs")
	}
	m.run("touch", "/run/finish")
	restarted := m.restarted(before)
	m.eventually("the job succeeds", func(out string) bool {
		return strings.Contains(out, `"success"`) && !strings.Contains(out, `"interrupted"`)
	}, "jorc", "workflow", "jobs", "-o", "json")
	if got := m.registration("web"); got != registered {
		t.Errorf("the service's registration after the upgrade = %s, want %s", got, registered)
	}

	// An upgrade by a job of the agent itself (here to the older version).
	m.run("consul", "kv", "put", "upgrade", "1")
	restarted = m.restarted(restarted)
	m.eventually("the job that upgrades jorc succeeds", func(out string) bool {
		return strings.Count(out, `"open": false`) == 2 && !strings.Contains(out, `"interrupted"`) && !strings.Contains(out, `"failed"`)
	}, "jorc", "workflow", "jobs", "-o", "json")
	if got := m.run("dpkg-query", "-W", "-f", "${Version} ${Status}", "jorc"); got != "0.0.0~a-1 install ok installed" {
		t.Errorf("after the job, the package is %s", got)
	}

	m.run("dpkg", "-r", "jorc")
	if got := m.property("jorc", "ActiveState"); got != "inactive" {
		t.Errorf("after the removal, the agent is %s", got)
	}
	if m.exists("/proc/" + restarted) {
		t.Errorf("after the removal, the agent's process exists")
	}
	if got := m.registration("web"); got != registered {
		t.Errorf("the service's registration after the removal = %s, want %s", got, registered)
	}
	m.present(map[string]bool{
		"/usr/bin/jorc": false, "/usr/lib/systemd/system/jorc.service": false,
		"/etc/systemd/system/multi-user.target.wants/jorc.service": false,
		"/var/lib/jorc": true, "/etc/default/jorc": true, "/etc/jorc/jorc.hcl.example": true, "/etc/jorc/jorc.hcl": true,
	})
	m.run("dpkg", "-P", "jorc")
	m.present(map[string]bool{"/var/lib/jorc": false, "/etc/default/jorc": false, "/etc/jorc/jorc.hcl.example": false, "/etc/jorc/jorc.hcl": true})
	if got, err := m.output("dpkg-query", "-W", "jorc"); err == nil {
		t.Errorf("after the purge, dpkg knows %s", got)
	}
}

// TestUnits checks the units and what the agent does under each drop-in.
func TestUnits(t *testing.T) {
	m, b := newMachine(t), packages(t)
	m.run("dpkg", "-i", "/packages/"+filepath.Base(native(t, b.new, "deb")))
	for _, unit := range []string{"jorc.service", "jorc-restart.service"} {
		if got := m.run("systemd-analyze", "verify", "--man=no", unit); got != "" {
			t.Errorf("systemd-analyze verify %s: %s", unit, got)
		}
	}
	m.startConsul()

	t.Run("README", func(t *testing.T) {
		m := m.in(t)
		data, err := os.ReadFile("../../README.md")
		if err != nil {
			t.Fatal(err)
		}
		block := func(kind string) string {
			_, rest, found := strings.Cut(string(data), "<!-- tested: "+kind+" -->\n```")
			_, rest, _ = strings.Cut(rest, "\n")
			text, _, _ := strings.Cut(rest, "```\n")
			if !found || text == "" {
				t.Fatalf("README.md has no block %s", kind)
			}
			return text
		}
		m.write("/etc/nginx/sites-enabled/default", "server { listen 127.0.0.1:8080; }\n")
		m.run("systemctl", "start", "nginx")
		m.run("mkdir", "-p", "/etc/jorc/templates")
		m.write("/etc/jorc/web.hcl", block("config"))
		m.write("/etc/jorc/templates/upstreams.ctmpl", block("template"))
		m.run("jorc", "config", "validate", "/etc/jorc")
		m.run("jorc", "doctor")
		m.run("systemctl", "enable", "--now", "jorc")
		m.run("jorc", "wait", "web=1", "--passing", "--timeout", "0s")
		m.eventually("the file is rendered", contains("server 127.0.0.1:9;"), "cat", "/etc/nginx/conf.d/upstreams.conf")
		m.run("nginx", "-t")
		m.run("systemctl", "disable", "--now", "jorc")
		m.run("rm", "/etc/jorc/web.hcl", "/etc/nginx/conf.d/upstreams.conf")
	})

	t.Run("full", func(t *testing.T) { m.in(t).fullUnit() })

	t.Run("migration", func(t *testing.T) { m.in(t).migration() })

	t.Run("render-only", func(t *testing.T) {
		m := m.in(t)
		m.restrict("render-only")
		m.write("/etc/nginx/sites-enabled/default", "")
		m.write("/etc/jorc/nginx.ctmpl", `server { listen 127.0.0.1:8081; location / { return 200 "{{ keyOrDefault "page" "none" }}"; } }`)
		m.write("/etc/jorc/jorc.hcl", `
service "web" { port = 8081 }
template "page" {
  source      = "/etc/jorc/nginx.ctmpl"
  destination = "/etc/nginx/conf.d/page.conf"
  reload      = ["systemctl", "reload-or-restart", "nginx"]
}
`)
		m.run("systemctl", "start", "nginx")
		m.run("systemctl", "start", "jorc")
		m.run("jorc", "wait", "web", "--for", "addressable", "--timeout", "0s")
		m.run("consul", "kv", "put", "page", "second")
		m.serves("8081", "second")
		m.run("chown", "www-data", "/etc/nginx/conf.d/page.conf")
		m.run("consul", "kv", "put", "page", "third")
		m.serves("8081", "third")
		if got, want := m.run("stat", "-c", "%U %a", "/etc/nginx/conf.d/page.conf"), "www-data 644"; got != want {
			t.Errorf("owner and mode = %s, want %s", got, want)
		}
		m.run("systemctl", "reload", "jorc")
		m.run("systemctl", "stop", "jorc")
	})

	t.Run("orchestrator-only", func(t *testing.T) {
		m := m.in(t)
		m.restrict("orchestrator-only")
		m.write("/etc/jorc/jorc.hcl", `
member { roles = ["web"] }
orchestrator {}
static { workflow = "converge" }
workflow "converge" {
  task "apply" { command = ["true"] }
}
`)
		m.run("systemctl", "start", "jorc")
		if got, want := m.run("stat", "-c", "%U", "/var/lib/jorc", "/proc/"+m.property("jorc", "MainPID")), "jorc\njorc"; got != want {
			t.Errorf("owners of the state directory and the process = %q, want %q", got, want)
		}
		m.run("jorc", "cluster", "init", "default")
		m.run("jorc", "cluster", "wait", "--for", "members=1", "--timeout", "0s")
		m.run("jorc", "update", "trigger", "v1", "--max-parallel", "1")
		m.run("jorc", "update", "wait", "--timeout", "0s")
		m.run("systemctl", "stop", "jorc")
	})
}

// TestRPM installs, upgrades and removes the rpm.
func TestRPM(t *testing.T) {
	root, b := newRoot(t), packages(t)
	rpm := func(args ...string) string {
		t.Helper()
		return run(t, append([]string{"rpm", "--root", root}, args...)...)
	}
	query := func(format string) string {
		t.Helper()
		return run(t, "rpm", "--root", root, "-q", "--qf", format, "jorc")
	}
	rpm("-i", "--nodeps", native(t, b.old, "rpm"))
	if got, want := query("%{VERSION}-%{RELEASE}"), "0.0.0~a-1"; got != want {
		t.Errorf("version = %s, want %s", got, want)
	}
	m := &machine{t: t, root: root}
	m.write("/etc/default/jorc", "JORC_CLUSTER=prod\n")
	m.write("/etc/jorc/jorc.hcl", "")
	rpm("-U", "--nodeps", native(t, b.new, "rpm"))
	if got := query("%{VERSION}"); got == "0.0.0~a" || strings.Contains(got, "\n") {
		t.Errorf("after the upgrade, the version is %s", got)
	}
	if got, want := run(t, "chroot", root, "jorc", "version", "-o", "json"), `"version": "`+query("%{VERSION}")+`"`; !strings.Contains(got, want) {
		t.Errorf("jorc version = %s, want %s as the package", got, want)
	}
	if got, want := run(t, "chroot", root, "jorc", "config", "validate", "/etc/jorc/jorc.hcl.example"), "valid"; !strings.Contains(got, want) {
		t.Errorf("jorc config validate = %s, want %s", got, want)
	}
	if text, err := os.ReadFile(filepath.Join(root, "etc/default/jorc")); err != nil || string(text) != "JORC_CLUSTER=prod\n" {
		t.Errorf("the administrator's file after the upgrade = %q, %v", text, err)
	}
	if out, err := exec.Command("rpm", "--root", root, "--nodeps", "-V", "jorc").CombinedOutput(); err == nil || !onlyChanged(string(out), "/etc/default/jorc") {
		t.Errorf("rpm -V = %s, want only /etc/default/jorc", out)
	}
	rpm("-e", "jorc")
	m.present(map[string]bool{"/usr/bin/jorc": false, "/usr/share/jorc": false, "/etc/jorc/jorc.hcl": true})
}

// onlyChanged reports whether path is the only file in what rpm -V prints.
func onlyChanged(out, path string) bool {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return len(lines) == 1 && strings.HasSuffix(lines[0], " "+path)
}

func nonEmpty(out string) bool { return out != "" }

func contains(part string) func(string) bool {
	return func(out string) bool { return strings.Contains(out, part) }
}

// newMachine boots a Debian with this machine's packages in /packages and a Consul.
func newMachine(t *testing.T) *machine {
	t.Helper()
	return boot(t, prepared(t, newRoot(t)))
}

// prepared is a root with Consul and jorc's packages in it.
func prepared(t *testing.T, root string) string {
	t.Helper()
	b := packages(t)
	consul := os.Getenv("CONSUL_BIN")
	if consul == "" {
		t.Fatal("CONSUL_BIN is not set; run make test-packages")
	}
	run(t, "install", "-D", "-m", "0755", consul, filepath.Join(root, "usr/local/bin/consul"))
	// The consul command asks localhost, which a minimal Debian does not know.
	if err := os.WriteFile(filepath.Join(root, "etc/hosts"), []byte("127.0.0.1 localhost\n::1 localhost\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{b.old, b.new} {
		run(t, "install", "-D", "-m", "0644", "-t", filepath.Join(root, "packages"), native(t, dir, "deb"))
	}
	return root
}

// in is the machine for a subtest.
func (m *machine) in(t *testing.T) *machine {
	return &machine{t: t, root: m.root, leader: m.leader}
}

func (m *machine) startConsul() {
	m.t.Helper()
	m.run("systemd-run", "--quiet", "--unit=consul", "consul", "agent", "-dev", "-node=host")
	m.eventually("Consul has a leader", nonEmpty, "consul", "operator", "raft", "list-peers")
	m.eventually("Consul stores keys", nonEmpty, "consul", "kv", "put", "ready", "1")
}

// registration returns the instance of a service with its indexes in Consul.
func (m *machine) registration(service string) string {
	m.t.Helper()
	answer, err := m.get("8500", "/v1/catalog/service/"+service)
	_, body, found := strings.Cut(answer, "\r\n\r\n")
	if err != nil || !found || !strings.Contains(body, service) {
		m.t.Fatalf("service %s in Consul's catalog: %v: %s", service, err, answer)
	}
	return body
}

// restarted waits until the agent is another process, and returns it.
func (m *machine) restarted(before string) string {
	m.t.Helper()
	m.eventually("the agent restarts", func(pid string) bool { return pid != before && pid != "0" }, "systemctl", "show", "--value", "-p", "MainPID", "jorc")
	m.eventually("the agent is ready", contains("active"), "systemctl", "is-active", "jorc")
	return m.property("jorc", "MainPID")
}

// restrict makes a drop-in of the package the only one, and checks its exposure.
func (m *machine) restrict(dropIn string) {
	m.t.Helper()
	m.run("rm", "-rf", "/etc/systemd/system/jorc.service.d")
	m.run("install", "-D", "-m", "0644", "-t", "/etc/systemd/system/jorc.service.d", "/usr/share/jorc/jorc.service.d/"+dropIn+".conf")
	m.run("systemctl", "daemon-reload")
	if got := m.run("systemd-analyze", "verify", "--man=no", "jorc.service"); got != "" {
		m.t.Errorf("systemd-analyze verify with %s: %s", dropIn, got)
	}
	m.run("systemd-analyze", "security", "--no-pager", "--offline=true", "--threshold=20", "jorc.service")
}

// serves waits until nginx answers with text.
func (m *machine) serves(port, text string) {
	m.t.Helper()
	m.eventually("nginx serves "+text, func(out string) bool { return strings.HasSuffix(out, "\n"+text) },
		"bash", "-c", `exec 3<>"/dev/tcp/127.0.0.1/$1" && printf 'GET / HTTP/1.0\r\n\r\n' >&3 && cat <&3`, "bash", port)
}

// present checks which files exist.
func (m *machine) present(want map[string]bool) {
	m.t.Helper()
	for path, want := range want {
		if got := m.exists(path); got != want {
			m.t.Errorf("%s exists: %t, want %t", path, got, want)
		}
	}
}
