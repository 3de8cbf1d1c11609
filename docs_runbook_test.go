package jorc_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

const backedUp = `
service "web" { port = 8080 }
member { roles = ["web"] }
orchestrator {}
static { workflow = "converge" }
workflow "converge" {
  task "apply" { command = ["true"] }
}
`

// TestRunbook makes the runbook's backup of a cluster with an agent, loses and
// changes keys, and restores them as the runbook says.
func TestRunbook(t *testing.T) {
	t.Parallel()
	d := newDocument(t, buildJorc(t))
	tools := filepath.Join(d.dir, "tools")
	if err := os.Mkdir(tools, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(consultest.Binary(t), filepath.Join(tools, "consul")); err != nil {
		t.Fatal(err)
	}
	d.env[0] += ":" + tools
	d.env = append(d.env, "JORC_VERSION_FILE="+filepath.Join(d.dir, "version"))
	steps := map[string]string{}
	for _, b := range blocks(t, "docs/runbook.md") {
		steps[b.kind] = b.text
	}
	d.shell("jorc cluster init default\n")
	d.config(backedUp)
	d.shell("jorc cluster wait --for members=1 --timeout 60s\njorc cluster profile set k good\n" +
		"jorc update trigger v1 --max-parallel 1\njorc update wait --timeout 60s\n")
	d.shell(steps["backup"])

	// An operator continues, and loses keys then.
	d.shell("jorc update trigger v2 --max-parallel 1\njorc update wait --timeout 60s\njorc cluster profile set k bad\n" +
		"consul kv delete jorc/default/nodes/" + d.server.Node + "\n")
	d.shell(steps["restore"])
	d.says("v1", "jorc", "update", "running", "-o", "plain")
	d.says("v1", "jorc", "update", "local")
	d.says("good", "jorc", "cluster", "profile", "get", "k", "--raw")

	// All is lost; the agent joins an empty cluster again meanwhile.
	d.shell("consul kv delete -recurse jorc/\n")
	d.shell(steps["import"])
	d.says("good", "jorc", "cluster", "profile", "get", "k", "--raw")
	d.says("1", "jorc", "cluster", "members", "--count")
	d.shell("jorc update trigger v3 --max-parallel 1\njorc update wait --timeout 5m\n") // nothing is granted for a minute after a restore
	d.says("v3", "jorc", "update", "running", "-o", "plain")
}

// TestRunbookDamage: documents that the runbook tells to delete can be deleted,
// and what depends on them continues.
func TestRunbookDamage(t *testing.T) {
	t.Parallel()
	d := newDocument(t, buildJorc(t))
	d.env = append(d.env, "JORC_VERSION_FILE="+filepath.Join(d.dir, "version"))
	d.shell("jorc cluster init default\n")
	d.config(backedUp)
	d.shell("jorc cluster wait --for members=1 --timeout 60s\njorc update trigger v1 --max-parallel 1\njorc update wait --timeout 60s\n")
	data, err := os.ReadFile("docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	node := d.server.Node
	for _, key := range []string{"current/control", "current/leaders", "current/version", "host/" + node + "/member", "nodes/" + node, "host/" + node + "/grants"} {
		d.server.Run("kv", "put", "jorc/default/"+key, "{")
		if command := "consul kv delete jorc/default/" + key; strings.Contains(string(data), command) {
			d.server.Run(strings.Fields(command)[1:]...)
		}
		if key == "current/leaders" {
			d.shell("jorc cluster leader --count 1\n")
		}
		t.Logf("%s was damaged", key)
		d.says("1", "jorc", "cluster", "members", "--count")
		d.shell("jorc update trigger to-" + strings.ReplaceAll(key, "/", "-") + " --max-parallel 1\njorc update wait --timeout 60s\n")
		d.says(node, "jorc", "cluster", "leader")
	}
}

// says waits until a command succeeds and prints want.
func (d *document) says(want, name string, args ...string) {
	d.t.Helper()
	consultest.Eventually(d.t, strings.Join(args, " "), func(context.Context) error {
		out, err := d.command(name, args...).Output()
		if err != nil || strings.TrimSpace(string(out)) != want {
			return fmt.Errorf("%q, %v; want %q", out, err, want)
		}
		return nil
	})
}
