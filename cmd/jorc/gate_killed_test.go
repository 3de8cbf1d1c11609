package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/stage"
	"github.com/jorc/jorc/internal/workflow"
)

// gatedFleet are two hosts, a and b, and a manager that answers the gate "slo" once
// DIR/go exists; a process of `jorc agent` orchestrates.
type gatedFleet struct {
	*machine
	cluster *fleet.Cluster
	store   *kv.Store
	agent   *process
}

func newGatedFleet(t *testing.T) *gatedFleet {
	t.Helper()
	m := newMachine(t, consultest.Start(t), `
http { address = "127.0.0.1:0" }
orchestrator {
  interval    = "1s"
  stage_gates = ["slo"]
}
`)
	f := &gatedFleet{machine: m, cluster: fleet.New(m.client, "jorc", "default"), store: kv.New(m.client, "jorc/default")}
	f.ok(f.cluster.Init(t.Context(), fleet.InitOptions{}))
	for node, role := range map[string]string{"a": "web", "b": "web", "boss": cluster.RoleManager} {
		f.ok(nil, m.client.CatalogRegister(t.Context(), &consul.CatalogRegistration{
			Node: node, Address: "127.0.0.1", Service: &consul.AgentService{ID: "jorc", Service: "jorc"},
			Checks: consul.HealthChecks{
				{Node: node, CheckID: "service:jorc", ServiceID: "jorc", ServiceName: "jorc", Status: consul.HealthPassing},
			},
		}))
		f.ok(f.cluster.Join(t.Context(), node, func(r cluster.Record) (cluster.Record, error) {
			r.Roles = []string{role}
			return r, nil
		}))
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	w := runs.NewWorker(runs.WorkerOptions{Store: f.store, Node: "boss", Runner: workflow.New(workflow.Options{
		StateDir: t.TempDir(), Node: "boss", Environ: []string{"DIR=" + m.dir},
		Workflows: []config.Workflow{{Name: "slo", Tasks: []config.Task{{
			Name: "ask", Script: "echo asked >>$DIR/asked; while ! test -e $DIR/go; do sleep 0.05; done; echo 0 errors",
		}}}},
	})})
	running.Go(func() { _ = w.Run(ctx) }) // ends with ctx
	f.agent = m.agent()
	return f
}

func (f *gatedFleet) ok(_ any, err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// replace ends the orchestrator by SIGKILL and starts another one. Its session is ended
// as Consul would end it after its TTL.
func (f *gatedFleet) replace() {
	f.t.Helper()
	f.agent.signal(syscall.SIGKILL)
	f.agent.wantExit(-1)
	locks, _, err := f.client.KVList(f.t.Context(), f.store.Path(cluster.OrchestratorLock), consul.Query{Consistent: true})
	f.ok(nil, err)
	for _, lock := range locks {
		if lock.Session != "" {
			f.ok(nil, f.client.SessionDestroy(f.t.Context(), lock.Session))
		}
	}
	f.agent = f.machine.agent()
	f.eventually("the next orchestrator", func() error {
		held, err := fleet.Orchestrated(f.t.Context(), f.store)
		if err == nil && !held {
			err = fmt.Errorf("the lock is free")
		}
		return err
	})
}

// gateSeen is what a document says of a gate.
type gateSeen struct {
	gate   *pace.GateProgress
	steps  int
	asks   int
	passed *pace.PassedGate
}

// survives kills the orchestrator while the step bakes, when its gate is asked, while it runs,
// and when it has passed; read reads the document, and approve lets the next step begin.
func (f *gatedFleet) survives(read func() gateSeen, approve func()) {
	f.t.Helper()
	var since time.Time
	var run string
	for _, phase := range []struct {
		name string
		in   func(g pace.GateProgress) bool
	}{
		{"bakes", func(g pace.GateProgress) bool { return !g.Baked }},
		{"is asked", func(g pace.GateProgress) bool { return g.Run != "" }},
		{"runs", func(g pace.GateProgress) bool { return g.Run != "" && f.read("asked") != "" }},
		{"has passed", func(g pace.GateProgress) bool { return g.Passed }},
	} {
		if phase.name == "has passed" {
			f.write("go", "")
		}
		var now gateSeen
		f.eventually("a gate that "+phase.name, func() error {
			if now = read(); now.gate == nil || !phase.in(*now.gate) {
				return fmt.Errorf("got %+v, gate %+v", now, now.gate)
			}
			return nil
		})
		if since.IsZero() {
			since = now.gate.Since
		}
		if run == "" {
			run = now.gate.Run
		}
		f.replace()
		switch after := read(); {
		case after.steps != 1 || after.passed != nil || after.gate == nil || after.gate.Passed != now.gate.Passed && phase.name != "runs":
			f.t.Fatalf("killed while it %s: %+v, gate %+v; before that %+v", phase.name, after, after.gate, now.gate)
		case !after.gate.Since.Equal(since) || run != "" && after.gate.Run != run && !after.gate.Passed:
			f.t.Errorf("killed while it %s: the gate began again: %+v, want since %s and run %q", phase.name, after.gate, since, run)
		}
	}
	approve()
	f.eventually("the second step", func() error {
		if now := read(); now.steps != 2 {
			return fmt.Errorf("got %+v", now)
		}
		return nil
	})
	if now := read(); now.asks != 1 || now.passed == nil || now.passed.Answer != "0 errors" || now.passed.By != "ann" {
		f.t.Errorf("after %d runs it passed %+v", now.asks, now.passed)
	}
	if asked := strings.Count(f.read("asked"), "\n"); asked != 1 {
		f.t.Errorf("the gate was asked %d times, want 1", asked)
	}
	if took := time.Since(since); took < bakeOfKilled {
		f.t.Errorf("the step baked for %v", took)
	}
}

// bakeOfKilled is long enough that the orchestrator is killed within it.
const bakeOfKilled = 4 * time.Second

// TestRolloutGateSurvivesKill: an orchestrator that is killed at any moment of a gate
// repeats neither the step nor the bake nor a run, and lets no step pass.
func TestRolloutGateSurvivesKill(t *testing.T) {
	t.Parallel()
	f := newGatedFleet(t)
	all := rollout.New(f.client, "jorc", "default")
	for _, node := range []string{"a", "b"} {
		f.ok(f.cluster.ReportVersion(t.Context(), node, "v1"))
	}
	f.ok(all.Trigger(t.Context(), rollout.Request{Version: "v2", By: "ann", Policy: func(p *pace.Policy) {
		p.Batches = []pace.Amount{{N: 1}, {N: 100, Percent: true}}
		p.Bake, p.Gate, p.ApproveEach = pace.Duration(bakeOfKilled), pace.Gate{Workflow: "slo"}, true
	}}))
	f.eventually("the first batch", func() error {
		s, err := all.Load(t.Context())
		if err != nil || s.Document.Steps == 0 {
			return fmt.Errorf("%s: %w", s.Document.StateText(), os.ErrNotExist)
		}
		state, err := all.Observe(t.Context(), s)
		if err != nil {
			return err
		}
		for _, h := range rollout.Progress(s.Document, state, time.Now()) {
			if h.State == pace.Pending && !strings.Contains(h.Detail, "not admitted yet") {
				_, err = f.cluster.ReportVersion(t.Context(), h.Node, "v2")
				return err
			}
		}
		return fmt.Errorf("no host is admitted: %s", s.Document.StateText())
	})
	f.survives(func() gateSeen {
		s, err := all.Load(t.Context())
		f.ok(nil, err)
		d := s.Document
		return gateSeen{d.Gate, d.Steps, d.Asks, d.PassedGate}
	}, func() {
		_, _, err := all.Promote(t.Context(), "ann")
		f.ok(nil, err)
	})
}

// TestStageGateSurvivesKill is the same for a stage.
func TestStageGateSurvivesKill(t *testing.T) {
	t.Parallel()
	f := newGatedFleet(t)
	policy := cluster.StagePolicy{MaxParallel: "1", Bake: bakeOfKilled.String(), Gate: "slo", ApproveEach: true}
	limit := cluster.StageInputs{List: []cluster.StageInput{{Name: "key app/limit", Digest: "d1"}}}
	report := func(node string, r cluster.StageReport, a cluster.Answer) {
		f.ok(f.cluster.ReportWriter(node).Change(t.Context(), func(all cluster.Report) (cluster.Report, error) {
			return all.WithStage("edge", r).WithAnswer(a), nil
		}))
	}
	id := cluster.FilesChange("edge")
	hosts := func() []stage.Host {
		state, err := f.cluster.Load(t.Context(), cluster.NeedState)
		f.ok(nil, err)
		return stage.HostsOf(&state)["edge"]
	}
	for _, node := range []string{"a", "b"} {
		report(node, cluster.StageReport{Policy: policy, Wants: "c1", Changed: limit}, cluster.Answer{Change: id})
	}
	stages, first := stage.New(f.store), ""
	f.eventually("the first grant", func() error {
		all := hosts()
		if n := stage.Open("edge", all); n != 1 {
			return fmt.Errorf("%d are open: %+v", n, all)
		}
		for _, h := range all {
			if g := h.Grants.Value.Of(id); g.State == pace.Offered {
				first = h.Node
				report(h.Node, cluster.StageReport{Policy: policy, Taken: limit, State: cluster.StageDone}, cluster.Answer{Change: id, ID: g.ID, Tag: g.Tag, State: cluster.GrantDone})
			}
		}
		return nil
	})
	f.survives(func() gateSeen {
		all := hosts() // first: the book of a step is written before its offers
		d, err := stages.Load(t.Context(), "edge")
		f.ok(nil, err)
		g := gateSeen{asks: d.Book.Asks, passed: d.Book.PassedGate}
		if step := d.Book.Step; step != nil {
			g.gate, g.steps = step.Gate, step.Number
			if g.steps == 1 && g.gate != nil && stage.Open("edge", all) > 0 {
				t.Errorf("a grant is open while the gate of %v holds: %+v", step.HostNames(), all)
			}
		}
		return g
	}, func() {
		_, err := stages.Approve(t.Context(), "edge", cluster.Hold{By: "ann"})
		f.ok(nil, err)
	})
	if d, err := stages.Load(t.Context(), "edge"); err != nil || first == "" || len(d.Book.Step.Hosts) != 1 || d.Book.Step.Hosts[first] {
		t.Errorf("got %+v, %v after %s", d.Book, err, first)
	}
}
