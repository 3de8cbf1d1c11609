package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// TestDamagedHost: documents of hosts with invalid data change neither the exit code of a
// command about the whole cluster nor what it says of the other hosts; the commands that
// list hosts name them, and what is exported can be imported.
func TestDamagedHost(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	m := newMachine(t, s, isolationConf)
	m.must("cluster", "init", "default")
	m.agent()
	m.eventually("the host to be a member", func() error { return lacks(m.run("cluster", "members").stdout, s.Node) })
	members(t, s, "good", "cut", "binary", "role", "newer", "params", "deep", "results", "report", "held", "grant")
	m.must("cluster", "profile", "schema", "set", "disks", writeFile(t, "schema.json", `{"type": "integer"}`))
	m.must("cluster", "join", "--node", "good", "--param", "disks=4")
	m.must("cluster", "hold", "--node", "good")
	m.must("update", "trigger", "v1")
	m.must("update", "report", "--host", "good", "--version", "v1")
	own := fmt.Sprintf(`Node=="%s"`, s.Node)
	m.must("cluster", "run", "hello", "--id", "r1", "--filter", own, "--wait", "--timeout", "1m")
	m.must("cluster", "orchestrate")

	commands := []string{
		"cluster show", "cluster show -o json", "cluster export", "cluster list", "cluster members", "cluster members --count", "cluster members -o json",
		"cluster members --format ansible", `cluster members --filter Version=="v1"`, "cluster members --role web", "cluster leader", "cluster view", "cluster view -o json",
		"cluster report", "cluster audit", "cluster events", "cluster deps", "cluster deps --check", "cluster slots", "cluster orchestrate",
		"cluster wait --for idle --timeout 1m", "cluster wait --for members=2 --timeout 1m", "cluster run hello --dry-run", "cluster run hello --role web --dry-run",
		"cluster run hello --wait --timeout 1m --filter " + own, "cluster runs", "cluster runs r1", "cluster logs r1",
		"cluster hold --role web", "cluster unhold --role web", "cluster pause", "cluster resume", "cluster profile show", "cluster profile set x 1",
		"cluster join --node new --role web", "cluster leave --node new", "cluster leader --count 1", "cluster leader --elect", "cluster meta get",
		"update show", "update show -o json", "update verify v1 good", "update verify v9 good", "update running", "update hosts v1", "update single v1", "update why good", "update history",
		"update trigger v2 --dry-run", "update trigger v2 --max-parallel 1 --dry-run", "update rollback --dry-run", "update current",
		"status list", "status list good", "status failures", "status unaccounted", "stage list", "doctor", "debug --out DIR/debug.tgz",
	}
	do := func(when, command string) result {
		return m.run(strings.Fields(strings.ReplaceAll(command, "DIR/", m.dir+"/"+when))...)
	}
	before := map[string]result{}
	for _, command := range commands {
		before[command] = do("before", command)
	}
	deep := strings.Repeat("[", 9000) + strings.Repeat("]", 9000)
	for key, value := range map[string]string{
		"host/cut/member": `{"roles": `, "host/binary/member": "\xff\x00", "host/role/member": `{"roles":["a b\n"]}`, "host/newer/member": `{"format": 99}`,
		"host/params/member": `{"zone":"r1","params":{"disks":"many","k":1}}`, "host/deep/member": `{"params":{"x":` + deep + `}}`,
		"host/results/results": "[", "nodes/report": `{"x": `, "host/held/hold": "[", "host/grant/grants": "[", "host/x/y/member": "{",
		"slots/group/rubbish": "[", "slots/claim/cut/x": "[", "running_version/v1/cut": "[", "status/config/none/cut": "\xff", "host/cut": "[", "nodes/a/b": "[",
	} {
		m.put("jorc/default/"+key, value)
	}
	after := map[string]result{}
	for _, command := range commands {
		got := do("after", command)
		if after[command] = got; got.code != before[command].code {
			t.Errorf("jorc %s: exit %d, before the damage %d: %s", command, got.code, before[command].code, got.stderr)
		}
	}
	for command, names := range map[string]string{
		"cluster show": "cut binary newer held", "cluster show -o json": "cut binary newer held", "cluster export": "cut binary role newer params held",
		"cluster members": "cut binary newer report held", "cluster deps": "cut binary newer", "status list": "report", "cluster members --format ansible": "cut binary newer",
		"cluster run hello --dry-run": "cut binary newer", "update trigger v2 --dry-run": "cut binary newer held report",
	} {
		for _, name := range strings.Fields(names) {
			if said := after[command].stdout + after[command].stderr; !strings.Contains(said, name) {
				t.Errorf("jorc %s does not name %s: %+v", command, name, after[command])
			}
		}
	}
	for _, command := range []string{"cluster members", "cluster export", "cluster members --format ansible", "cluster run hello --dry-run"} {
		for _, name := range []string{"good", s.Node} {
			if !strings.Contains(after[command].stdout, name) {
				t.Errorf("jorc %s lacks %s: %s", command, name, after[command].stdout)
			}
		}
	}
	if got := m.must("cluster", "show").stdout; !strings.Contains(got, "its hold cannot be read") {
		t.Errorf("the damaged hold is not shown: %s", got)
	}

	m.write("export.json", after["cluster export"].stdout)
	m.must("cluster", "import", m.path("export.json"), "--cluster", "copy")
	for key, want := range map[string]string{"good": `"disks":4`, "params": `"zone":"r1"`, "held": `"web"`} {
		if got := m.value("jorc/copy/host/" + key + "/member"); !strings.Contains(got, want) {
			t.Errorf("the imported member %s: %s, want %s", key, got, want)
		}
	}
	if got := m.value("jorc/copy/host/held/hold"); !strings.Contains(got, "its hold cannot be read") {
		t.Errorf("the imported hold: %s", got)
	}
	m.must("cluster", "import", "--replace", m.path("export.json")) // over the damage
}
