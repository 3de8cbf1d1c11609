package jorc_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// TestClusterGuide follows docs/cluster.md on three nodes. Blocks are run on one
// of them, on each, or on all at the same time ("race": one
// wins).
func TestClusterGuide(t *testing.T) {
	t.Parallel()
	bin := buildJorc(t)
	var nodes []*guideNode
	for i, s := range consultest.StartCluster(t, 3) {
		n := &guideNode{t: t, name: s.Node}
		n.env = []string{
			"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "CONSUL_HTTP_ADDR=" + s.HTTPAddr,
			consultest.NoConfig, "JORC_CLUSTER=prod", "JORC_STATE_DIR=" + t.TempDir(), fmt.Sprintf("ZONE=rack-%d", i), "NODE=" + s.Node,
		}
		nodes = append(nodes, n)
	}
	for _, b := range blocks(t, "docs/cluster.md") {
		switch b.kind {
		case "once":
			nodes[0].succeed(b.text)
		case "each":
			for _, n := range nodes {
				n.succeed(b.text)
			}
		case "race":
			race(t, nodes, b.text)
		case "script":
			runEverywhere(t, nodes, b.text)
		case "config": // TestDocuments
		case "manager": // TestRebarManager of the program
		default:
			t.Errorf("unknown kind of block %q", b.kind)
		}
	}
}

// guideNode is a host on which the guide is followed.
type guideNode struct {
	t      *testing.T
	name   string
	env    []string
	config string // of its agent; empty: it has none
}

func (n *guideNode) run(text string) (code int, output string) {
	cmd := exec.CommandContext(n.t.Context(), "sh", "-ec", text)
	cmd.Env = n.env
	out, _ := cmd.CombinedOutput() // the code says it
	return cmd.ProcessState.ExitCode(), string(out)
}

// succeed runs a block line by line, as an operator types it.
func (n *guideNode) succeed(text string) {
	n.t.Helper()
	for line := range strings.Lines(text) {
		if code, out := n.run(line); code != 0 {
			n.t.Errorf("%s: %s: exit %d\n%s", n.name, strings.TrimSpace(line), code, out)
		}
	}
}

// runEverywhere runs the workflow of a configuration on all nodes at the same time.
func runEverywhere(t *testing.T, nodes []*guideNode, configuration string) {
	t.Helper()
	_, rest, _ := strings.Cut(configuration, `workflow "`)
	name, _, _ := strings.Cut(rest, `"`)
	file := filepath.Join(t.TempDir(), "workflow.hcl")
	if err := os.WriteFile(file, []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	for _, n := range nodes {
		running.Go(func() {
			if code, out := n.run("jorc workflow run " + name + " --config " + file); code != 0 {
				t.Errorf("%s: workflow %s: exit %d\n%s", n.name, name, code, out)
			}
		})
	}
	running.Wait()
}

func race(t *testing.T, nodes []*guideNode, text string) {
	t.Helper()
	const matched, conflict = 0, 4
	codes := make([]int, len(nodes))
	var running sync.WaitGroup
	for i, n := range nodes {
		running.Go(func() {
			var out string
			if codes[i], out = n.run(text); codes[i] != matched && codes[i] != conflict {
				t.Errorf("%s: exit %d\n%s", n.name, codes[i], out)
			}
		})
	}
	running.Wait()
	won := 0
	for _, code := range codes {
		if code == matched {
			won++
		}
	}
	if won != 1 {
		t.Errorf("exit codes %v, want one 0 and else 4", codes)
	}
}
