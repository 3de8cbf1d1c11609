package agent_test

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/converge"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/stage"
)

const drainedConf = `
service "web" { port = 80 }
member {}
orchestrator { interval = "1s" }
static {
  workflow   = "converge"
  validation = "validate"
}
workflow "converge" {
  task "apply" { script = "until [ -e DIR/{{ .Version }} ]; do sleep 0.05; done; echo {{ .Version }} >>DIR/applied" }
}
workflow "validate" {
  task "look" { script = "echo {{ .Version }} >>DIR/validated" }
}
template "t" {
  contents    = "{{ key \"k\" }}"
  destination = "DIR/t"
}
`

// drain begins or ends maintenance of the node, as 'consul maint' does.
func (h *host) drain(on bool) {
	h.t.Helper()
	if err := h.client.SetNodeMaintenance(h.t.Context(), on, "ann replaces a disk"); err != nil {
		h.t.Fatal(err)
	}
}

// lines are those of a file of the host; none without it.
func (h *host) lines(name string) []string {
	data, _ := os.ReadFile(h.path(name))
	return strings.Fields(string(data))
}

func (h *host) report() cluster.Report {
	h.t.Helper()
	d, _, err := h.ledger().Report(h.t.Context(), h.server.Node)
	if err != nil {
		h.t.Fatal(err)
	}
	return d
}

// TestDrained: on a host that an operator has put into maintenance neither the static workflow nor
// the validation begins, with and without a policy, also after a restart of the agent, and its
// report stays as it is. When the maintenance ends it is validated and follows.
func TestDrained(t *testing.T) {
	t.Parallel()
	paced := func(p *pace.Policy) { p.MaxParallel = pace.Amount{N: 1} }
	for name, policy := range map[string]func(*pace.Policy){"with a policy": paced, "without": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, consultest.Start(t), drainedConf)
			if _, err := h.cluster().Init(t.Context(), fleet.InitOptions{}); err != nil {
				t.Fatal(err)
			}
			h.put("k", "1")
			h.write("v1", "")
			h.write("v2", "")
			h.start()
			h.wantRecord("the record", func(cluster.Record) bool { return true })
			trigger := func(version string) {
				t.Helper()
				if _, err := h.rollouts().Trigger(t.Context(), rollout.Request{Version: version, Policy: policy}); err != nil {
					t.Fatal(err)
				}
			}
			trigger("v1")
			h.wantVersion("v1")
			h.wantPhase(converge.PhaseConverged, "version v1")
			h.drain(true)
			h.wantPhase(converge.PhaseConverged, "drained: it is in maintenance that jorc did not begin")
			before := h.report()
			trigger("v2")
			h.wantPhase(converge.PhaseHeld, "drained: it is in maintenance that jorc did not begin; 'consul maint -disable' ends it")
			h.put("k", "2")
			h.wantFile("t", "2") // dynamic configuration continues
			h.eventually("the rollout to wait", func() error {
				s, err := h.rollouts().Show(t.Context())
				if err == nil {
					err = contains(strings.Join(s.Waits, "; "), "a host of the next step that is not held; "+h.server.Node+": it is in maintenance that jorc did not begin")
				}
				return err
			})
			if err := h.stop(); err != nil {
				t.Fatal(err)
			}
			h.start()
			h.wantPhase(converge.PhaseHeld, "drained: ")
			h.put("k", "3")
			h.wantFile("t", "3")
			after := h.report()
			if after.Version != "v1" || !reflect.DeepEqual(after.States, before.States) {
				t.Errorf("its report was %+v and is %+v", before, after)
			}
			if applied, validated := h.lines("applied"), h.lines("validated"); !slices.Equal(applied, []string{"v1"}) || !slices.Equal(validated, []string{"v1"}) {
				t.Errorf("in maintenance it applied %v and validated %v", applied, validated)
			}
			h.drain(false)
			h.wantVersion("v2")
			h.wantLines("applied", "v1", "v2")
			if m := h.maintenance(); strings.Contains(m, "ann") {
				t.Errorf("the host is still in maintenance: %s", m)
			}
		})
	}
}

// TestDrainedAtWork: a host that is drained while its static workflow runs ends the workflow,
// and begins its validation when the maintenance ends; it is validated again as well.
func TestDrainedAtWork(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), drainedConf)
	h.put("k", "1")
	h.trigger("v1")
	h.start()
	h.wantPhase(converge.PhaseStatic, "")
	h.drain(true)
	h.write("v1", "")
	h.wantPhase(converge.PhaseHeld, "drained: ")
	if applied, validated := h.lines("applied"), h.lines("validated"); !slices.Equal(applied, []string{"v1"}) || len(validated) > 0 || h.report().Version != "" {
		t.Errorf("in maintenance it applied %v, validated %v and runs %q", applied, validated, h.report().Version)
	}
	h.drain(false)
	h.wantVersion("v1")
	h.wantPhase(converge.PhaseConverged, "version v1")
	count := len(h.lines("validated"))
	h.drain(true)
	h.wantPhase(converge.PhaseConverged, "drained: ")
	h.drain(false)
	h.eventually("another validation", func() error {
		if got := h.lines("validated"); len(got) <= count {
			return fmt.Errorf("got %v", got)
		}
		return nil
	})
	h.wantLines("applied", "v1")
}

// TestDrainedInStage: a drained host takes no grant of a stage, says why, and takes it when the
// maintenance ends. A grant that it has accepted is not failed by the maintenance.
func TestDrainedInStage(t *testing.T) {
	t.Parallel()
	h := newStagedHost(t, stagedConf)
	waits := func(why string) {
		t.Helper()
		h.eventually("the host to wait", func() error {
			all, err := stage.Show(t.Context(), h.cluster(), "edge", nil, time.Now())
			if err == nil {
				err = contains(all[0].Hosts[0].Waits, why)
			}
			return err
		})
	}
	h.drain(true)
	h.eventually("the maintenance", func() error {
		s, err := h.cluster().Load(t.Context(), cluster.NeedState)
		if err == nil && !s.Hosts[h.server.Node].Condition.Drained() {
			err = fmt.Errorf("got %+v", s.Hosts[h.server.Node].Condition)
		}
		return err
	})
	h.put("app/limit", "2")
	waits("it is in maintenance that jorc did not begin")
	h.wantFile("limit", "limit 1 on a\n")
	h.drain(false)
	h.wantFile("limit", "limit 2 on a\n")
	h.wantStage("the turn's end", func(r cluster.StageReport) bool { return r.State == cluster.StageDone && r.Wants == "" })

	if _, err := h.cluster().Hold(t.Context(), cluster.Scope{Node: h.server.Node}, cluster.Hold{Reason: "the moon", By: "ann"}); err != nil {
		t.Fatal(err)
	}
	h.put("app/limit", "3")
	waits("it is held: ")
	if _, err := h.cluster().Unhold(t.Context(), cluster.Scope{Node: h.server.Node}, cluster.Hold{}); err != nil {
		t.Fatal(err)
	}
	h.wantFile("limit", "limit 3 on a\n")
	h.wantStage("the turn", func(r cluster.StageReport) bool { return r.State == cluster.StageSettling })
	h.drain(true)
	h.wantStage("the turn's end", func(r cluster.StageReport) bool { return r.State == cluster.StageDone })
	h.wantFile("limit", "limit 3 on a\n")
}
