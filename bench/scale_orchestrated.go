package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/stage"
)

// rolloutResult is the result for a rollout.
type rolloutResult struct {
	window
	limit  int
	served float64 // writes of the Consul agents of the nodes: maintenance mode
	next   samples // ms, from a released slot to the next node
	floor  samples // ms, the same without jorc
	cycles samples // ms, of the cycles that changed something
	rss    float64 // MB, peak of the orchestrator
}

// runResult is the result for a run.
type runResult struct {
	window          // until the command has the last answer
	answers samples // ms, from the command's request to the end of each agent's task
}

// dashboardResult is the result for the dashboard of a fleet.
type dashboardResult struct {
	uiReport
	hosts int
}

// parallel is the share of nodes that may be out of service.
var parallel = pace.Amount{N: 10, Percent: true}

// measureOrchestrated measures what an orchestrator carries out, and the dashboard of
// the largest fleet.
func (b *bench) measureOrchestrated(ctx context.Context, f *simulated, one *fleetResult, r *scaleReport, last bool) error {
	look := b.scale.look
	if !look.has("rollout") && !look.has("run") && !look.has("stage") && !look.has("dashboard") {
		return nil
	}
	to, asked := f.consul.http, &kinds{}
	if look.requests {
		address, closeAll, err := f.consul.counted(ctx, asked)
		if err != nil {
			return err
		}
		defer closeAll()
		to = address
	}
	o, err := b.orchestrate(ctx, f.consul, to, 10*time.Second)
	if err != nil {
		return err
	}
	defer o.close()
	measured := b.steps(ctx, f)
	step := func(what string, w *window, do func(context.Context) error) error {
		if err := calm(ctx, f.consul, b.scale.rest); err != nil {
			return err
		}
		o.reset()
		asked.take()
		err := measured(what, w, do)
		if look.requests {
			printKinds(b.log, "the orchestrator's", f.size, asked.take())
		}
		return err
	}
	if look.has("rollout") {
		if err := f.rollOut(ctx, o, &one.rollout, step); err != nil {
			return err
		}
	}
	if look.has("run") {
		if err := b.runEverywhere(ctx, f, &one.run, step); err != nil {
			return err
		}
	}
	if look.has("stage") {
		if err := f.stageEverywhere(ctx, &one.stage, step); err != nil {
			return err
		}
	}
	if look.has("dashboard") && last {
		r.Dashboard = &dashboardResult{hosts: f.size}
		return b.openTabs(ctx, f, r.Dashboard)
	}
	return nil
}

// rollOut measures a rollout.
func (f *simulated) rollOut(ctx context.Context, o *orchestrating, r *rolloutResult, step stepFunc) error {
	if _, err := f.outages(ctx); err != nil {
		return err
	}
	err := step("rollout", &r.window, func(ctx context.Context) error {
		if err := f.trigger("v3", func(p *pace.Policy) { p.MaxParallel = parallel })(ctx); err != nil {
			return err
		}
		return f.done(ctx)
	})
	if err != nil {
		return err
	}
	outages, err := f.outages(ctx)
	if err != nil {
		return err
	}
	r.limit = parallel.Of(f.size)
	r.next, r.served = outages.gaps(r.limit), outages.Writes
	r.cycles = o.seenCycles(false)
	_, r.rss, err = o.proc.memory()
	return err
}

// done returns when the rollout is done.
func (f *simulated) done(ctx context.Context) error {
	watch, stop := context.WithCancel(ctx)
	defer stop()
	var last rollout.Spec
	_ = f.rollouts().Watch(watch, func(u kv.Update[rollout.Spec]) {
		if last = u.Entry.Value; u.Err == nil && !last.Finished.IsZero() {
			stop()
		}
	}) // ends with watch
	if last.Finished.IsZero() || last.Aborted {
		return fmt.Errorf("the rollout of %s is not done: %w", last.Version, context.Cause(ctx))
	}
	return nil
}

// measuredRun is the id of the run.
const measuredRun = "measured"

// runEverywhere measures a run of all agents that an operator waits for.
func (b *bench) runEverywhere(ctx context.Context, f *simulated, r *runResult, step stepFunc) error {
	dir, err := b.place("operator")
	if err != nil {
		return err
	}
	err = step("run", &r.window, func(ctx context.Context) error {
		p, err := startWith(dir, "jorc", []string{b.programs.jorc, "cluster", "run", runWorkflow, "--id", measuredRun, "--wait"}, fleetEnviron(f.consul.http))
		if err != nil {
			return err
		}
		defer p.kill()
		_, err = p.wait(ctx)
		return err
	})
	if err != nil {
		return err
	}
	d, err := runs.New(f.cluster().Store()).Show(ctx, measuredRun)
	if err != nil {
		return err
	}
	for _, m := range d.Members {
		if m.State != runs.Done || len(m.History) == 0 {
			return fmt.Errorf("the run on %s is %s: %s", m.Node, m.State, m.Why)
		}
		r.answers.addMillis(m.History[len(m.History)-1].At.Sub(d.Created))
	}
	return nil
}

// stageEverywhere measures new content of a staged file on all hosts.
func (f *simulated) stageEverywhere(ctx context.Context, w *window, step stepFunc) error {
	content := func(s HostStage) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := everywhere[None](ctx, f, "Stage", same(s))
			return err
		}
	}
	if err := step("first content", &window{}, content(HostStage{Content: "first", First: true})); err != nil {
		return err
	}
	return step("stage", w, func(ctx context.Context) error {
		if err := content(HostStage{Content: "second"})(ctx); err != nil {
			return err
		}
		for {
			d, err := stage.New(f.cluster().Store()).Load(ctx, fleetStage.Name)
			switch {
			case err != nil:
				return err
			case len(d.Stops.Stops) > 0:
				return fmt.Errorf("the stage is stopped: %+v", d.Stops.Stops)
			case !d.Book.Active:
				return nil
			}
			if sleep(ctx, 20*time.Millisecond); ctx.Err() != nil {
				return fmt.Errorf("the stage is not done: %w", context.Cause(ctx))
			}
		}
	})
}

// openTabs measures the dashboard.
func (b *bench) openTabs(ctx context.Context, f *simulated, r *dashboardResult) error {
	r.size = b.scale.tabs
	asked, err := newCounter("http://" + f.consul.http)
	if err != nil {
		return err
	}
	defer asked.Close()
	s, err := b.startUI(ctx, asked.URL)
	if err != nil {
		return err
	}
	defer s.close()
	took, err := s.get(ctx, "/")
	if err != nil {
		return err
	}
	r.first.addMillis(took)
	if err := r.measureStreams(ctx, s, f, asked); err != nil {
		return fmt.Errorf("%d agents: dashboard: %w", f.size, err)
	}
	fmt.Fprintf(b.log, "         dashboard: %.0f ms until %d tabs have a change, %.1f requests per change\n", r.reached.median(), r.size.streams, r.manyChange)
	return nil
}

func (f *simulated) cluster() *fleet.Cluster { return fleet.New(f.client, fleetPrefix, fleetCluster) }

// fleetEnviron are the variables with which jorc uses Consul at an address for a fleet.
func fleetEnviron(address string) []string {
	return []string{"CONSUL_HTTP_ADDR=" + address, "JORC_PREFIX=" + fleetPrefix, "JORC_CLUSTER=" + fleetCluster}
}
