package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/workflow"
)

// gateSite is a site of four members, on one of which, a manager, gates are asked.
type gateSite struct {
	*site
	asked string // a file: a line for each time that the gate's workflow ran
}

// newGateSite triggers v2 in two batches with a gate, of which the first is one member.
func newGateSite(t *testing.T, script string, policy func(*pace.Policy)) *gateSite {
	t.Helper()
	g := &gateSite{site: newSite(t), asked: filepath.Join(t.TempDir(), "asked")}
	g.host("boss", "10.0.0.9", "passing", "passing")
	g.join("boss", cluster.RoleManager)
	for i, node := range []string{"a", "b", "c", "d"} {
		g.host(node, fmt.Sprintf("10.0.0.%d", i+1), "passing", "passing")
		g.join(node, "web")
		g.must(g.cluster.ReportVersion(t.Context(), node, "v1"))
	}
	g.must(g.rollouts.Trigger(t.Context(), rollout.Request{Version: "v2", By: "ann", Policy: func(p *pace.Policy) {
		p.Batches = []pace.Amount{{N: 1}, {N: 100, Percent: true}}
		p.Gate = pace.Gate{Workflow: "slo"}
		policy(p)
	}}))
	w := runs.NewWorker(runs.WorkerOptions{Store: g.store, Node: "boss", Runner: workflow.New(workflow.Options{
		StateDir: t.TempDir(), Node: "boss", Workflows: []config.Workflow{{Name: "slo", Tasks: []config.Task{{
			Name: "ask", Script: "cat \"$JORC_PARAMS\" >>" + g.asked + "\necho >>" + g.asked + "\n" + script,
		}}}},
	})})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() { cancel(); g.must(nil, <-done) })
	return g
}

func (g *gateSite) options() orchestrator.Options {
	o := quick(g.client)
	o.Interval, o.Grants = 100*time.Millisecond, true
	return o
}

func (g *gateSite) document() rollout.Document {
	g.t.Helper()
	s, err := g.rollouts.Load(context.WithoutCancel(g.t.Context()))
	g.must(nil, err)
	return s.Document
}

// until waits for a rollout as wanted.
func (g *gateSite) until(what string, wanted func(rollout.Document) bool) rollout.Document {
	g.t.Helper()
	var d rollout.Document
	g.eventually(what, func() error {
		if d = g.document(); !wanted(d) {
			return fmt.Errorf("the rollout is %s, its gate is %+v", d.StateText(), d.Gate)
		}
		return nil
	})
	return d
}

// arrive has the member that is offered a grant carry it out.
func (g *gateSite) arrive() {
	g.t.Helper()
	g.eventually("a grant", func() error {
		s, err := g.rollouts.Load(g.t.Context())
		g.must(nil, err)
		state, err := g.rollouts.Observe(g.t.Context(), s)
		g.must(nil, err)
		for _, m := range state.Members {
			if m.Grant.State != pace.Offered || m.Void {
				continue
			}
			now := time.Now().UTC()
			_, err := g.cluster.ReportWriter(m.Node).Change(g.t.Context(), func(r cluster.Report) (cluster.Report, error) {
				done := cluster.Answer{Change: cluster.VersionChange, ID: m.Grant.ID, Tag: m.Grant.Tag, State: cluster.GrantDone, Since: now, Ended: now}
				return r.WithAnswer(done).At(m.Grant.Tag, now), nil
			})
			return err
		}
		return errEventsPending
	})
}

// asks returns what each run of the gate was told.
func (g *gateSite) asks() []string {
	g.t.Helper()
	text, err := os.ReadFile(g.asked)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		g.t.Fatal(err)
	}
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
}

// TestGateSurvives: orchestrators that die at any moment repeat neither the step nor the
// bake of a gate, and ask each of its samples once.
func TestGateSurvives(t *testing.T) {
	t.Parallel()
	g := newGateSite(t, "echo 0 errors", func(p *pace.Policy) {
		p.Bake = pace.Duration(time.Second)
		p.Gate.Samples, p.Gate.Interval = 2, pace.Duration(200*time.Millisecond)
	})
	_, stop := g.start(g.options())
	g.arrive()
	since := g.until("the gate", func(d rollout.Document) bool { return d.Gate != nil }).Gate.Since
	stop()
	for i := range int64(12) {
		g.dieAtStep(g.options(), 4+i, i%2 == 0)
		if gate := g.document().Gate; gate != nil && !gate.Since.Equal(since) {
			t.Fatalf("the bake began again: %+v, want since %s", gate, since)
		}
	}
	g.start(g.options())
	d := g.until("batch 2", func(d rollout.Document) bool { return d.Batch == 2 })
	if p := d.PassedGate; p == nil || p.Answer != "0 errors" || d.Steps != 2 || d.Asks != 2 {
		t.Errorf("it passed %+v, after %d steps and %d runs", p, d.Steps, d.Asks)
	}
	asks := g.asks()
	if len(asks) != 2 {
		t.Fatalf("the gate was asked %d times, want 2: %s", len(asks), asks)
	}
	for i, want := range []string{`"gate/sample":1`, `"gate/sample":2`} {
		told := strings.ReplaceAll(asks[i], " ", "")
		for _, fact := range []string{want, `"gate/version":"v2"`, `"gate/step":"batch1of2"`, `"gate/host-count":1`, `"gate/hosts":["`} {
			if !strings.Contains(told, fact) {
				t.Errorf("run %d was told %s, want %s", i+1, asks[i], fact)
			}
		}
	}
	g.eventually("all events", func() error {
		if kinds := g.kinds(); kinds["change_step_began"] != 2 || kinds["change_step_done"] != 1 || kinds["change_gate_passed"] != 1 {
			return fmt.Errorf("there are %v", kinds)
		}
		return nil
	})
}

// TestGateAnswers: what a gate says no with, and what means that it cannot be asked; its run ends, also one that
// does not answer in time.
func TestGateAnswers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script string
		policy func(*pace.Policy)
		want   string // of the reason why it is paused
	}{
		"no":        {"echo 7 % errors; exit 1", func(*pace.Policy) {}, `gate "slo" of batch 1 of 2 failed: task "ask" on boss: exit code 1: 7 % errors`},
		"not found": {"no-such-program", func(p *pace.Policy) { p.OnFailure = pace.OnFailureRollback }, "cannot be asked: "},
		"unknown":   {"true", func(p *pace.Policy) { p.Gate.Workflow = "sloo" }, `gate "sloo" of batch 1 of 2 cannot be asked: `},
		"not yet":   {"echo little traffic; exit 196", func(p *pace.Policy) { p.Gate.Timeout = pace.Duration(2 * time.Second) }, "it did not answer for 2s"},
		"early end": {"exit 195", func(*pace.Policy) {}, `task "ask" ended the workflow early`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateSite(t, test.script, test.policy)
			g.start(g.options())
			g.arrive()
			d := g.until("a pause", func(d rollout.Document) bool { return d.Stopped != nil })
			if !strings.Contains(d.Stopped.Reason, test.want) {
				t.Errorf("it is paused: %s, want %s", d.Stopped.Reason, test.want)
			}
			all := runs.New(g.store)
			g.eventually("the run to end", func() error {
				ids, err := all.IDs(t.Context(), true)
				if err == nil && len(ids) > 0 {
					err = fmt.Errorf("in progress: %v", ids)
				}
				return err
			})
			if got, err := all.IDs(t.Context(), false); err != nil || len(got) != 1 || !strings.HasPrefix(got[0], pace.GateRunPrefix+"v2-") {
				t.Errorf("runs: %v, %v", got, err)
			}
		})
	}
}
