package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

// ansibleInventory is what Ansible reads.
type ansibleInventory struct {
	Meta   struct{ Hostvars map[string]map[string]any }
	groups map[string][]string
}

func readInventory(t *testing.T, text string) (i ansibleInventory) {
	t.Helper()
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	i.groups = map[string][]string{}
	for name, raw := range all {
		var group struct{ Hosts []string }
		var into any = &group
		if name == "_meta" {
			into = &i.Meta
		}
		if err := json.Unmarshal(raw, into); err != nil {
			t.Fatal(err)
		}
		if name != "_meta" {
			i.groups[name] = group.Hosts
		}
	}
	return i
}

// TestInventory: the inventory has groups by cluster, role, zone and health, and the
// effective params as variables, without secrets.
func TestInventory(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	env["JORC_CLUSTER"] = "prod"
	do := doer(t, env)
	do(result{0, "", ""}, "init", "prod")
	do(result{0, "", ""}, "join", "--role", "db", "--zone", "r1", "--param", "disks=4", "--param", "db-password=geheim1")
	do(result{0, "", ""}, "join", "--node", "web-1", "--role", "web-frontend", "--role", "web_frontend")
	do(result{0, "", ""}, "profile", "set", "disks", "2")
	do(result{0, "", ""}, "profile", "set", "backend", `{"url": "http://x", "token": "geheim2", "more": [{"secret": "geheim3", "n": 1}]}`)
	do(result{0, "", ""}, "profile", "schema", "set", "pin", writeFile(t, "schema.json", `{"type": "string", "writeOnly": true}`))
	do(result{0, "", ""}, "profile", "set", "pin", "geheim4")
	got := jorc(t, env, "cluster", "members", "--format", "ansible", "--list")
	if got.code != 0 || got.stderr != "" || strings.Contains(got.stdout, "geheim") {
		t.Fatalf("%+v", got)
	}
	i := readInventory(t, got.stdout)
	wantGroups := map[string][]string{
		"cluster_prod": {s.Node, "web-1"}, "role_db": {s.Node}, "role_leader": {s.Node}, "role_worker": {"web-1"}, "role_web_frontend": {"web-1"},
		"role_web_frontend_3d6ca428": {"web-1"}, "zone_r1": {s.Node}, "health_passing": {s.Node}, "health_none": {"web-1"},
	}
	if !reflect.DeepEqual(i.groups, wantGroups) {
		t.Errorf("groups %v, want %v", i.groups, wantGroups)
	}
	unsafe := func(v any) map[string]any { return map[string]any{"__ansible_unsafe": v} }
	wantVars := map[string]any{
		"ansible_host": s.IP, "jorc_cluster": unsafe("prod"), "jorc_node": unsafe(s.Node), "jorc_zone": unsafe("r1"), "jorc_datacenter": unsafe("dc1"),
		"jorc_roles": unsafe([]any{"db", "leader"}), "jorc_version": unsafe(""), "jorc_health": "passing", "jorc_agent": "down",
		"jorc_param_disks": 4.0, "jorc_param_backend": unsafe(map[string]any{"url": "http://x", "more": []any{map[string]any{"n": 1.0}}}),
	}
	if vars := i.Meta.Hostvars[s.Node]; !reflect.DeepEqual(vars, wantVars) {
		t.Errorf("variables %v,\nwant %v", vars, wantVars)
	}
	if v := i.Meta.Hostvars["web-1"]["jorc_param_disks"]; v != 2.0 {
		t.Errorf("disks of web-1 = %v, want the cluster's 2", v)
	}

	one := jorc(t, env, "cluster", "members", "--format", "ansible", "--host", s.Node)
	var vars map[string]any
	if err := json.Unmarshal([]byte(one.stdout), &vars); err != nil || !reflect.DeepEqual(vars, wantVars) {
		t.Errorf("--host: %+v, %v", one, err)
	}
	few := jorc(t, env, "cluster", "members", "--format", "ansible", "--role", "db")
	if groups := readInventory(t, few.stdout).groups; len(groups["cluster_prod"]) != 1 || groups["role_web_frontend"] != nil {
		t.Errorf("--role db: %v", groups)
	}
	do(result{1, "", "jorc: host \"nope\" is not in the inventory: 'jorc cluster members' lists the members\n"}, "members", "--format", "ansible", "--host", "nope")
	do(result{2, "", "jorc: --list and --host need --format ansible; see 'jorc cluster members --help'\n"}, "members", "--list")
	do(result{2, "", "jorc: --format and --count exclude each other; see 'jorc cluster members --help'\n"}, "members", "--format", "ansible", "--count")
	do(result{2, "", "jorc: --list and --host exclude each other; see 'jorc cluster members --help'\n"}, "members", "--format", "ansible", "--list", "--host", "a")
	if got := jorc(t, env, "cluster", "members", "--format", "chef"); got.code != 2 {
		t.Errorf("another format: %+v", got)
	}
}

// TestInventoryHostile: names that members choose become valid and stay distinct, and no
// address is an option of ssh. A host whose name this Consul refuses cannot join; its name
// can be a role and a zone.
func TestInventoryHostile(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	do := doer(t, env)
	do(result{0, "", ""}, "init", "default")
	nodes := []string{"localhost", "all", "role_db", "a,b", "a:b", "{{evil}}", "ünïx", "-oProxyCommand=id", "127.0.0.1", "a_b", "host_a_b_d0b1ac24", "[1:9]", "!x", "a=b&c"}
	for i, name := range nodes {
		node := name
		if key := "jorc/default/host/" + name + "/member"; s.Refuses(key) {
			got := jorc(t, env, "cluster", "join", "--node="+name)
			for _, part := range []string{"refused by Consul", fmt.Sprintf("%q", key), "names of letters, digits"} {
				if got.code != exitFailed || !strings.Contains(got.stderr, part) {
					t.Errorf("join of %q: %+v; want %q", name, got, part)
				}
			}
			node = fmt.Sprintf("n%d", i)
		}
		if err := s.Client().CatalogRegister(t.Context(), &consul.CatalogRegistration{Node: node, Address: "-oProxyCommand=id"}); err != nil {
			t.Fatal(err)
		}
		do(result{0, "", ""}, "join", "--node="+node, "--role="+name, "--zone", name, "--param", "p "+name+"=1", "--param", `o={"__ansible_vault": "x", "n": 1}`)
	}
	got := jorc(t, env, "cluster", "members", "--format", "ansible")
	if got.code != 0 || strings.Contains(got.stdout, "__ansible_vault") {
		t.Fatalf("%+v", got)
	}
	i := readInventory(t, got.stdout)
	for group := range i.groups {
		if strings.Trim(group, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
			t.Errorf("group %q", group)
		}
	}
	for host, vars := range i.Meta.Hostvars {
		if i.groups[host] != nil || host == "all" || host == "localhost" || host == "127.0.0.1" || strings.ContainsAny(host, ",:&!{}[] =") {
			t.Errorf("host %q", host)
		}
		if host[0] == '-' || vars["ansible_host"] != nil {
			t.Errorf("host %q with the address %v", host, vars["ansible_host"])
		}
	}
	if n := len(i.Meta.Hostvars); n != len(nodes) {
		t.Errorf("%d hosts, want %d", n, len(nodes))
	}
	zones := 0
	for group, hosts := range i.groups {
		if strings.HasPrefix(group, "zone_") {
			if zones++; len(hosts) != 1 {
				t.Errorf("%s has %v", group, hosts)
			}
		}
	}
	if zones != len(nodes) {
		t.Errorf("%d zones, want %d", zones, len(nodes))
	}
}
