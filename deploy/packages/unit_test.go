//go:build packages

package packages_test

import (
	"encoding/json"
	"os"
	"strings"
)

// fullUnit: under the unit without a drop-in workflows install packages with apt and dpkg, apply
// a manifest of Puppet and mount a file system for the whole host, but do not get what the
// unit denies. The documentation states the unit's exposure.
func (m *machine) fullUnit() {
	t := m.t
	for _, version := range []string{"1", "2"} {
		m.demoPackage(version)
	}
	m.write("/root/site.pp", `
user { 'deploy':
  ensure     => present,
  managehome => true,
  shell      => '/bin/bash',
}
-> file { '/srv/deploy':
  ensure => directory,
  owner  => 'deploy',
  mode   => '2750',
}
-> file { '/srv/deploy/page':
  content => "from Puppet\n",
}
service { 'nginx':
  ensure => running,
  enable => true,
}
`)
	m.write("/etc/jorc/jorc.hcl", `
trigger "apt" {
  key      = "apt"
  workflow = "apt"
}
trigger "dpkg" {
  key      = "dpkg"
  workflow = "dpkg"
}
trigger "puppet" {
  key      = "puppet"
  workflow = "puppet"
}
trigger "mount" {
  key      = "mount"
  workflow = "mount"
}
trigger "denied" {
  key      = "denied"
  workflow = "denied"
}
workflow "apt" {
  task "install" { command = ["apt-get", "install", "-q", "-y", "/root/demo_1_all.deb"] }
}
workflow "dpkg" {
  task "upgrade" { command = ["dpkg", "--force-confold", "-i", "/root/demo_2_all.deb"] }
}
workflow "puppet" {
  task "apply" {
    command       = ["puppet", "apply", "--detailed-exitcodes", "/root/site.pp"]
    ok_exit_codes = [2]
    idempotent    = true
  }
}
workflow "mount" {
  task "mount" { command = ["mount", "-t", "tmpfs", "none", "/mnt"] }
}
workflow "denied" {
  task "personality" { script = "! setarch --uname-2.6 true" }
  task "realtime"    { script = "! chrt -f 1 true" }
  task "clock"       { script = "! python3 /root/adjtimex.py" }
}
`)
	m.write("/root/adjtimex.py", "import ctypes, sys\nsys.exit(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512)) == -1)\n")
	m.run("sh", "-c", "setarch --uname-2.6 true && chrt -f 1 true && python3 /root/adjtimex.py") // outside of the unit
	m.run("jorc", "config", "validate", "/etc/jorc")
	m.run("systemctl", "start", "jorc")

	m.works("apt")
	if got, want := m.run("stat", "-c", "%U:%G %a", "/usr/lib/demo/helper"), "root:demo 2755"; got != want {
		t.Errorf("the program of the package = %s, want %s", got, want)
	}
	m.run("systemctl", "is-active", "demo")
	m.run("sh", "-c", "echo changed >>/etc/demo.conf")
	m.works("dpkg")
	if got, want := m.run("cat", "/etc/demo.conf"), "version 1\nchanged"; got != want {
		t.Errorf("the configuration file after the upgrade = %q, want %q", got, want)
	}
	if got, want := m.run("dpkg-query", "-W", "-f", "${Version} ${Status}", "demo"), "2 install ok installed"; got != want {
		t.Errorf("the package = %s, want %s", got, want)
	}

	m.works("puppet")
	if got, want := m.run("stat", "-c", "%U %a", "/srv/deploy"), "deploy 2750"; got != want {
		t.Errorf("Puppet's directory = %s, want %s", got, want)
	}
	m.run("grep", "-q", "from Puppet", "/srv/deploy/page")
	m.run("systemctl", "is-active", "nginx")
	m.run("systemctl", "is-enabled", "nginx")

	m.works("mount")
	m.run("grep", "-q", " /mnt tmpfs ", "/proc/1/mounts")
	m.works("denied")

	exposure := m.run("systemd-analyze", "security", "--no-pager", "--offline=true", "jorc.service")
	_, exposure, _ = strings.Cut(exposure, "Overall exposure level for jorc.service: ")
	exposure, _, _ = strings.Cut(exposure, " ")
	docs, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := "exposure of " + exposure + "."; exposure == "" || !strings.Contains(string(docs), want) {
		t.Errorf("docs/security.md lacks %q", want)
	}

	// A user who may read neither the agent's configuration nor its state.
	m.run("chmod", "0700", "/etc/jorc")
	report := m.run("runuser", "-u", "nobody", "--", "jorc", "debug", "--config", "/etc/jorc", "--out", "/tmp/report.tar.gz", "-o", "plain")
	for _, want := range []string{"log.txt\t0\t", "permission denied", "keys.json\t"} {
		if !strings.Contains(report, want) {
			t.Errorf("jorc debug as another user = %q, want %q in it", report, want)
		}
	}
	m.run("chmod", "0755", "/etc/jorc")
	m.run("systemctl", "stop", "jorc", "demo", "nginx")
	m.run("umount", "/mnt")
}

// demoPackage builds a small package with scripts, a configuration file, a service, and
// a program with a set-group-ID bit.
func (m *machine) demoPackage(version string) {
	m.t.Helper()
	dir := "/root/demo"
	for path, text := range map[string]string{
		"/DEBIAN/control":                      "Package: demo\nVersion: " + version + "\nArchitecture: all\nMaintainer: demo <demo@example.com>\nDescription: demo\n",
		"/DEBIAN/conffiles":                    "/etc/demo.conf\n",
		"/DEBIAN/preinst":                      "#!/bin/sh\nset -e\ngetent passwd demo >/dev/null || useradd --system demo\n",
		"/DEBIAN/postinst":                     "#!/bin/sh\nset -e\nchgrp demo /usr/lib/demo/helper\nchmod 2755 /usr/lib/demo/helper\nsystemctl daemon-reload\nsystemctl enable demo\nsystemctl restart demo\n",
		"/DEBIAN/prerm":                        "#!/bin/sh\nset -e\nsystemctl stop demo\n",
		"/etc/demo.conf":                       "version " + version + "\n",
		"/usr/lib/demo/helper":                 "#!/bin/sh\n",
		"/usr/lib/systemd/system/demo.service": "[Service]\nUser=demo\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n",
	} {
		m.write(dir+path, text)
	}
	m.run("chmod", "-R", "a+rX", dir)
	m.run("sh", "-c", "chmod 0755 "+dir+"/DEBIAN/p*")
	m.run("dpkg-deb", "--root-owner-group", "--build", dir, "/root/demo_"+version+"_all.deb")
}

// works runs a workflow by its trigger, and waits until it succeeds.
func (m *machine) works(workflow string) {
	m.t.Helper()
	m.run("consul", "kv", "put", workflow, "1")
	m.eventually("workflow "+workflow+" ends", func(out string) bool {
		var jobs []struct{ Workflow, State, Why, Tail string }
		if err := json.Unmarshal([]byte(out), &jobs); err != nil {
			m.t.Fatalf("jobs: %v: %s", err, out)
		}
		for _, j := range jobs {
			if j.Workflow != workflow {
				continue
			}
			if j.State == "failed" {
				m.t.Fatalf("workflow %s: %s\n%s", workflow, j.Why, j.Tail)
			}
			return j.State == "success"
		}
		return false
	}, "jorc", "workflow", "jobs", "-o", "json")
}
