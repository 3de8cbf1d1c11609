//go:build packages

package packages_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// TestPatchAndReboot runs the recipe for apt on a booted Debian: the upgrade asks for a reboot, jorc reboots the host, the
// same run ends after that, and the host is in service again. A workflow that may not reboot fails.
func TestPatchAndReboot(t *testing.T) {
	m := newMachine(t)
	m.recipe("patch-apt.hcl", `
workflow "may not" {
  disturbs = true
  task "reboot" { script = "exit 194" }
}
`)
	m.repository()
	before := m.bootID()
	m.run("jorc", "cluster", "run", "may not", "--id", "refused")
	if why := m.ends("refused", "failed"); !strings.Contains(why, "this workflow may not reboot the host") {
		t.Errorf("it failed because of %q", why)
	}
	if m.bootID() != before {
		t.Fatal("the host was rebooted by a workflow that may not")
	}
	m.run("jorc", "cluster", "run", "patch", "--id", "patch")
	m = m.rebooted()
	m.ends("patch", "done")
	m.backInService(before)
	if got, want := m.run("dpkg-query", "-W", "-f", "${Version} ${Status}", "demo"), "2 install ok installed"; got != want {
		t.Errorf("the package = %s, want %s", got, want)
	}
	for _, text := range []string{"the host was rebooted", "a reboot is needed: packages ask for it: demo"} {
		if out := m.run("jorc", "workflow", "jobs", "-o", "json"); !strings.Contains(out, text) {
			t.Errorf("the job's history lacks %q: %s", text, out)
		}
	}
}

// TestPatchWithDNF runs the recipe for dnf on a booted Debian that has dnf: the upgrade of a package that asks for a reboot
// reboots the host, the one of another does not.
func TestPatchWithDNF(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	run(t, "mmdebstrap", "--quiet", "--variant=minbase", "--include=systemd,systemd-sysv,dbus,procps,dnf,dnf-plugins-core,rpm", "bookworm", root)
	m := boot(t, prepared(t, root))
	m.rpmRepository("demo", "1")
	m.rpmRepository("linux-firmware", "1") // one of those for which dnf asks for a reboot
	m.write("/etc/dnf/dnf.conf", "[main]\ngpgcheck=0\n")
	m.write("/etc/yum.repos.d/local.repo", "[local]\nname=local\nbaseurl=file:///rpm\ngpgcheck=0\n")
	m.run("dnf", "-q", "-y", "install", "demo", "linux-firmware")
	m.recipe("patch-dnf.hcl", "")

	before := m.bootID()
	m.rpmRepository("linux-firmware", "2")
	m.run("jorc", "cluster", "run", "patch", "--id", "patch")
	m = m.rebooted()
	m.ends("patch", "done")
	m.backInService(before)
	if got, want := m.run("rpm", "-q", "--qf", "%{VERSION}", "linux-firmware"), "2"; got != want {
		t.Errorf("the package = %s, want %s", got, want)
	}

	before = m.bootID()
	m.rpmRepository("demo", "2")
	m.run("jorc", "cluster", "run", "patch", "--id", "again")
	m.ends("again", "done")
	if got, want := m.run("rpm", "-q", "--qf", "%{VERSION}", "demo"), "2"; got != want || m.bootID() != before {
		t.Errorf("the package = %s, want %s and no reboot", got, want)
	}
}

// TestRebootIfRequired runs the recipe on a booted Debian: a rule reboots the host that asks for it, and restarts a service
// with the recipe for that.
func TestRebootIfRequired(t *testing.T) {
	m := newMachine(t)
	restart, err := os.ReadFile("../recipes/restart.hcl")
	if err != nil {
		t.Fatal(err)
	}
	m.recipe("reboot-if-required.hcl", string(restart))
	m.run("systemctl", "start", "nginx")
	pid := m.property("nginx", "MainPID")
	m.run("jorc", "cluster", "run", "restart", "--param", "service=nginx", "--id", "nginx")
	m.ends("nginx", "done")
	if now := m.property("nginx", "MainPID"); now == pid || now == "0" {
		t.Errorf("nginx has the process %s, before the restart it was %s", now, pid)
	}
	m.run("jorc", "cluster", "run", "restart", "--param", "service=--version", "--id", "option")
	m.ends("option", "failed")

	before := m.bootID()
	m.run("jorc", "workflow", "run", "reboot-required")
	if got := m.run("jorc", "status", "list", "-o", "plain"); !strings.Contains(got, "reboot\tsuccess") {
		t.Errorf("before anything asks for a reboot the status is %s", got)
	}
	m.run("sh", "-c", "echo demo >/run/reboot-required.pkgs && touch /run/reboot-required")
	m.run("jorc", "workflow", "run", "reboot-required")
	// The rule of the recipe, each minute instead of each night.
	m.run("jorc", "cluster", "profile", "set", "cluster/rules", `[{"name": "reboots", "workflow": "reboot", "schedule": "* * * * *",
		"filter": "Status.reboot == \"pending\"", "max_parallel": "1", "min_healthy": "1s"}]`)
	m = m.rebooted()
	m.eventually("the status says that no reboot is required", contains("reboot\tsuccess"), "jorc", "status", "list", "-o", "plain")
	m.backInService(before)
}

