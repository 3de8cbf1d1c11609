package agent_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/rollout"
)

// TestLeastRights: an agent that orchestrates does all its work with the policy
// that 'jorc cluster bootstrap-acl' gives it, and its log has no refusals.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	h := newHost(t, s, `
consul { token_file = "DIR/token" }
service "web" {
  port = 80
  check {
    script   = ["true"]
    interval = "1s"
  }
}
requires "web" { for = "addressable" }
member { roles = ["db"] }
orchestrator { interval = "1s" }
static {
  workflow   = "converge"
  validation = "converge"
}
trigger "k" {
  prefix   = "jorc/default/profile"
  workflow = "converge"
}
workflow "converge" {
  task "nothing" { command = ["true"] }
}
template "t" {
  contents     = "{{ range service \"web|any\" }}{{ .Port }}{{ end }} {{ param \"p\" }}"
  destination  = "DIR/t"
  slot         = "reload"
  max_parallel = 1
  reload       = ["true"]
}
`)
	if _, err := h.cluster().Init(t.Context(), fleet.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, p := range h.cluster().Policies(s.Node) {
		if p.Description == fmt.Sprintf("jorc: the orchestrator on node %s of cluster %q", s.Node, "default") {
			h.write("token", s.NewToken(p.Rules))
		}
	}
	if _, err := h.cluster().Set(t.Context(), profile.Scope{}, "p", mustParse(t, "7"), profile.Ref{}); err != nil {
		t.Fatal(err)
	}
	h.start()
	h.wantServices("jorc", "web")
	h.wantRecord("the record", func(cluster.Record) bool { return true })
	policy := func(p *pace.Policy) { p.MaxParallel = pace.Amount{N: 1} }
	if _, err := h.rollouts().Trigger(t.Context(), rollout.Request{Version: "v1", Policy: policy}); err != nil {
		t.Fatal(err)
	}
	h.wantVersion("v1")
	h.eventually("the end", func() error {
		st, err := h.rollouts().Show(t.Context())
		if err == nil && st.Phase != pace.Done {
			err = fmt.Errorf("got %+v", st)
		}
		return err
	})
	h.wantFile("t", "80 7")
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(h.log.String()) {
		if strings.Contains(line, "denied") || strings.Contains(line, "Permission") || strings.Contains(line, "[ERROR]") {
			t.Errorf("the log has %s", line)
		}
	}
}
