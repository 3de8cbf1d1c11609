package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
)

const uncreatedConf = `
cluster = "prod"
http { address = "127.0.0.1:0" }
member { roles = ["web"] }
`

// TestAgentCreatesTheCluster: an agent with a member block creates the cluster that was
// never created; 'jorc cluster import' may fill it, and it does not undo 'jorc cluster
// delete' while it runs.
func TestAgentCreatesTheCluster(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	m := newMachine(t, s, uncreatedConf)
	m.env = append(m.env, "JORC_CLUSTER=prod")
	m.must("cluster", "init", "old")
	m.must("cluster", "profile", "set", "disks", "4", "--cluster", "old")
	m.write("export.json", m.must("cluster", "export", "old").stdout)

	m.agent()
	m.eventually("the member", func() error { return lacks(m.run("cluster", "members", "-o", "plain").stdout, s.Node) })
	m.must("cluster", "show", "prod")
	m.must("cluster", "profile", "set", "reached", "yes")
	m.must("cluster", "profile", "remove", "reached")
	m.must("cluster", "import", m.path("export.json"), "--cluster", "prod")
	if got := m.must("cluster", "profile", "get", "disks", "--raw").stdout; got != "4" && got != "4\n" {
		t.Errorf("disks after the import: %q", got)
	}

	m.must("cluster", "delete", "prod", "--yes")
	m.eventually("the member again", func() error {
		return lacks(m.run("cluster", "members", "-o", "plain").stderr, "'jorc cluster init prod' creates it")
	})
	if got := m.run("cluster", "show", "prod"); got.code != 1 || !strings.Contains(got.stderr, "it has members (1), but was never created; create it with 'jorc cluster init prod'") {
		t.Errorf("show: %+v", got)
	}
	m.must("cluster", "init", "prod")
	if got := m.must("cluster", "members", "-o", "plain"); got.stderr != "" {
		t.Errorf("members of a cluster that exists: %+v", got)
	}
}

// TestClusterNeverCreated: where the agent's token may not create the cluster, its log,
// and all that show the cluster, name the command that does.
func TestClusterNeverCreated(t *testing.T) {
	t.Parallel()
	const creates = "jorc cluster init prod"
	s := consultest.Start(t, consultest.WithACL())
	m := newMachine(t, s, uncreatedConf+"consul { token_file = \"DIR/token\" }\n")
	for _, p := range fleet.New(s.Client(), "jorc", "prod").Policies(s.Node) {
		if strings.Contains(p.Description, "jorc: the agent on") {
			m.write("token", s.NewToken(p.Rules))
		}
	}
	agent := m.agent()
	m.env = append(m.env, "JORC_CLUSTER=prod", "CONSUL_HTTP_TOKEN="+s.RootToken)
	m.eventually("the member", func() error { return lacks(m.run("cluster", "members", "-o", "plain").stdout, s.Node) })
	m.eventually("the log of the agent", func() error { return lacks(agent.said.String(), creates) })
	for _, args := range []string{"cluster members", "cluster show prod", "cluster attention", "doctor", "doctor -o json"} {
		code := 1
		if args == "cluster members" {
			code = 0
		}
		if got := m.run(strings.Fields(args)...); got.code != code || !strings.Contains(got.stdout+got.stderr, creates) {
			t.Errorf("jorc %s: %+v", args, got)
		}
	}
	m.must("cluster", "init", "prod")
	for _, args := range []string{"cluster members", "cluster show prod", "cluster attention", "doctor"} {
		if got := m.run(strings.Fields(args)...); strings.Contains(got.stdout+got.stderr, creates) {
			t.Errorf("jorc %s of a cluster that exists: %+v", args, got)
		}
	}
	if got := fmt.Sprint(strings.Count(agent.said.String(), creates)); got != "1" {
		t.Errorf("the log names %q %s times", creates, got)
	}
}