// recipe begins a cluster of this machine alone, with a recipe and more configuration.
func (m *machine) recipe(name, more string) {
	m.t.Helper()
	b := packages(m.t)
	m.write("/etc/systemd/system/consul.service", "[Service]\nExecStart=/usr/local/bin/consul agent -server -bootstrap-expect=1 -data-dir=/var/lib/consul -bind=127.0.0.1 -node=host\n[Install]\nWantedBy=multi-user.target\n")
	m.run("systemctl", "enable", "--now", "consul")
	m.eventually("Consul stores keys", nonEmpty, "consul", "kv", "put", "ready", "1")
	m.run("dpkg", "-i", "/packages/"+filepath.Base(native(m.t, b.new, "deb")))
	recipe, err := os.ReadFile("../recipes/" + name)
	if err != nil {
		m.t.Fatal(err)
	}
	m.write("/etc/jorc/recipe.hcl", string(recipe))
	m.write("/etc/jorc/jorc.hcl", `
member {}
orchestrator {
  enabled  = true
  interval = "1s"
}
`+more)
	m.run("jorc", "config", "validate", "/etc/jorc")
	m.run("jorc", "cluster", "init", "default")
	m.run("systemctl", "enable", "--now", "jorc")
	m.eventually("the member's agent is up", contains("up"), "jorc", "cluster", "members", "--fields", "Agent", "-o", "plain")
}

func (m *machine) bootID() string {
	m.t.Helper()
	return m.run("cat", "/proc/sys/kernel/random/boot_id")
}

// backInService checks that the machine was rebooted, and is not in maintenance.
func (m *machine) backInService(before string) {
	m.t.Helper()
	if m.bootID() == before {
		m.t.Error("the boot id is the one before")
	}
	if out := m.run("consul", "maint"); out != "" {
		m.t.Errorf("the host is still in maintenance: %s", out)
	}
}

// rpmRepository adds a package without files to the repository /rpm.
func (m *machine) rpmRepository(name, version string) {
	m.t.Helper()
	spec := filepath.Join(m.t.TempDir(), name+".spec")
	text := "Name: " + name + "\nVersion: " + version + "\nRelease: 1\nSummary: x\nLicense: x\nBuildArch: noarch\n%description\nx\n%files\n"
	if err := os.WriteFile(spec, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
	to := filepath.Join(m.root, "rpm")
	run(m.t, "mkdir", "-p", to)
	run(m.t, "rpmbuild", "--quiet", "-bb", "--define", "_topdir "+m.t.TempDir(), "--define", "_rpmdir "+to, "--define", "_rpmfilename %%{NAME}-%%{VERSION}.rpm", spec)
	run(m.t, "createrepo_c", "--quiet", to)
}

// repository installs a package, and makes apt's only repository, with the next version of it, which asks for a reboot.
func (m *machine) repository() {
	m.t.Helper()
	for _, version := range []string{"1", "2"} {
		m.demoPackage(version)
	}
	m.run("dpkg", "-i", "/root/demo_1_all.deb")
	m.write("/repository/Packages", "") // the directory, too
	m.write("/root/demo/DEBIAN/postinst", "#!/bin/sh\nset -e\ntouch /run/reboot-required\necho demo >/run/reboot-required.pkgs\n")
	m.run("chmod", "0755", "/root/demo/DEBIAN/postinst")
	m.run("dpkg-deb", "--root-owner-group", "--build", "/root/demo", "/repository/demo_2_all.deb")
	index := run(m.t, "sh", "-c", `cd "$1/repository" && apt-ftparchive packages .`, "sh", m.root)
	m.write("/repository/Packages", index+"\n")
	m.run("sh", "-c", "rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/*")
	m.write("/etc/apt/sources.list", "deb [trusted=yes] file:/repository ./\n")
}

// ends waits until a run ends, in state, and returns why its member ended.
func (m *machine) ends(id, state string) (why string) {
	m.t.Helper()
	m.eventually("run "+id+" to be "+state, func(out string) bool {
		var d struct {
			State   string
			Members []struct{ Why string }
		}
		if err := json.Unmarshal([]byte(out), &d); err != nil {
			m.t.Fatalf("run %s: %v: %s", id, err, out)
		}
		for _, one := range d.Members {
			why = one.Why
		}
		return d.State == state
	}, "sh", "-c", `jorc cluster runs "$1" -o json 2>/dev/null`, "sh", id)
	return why
}

// rebooted waits until the machine reboots itself, and boots it.
func (m *machine) rebooted() *machine {
	m.t.Helper()
	consultest.Eventually(m.t, "the machine to reboot", func(context.Context) error {
		select {
		case err := <-m.ended:
			m.ended <- err
			return nil
		default:
			return errors.New("it runs") // a command inside it would be stopped in the shutdown, and keep that waiting
		}
	})
	return boot(m.t, m.root)
}
