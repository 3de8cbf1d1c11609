//go:build packages

package packages_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// controller runs Debian's Ansible against a machine: its chroot connection enters the
// namespaces of the booted system instead of the plain directory.
type controller struct {
	m   *machine
	dir string
}

func newController(m *machine) *controller {
	m.t.Helper()
	c := &controller{m: m, dir: m.t.TempDir()}
	enter := "exec nsenter -a -t " + m.leader + " -- "
	c.write("enter", "#!/bin/sh\nshift\n"+enter+"env HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin \"$@\"\n")
	c.write("bin/jorc", "#!/bin/sh\n"+enter+"env JORC_CLUSTER=prod /usr/bin/jorc \"$@\"\n")
	c.write("ansible.cfg", "[defaults]\nretry_files_enabled = false\n")
	return c
}

// write writes a program or a file and returns its path.
func (c *controller) write(name, text string) string {
	c.m.t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		c.m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		c.m.t.Fatal(err)
	}
	return path
}

// run runs a program of Ansible; it fails the test if that warns.
func (c *controller) run(args ...string) string {
	c.m.t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = "../ansible"
	cmd.Env = []string{
		"PATH=" + filepath.Join(c.dir, "bin") + ":" + os.Getenv("PATH"), "HOME=" + c.dir, "LC_ALL=C.UTF-8", "ANSIBLE_NOCOLOR=1",
		"ANSIBLE_CONFIG=" + filepath.Join(c.dir, "ansible.cfg"), "ANSIBLE_PYTHON_INTERPRETER=/usr/bin/python3",
	}
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "WARNING") {
		c.m.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// connection are the variables by which Ansible reaches the machine.
func (c *controller) connection() map[string]any {
	return map[string]any{
		"ansible_connection": "community.general.chroot", "ansible_host": c.m.root, "ansible_chroot_exe": filepath.Join(c.dir, "enter"),
		"ansible_become": false,
	}
}

// play runs the play on hosts of an inventory and returns its summary.
func (c *controller) play(inventory string, more map[string]any) string {
	c.m.t.Helper()
	vars := c.connection()
	for name, v := range more {
		vars[name] = v
	}
	text, err := json.Marshal(vars)
	if err != nil {
		c.m.t.Fatal(err)
	}
	return c.run("ansible-playbook", "-i", inventory, "-e", "@"+c.write("vars.json", string(text)), "jorc.yml")
}

// TestAnsible: the play installs, configures and starts jorc and waits for a service;
// repeated over the dynamic inventory it changes nothing, and a changed setting is
// applied. What a hostile member is called, and what its params hold, does Ansible no harm.
func TestAnsible(t *testing.T) {
	m := newMachine(t)
	m.startConsul()
	c := newController(m)
	web := func(port int) map[string]any {
		return map[string]any{
			"jorc_package": native(t, packages(t).new, "deb"), "jorc_cluster": "prod", "jorc_member_roles": []string{"web"}, "jorc_member_zone": "r1",
			"jorc_services": []string{"web"}, "jorc_settings": fmt.Sprintf("service \"web\" {\n  port = %d\n}\n", port),
		}
	}
	static := c.write("hosts", "host\n")
	if out := c.play(static, web(80)); !strings.Contains(out, "unreachable=0    failed=0") {
		t.Errorf("the first play:\n%s", out)
	}
	m.run("jorc", "cluster", "init", "prod")
	m.registration("web")
	for _, property := range []string{"is-active", "is-enabled"} {
		m.run("systemctl", property, "jorc")
	}
	m.eventually("the host is a member", contains("role_web"), "jorc", "cluster", "members", "--cluster", "prod", "--format", "ansible")

	const inventory = "./inventory"
	if out := c.run("ansible-inventory", "-i", inventory, "--graph"); !strings.Contains(out, "@role_web:\n  |  |--host\n") || !strings.Contains(out, "@zone_r1:") {
		t.Errorf("the inventory:\n%s", out)
	}
	if out := c.play(inventory, web(80)); !strings.Contains(out, "changed=0 ") || !strings.Contains(out, "failed=0") {
		t.Errorf("the second play:\n%s", out)
	}
	pid := m.property("jorc", "MainPID")
	if out := c.play(inventory, web(81)); !strings.Contains(out, "changed=2 ") {
		t.Errorf("the play with another port:\n%s", out)
	}
	m.eventually("the new port in Consul", contains("\t81\t"), "jorc", "service", "resolve", "web")
	if now := m.property("jorc", "MainPID"); now != pid {
		t.Errorf("the agent was restarted: %s, before %s", now, pid)
	}

	mark := filepath.Join(c.dir, "evaluated")
	evil := `{{ lookup("pipe", "touch ` + mark + `") }}`
	m.run("jorc", "cluster", "join", "--cluster", "prod", "--node", "{{evil}}", "--role", "a-b", "--role", "a.b", "--zone", "{{zone}}",
		"--param", "evil="+evil, "--param", `nested={"a":["`+strings.ReplaceAll(evil, `"`, `\"`)+`"]}`, "--param", "ansible_connection=local", "--param", "db_password=geheim")
	all := c.run("ansible-inventory", "-i", inventory, "--list")
	if strings.Contains(all, "geheim") || strings.Count(all, `"role_a_b_`) < 2 {
		t.Errorf("the inventory:\n%s", all)
	}
	out := c.run("ansible", "-i", inventory, "health_none", "-c", "local", "-m", "debug", "-a", "msg={{ jorc_param_evil }},{{ jorc_param_nested }},{{ jorc_node }}")
	if !strings.Contains(out, `{{ lookup(`) || !strings.Contains(out, "{{evil}}") {
		t.Errorf("the values as Ansible sees them:\n%s", out)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("Ansible evaluated a param of a member")
	}
}
