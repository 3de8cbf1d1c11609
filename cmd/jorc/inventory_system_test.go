//go:build system

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

// TestAnsibleReadsHostileMembers: Ansible takes what hosts choose as text, in names,
// roles, zones, and in the names and values of params; it evaluates nothing of it.
func TestAnsibleReadsHostileMembers(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	dir := t.TempDir()
	mark := filepath.Join(dir, "evaluated")
	const evil = `{{ lookup('pipe', 'touch evaluated') }}`
	must := func(args ...string) string {
		t.Helper()
		got := jorc(t, env, args...)
		if got.code != exitOK {
			t.Fatalf("jorc %q: %+v", args, got)
		}
		return got.stdout
	}
	must("cluster", "init", "default")
	nested, err := json.Marshal(map[string]any{evil: []any{evil, map[string]any{evil: evil}}})
	if err != nil {
		t.Fatal(err)
	}
	record, err := json.Marshal(map[string]any{
		"format": 1, "roles": []string{"web"}, "zone": evil,
		"params": map[string]any{evil: evil, "text": evil, "nested": json.RawMessage(nested), "ansible_connection": "local", "tag": "!unsafe x", "list": []string{evil}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for node, record := range map[string]string{evil: `{"roles":["web"]}`, "localhost": `{"roles":["web"]}`, "good": string(record)} {
		if err := s.Client().CatalogRegister(t.Context(), &consul.CatalogRegistration{Node: node, Address: "10.0.0.6"}); err != nil {
			t.Fatal(err)
		}
		s.Plant("jorc/default/"+cluster.MemberKey(node), record)
	}
	for name, text := range map[string]string{
		"inventory.json": must("cluster", "members", "--format", "ansible"), "ansible.cfg": "[defaults]\nretry_files_enabled = false\n",
		"inventory": "#!/bin/sh\ncat '" + dir + "/inventory.json'\n",
		"play.yml": `- hosts: all
  connection: local
  gather_facts: false
  tasks:
    - copy:
        content: "{{ hostvars[inventory_hostname] | to_json }}"
        dest: "` + dir + `/vars-{{ inventory_hostname }}"
    - debug:
        msg: "{{ jorc_node }} {{ jorc_zone }} {{ jorc_roles }} {{ jorc_param_text | default('') }} {{ jorc_param_nested | default({}) }} {{ jorc_param_list | default([]) }}"
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir = dir
		cmd.Env = []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LC_ALL=C.UTF-8", "ANSIBLE_NOCOLOR=1", "ANSIBLE_CONFIG=" + filepath.Join(dir, "ansible.cfg"),
			"ANSIBLE_PYTHON_INTERPRETER=/usr/bin/python3",
		}
		out, err := cmd.CombinedOutput()
		if err != nil || strings.Contains(string(out), "WARNING") {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	run("ansible-inventory", "-i", "inventory", "--list")
	said := run("ansible-playbook", "-i", "inventory", "play.yml")
	if strings.Count(said, "{{ lookup(") < 3 || !strings.Contains(said, "good") {
		t.Errorf("the values as Ansible has them:\n%s", said)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("Ansible evaluated what a host chose")
	}
	if vars, err := filepath.Glob(filepath.Join(dir, "vars-*")); err != nil || len(vars) != 3 {
		t.Errorf("the variables of %q, %v; want three hosts", vars, err)
	}
}
