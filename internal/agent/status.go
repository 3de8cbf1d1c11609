package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/converge"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/replace"
	"github.com/jorc/jorc/internal/watch"
	"github.com/jorc/jorc/internal/web"
)

// Status implements web.Source.
func (a *Agent) Status() web.Status {
	stats := a.client.Stats()
	a.mu.Lock()
	gen, part, node, conf, reload, unhealthy := a.gen, a.part, a.node, a.conf, a.reload, a.unhealthy
	a.mu.Unlock()
	s := web.Status{
		Node: node, Cluster: conf.Cluster, Version: a.o.Version, Commit: a.o.Commit, Started: a.started,
		Held: HoldReason(conf.StateDir), Unhealthy: unhealthy,
		Consul: web.Consul{
			Address: conf.Consul.Address, LastAnswer: stats.LastAnswer, UnreachableSince: stats.UnreachableSince,
			Connections: stats.Connections, MaxConnections: stats.MaxConnections,
			Watches: stats.Watches, Failures: stats.Failures,
		},
		Reload: web.Reload{At: reload.at, OK: reload.err == nil},
	}
	if reload.err != nil {
		s.Reload.Error = reload.err.Error()
	}
	for _, v := range a.registrar.Status() {
		s.Services = append(s.Services, serviceView(v))
	}
	for _, v := range gen.engine.Status() {
		s.Templates = append(s.Templates, templateView(v))
	}
	if part != nil {
		s.Held, s.Rival = part.holds.Held(), part.nameConflict()
		if part.converge != nil {
			s.Convergence = convergenceView(part.converge.Status())
			if s.Convergence.Unorchestrated = part.admission.unorchestrated.Load(); s.Convergence.Unorchestrated {
				s.Convergence.Trouble = append(s.Convergence.Trouble, "no orchestrator runs: no host is offered a grant")
			}
		}
		for _, o := range part.orchestrated {
			s.Orchestrators = append(s.Orchestrators, orchestratorView(o.Status()))
		}
	}
	return s
}

func convergenceView(v converge.Status) *web.Convergence {
	c := &web.Convergence{
		Phase: string(v.Phase), Detail: v.Detail, Since: v.Since, Desired: v.Desired, Version: v.Version,
		Job: v.Job, Fails: v.Fails, Why: v.Why, Next: v.Next, Failing: v.Failing, Drifted: v.Drifted,
		Suspect: v.Suspect, Trouble: v.Trouble,
	}
	for _, m := range v.Missing {
		c.Missing = append(c.Missing, m.String())
	}
	return c
}

func orchestratorView(v orchestrator.Status) web.Orchestrator {
	o := web.Orchestrator{Cluster: v.Cluster, Active: v.Active, Since: v.Since, Cycles: v.Cycles, Fails: v.Fails, Event: v.Seq}
	if r := v.Last; r != nil {
		o.Last, o.Took, o.Outcome, o.Problems = r.Start, float64(r.Duration)/1000, r.Outcome, len(r.Problems)
		o.Idle, o.Error, o.Synced, o.Failed = r.Idle, r.Error, r.Synced, r.Failed
		for _, d := range r.Decisions {
			if d.Dropped == "" {
				o.Decisions = append(o.Decisions, web.Decision{Kind: d.Kind, Node: d.Node, Text: d.Text, Reason: d.Reason})
			}
		}
	}
	return o
}

func serviceView(v catalog.ServiceStatus) web.Service {
	s := web.Service{
		ID: v.ID, Name: v.Name, Registered: v.Registered, Stored: v.Stored,
		Presence: v.Presence, Since: v.Since, Error: v.Error,
	}
	for _, c := range v.Checks {
		s.Checks = append(s.Checks, web.Check{
			ID: c.ID, Name: c.Name, Kind: c.Kind, State: c.State, Since: c.Since,
			LastRun: c.LastRun, Took: c.Took.Seconds(), Output: c.Output, Error: c.Error,
		})
	}
	return s
}

func templateView(v watch.Status) web.Template {
	return web.Template{
		Name: v.Name, Destination: v.Destination, Together: v.Together, State: string(v.State),
		Waiting: v.Waiting, Held: v.Held, Stale: v.Stale, Lost: v.Lost, Edited: v.Edited, Error: v.Error,
		Changed: v.Changed, Checked: v.Checked, Writes: v.Writes, Executions: v.Executions,
	}
}

// rendered counts a finished job of the template engine.
func (a *Agent) rendered(r watch.Rendered) {
	a.metrics.Observe(web.Job{Took: r.Took, Changed: r.Changed, Reloaded: r.Reloaded, Failed: kindOf(r)})
}

func kindOf(r watch.Rendered) web.Kind {
	var check *replace.CheckError
	var reload *replace.ReloadError
	switch {
	case r.Err == nil, errors.Is(r.Err, watch.ErrHeld):
		return ""
	case r.Failed:
		return web.KindRender
	case errors.As(r.Err, &check):
		return web.KindCheck
	case errors.As(r.Err, &reload):
		return web.KindReload
	}
	return web.KindReplace
}

// reloading returns the message that sd_notify(3) requires at the start of a reload:
// the state and the time on the monotonic clock.
func reloading() string {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return "RELOADING=1"
	}
	return fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Nano()/1000)
}

// watchdogEvery is how often the engine's loop is checked if the service manager
// sets no watchdog interval.
const watchdogEvery = 20 * time.Second

// watchdog checks the engine's loop twice in each watchdog interval, notifies the
// service manager if it answers, and records it if not.
func (a *Agent) watchdog(ctx context.Context) error {
	every := watchdogEvery
	if a.o.Watchdog > 0 {
		every = a.o.Watchdog
	}
	tick := time.NewTicker(every / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := a.alive(ctx, every/4)
		if ctx.Err() != nil {
			return nil
		}
		a.setUnhealthy(err)
		if err == nil && a.o.Watchdog > 0 {
			a.o.Notify("WATCHDOG=1")
		}
	}
}

// alive returns nil when the engine's loop has answered or does not run. It does not
// run yet while interrupted replacements are repaired, by commands with their own
// timeouts, and no longer while the engine waits for its last commands to end.
func (a *Agent) alive(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	g := a.generation()
	if err := g.engine.Ping(ctx); err != nil && g.looping.Load() {
		return fmt.Errorf("the template engine does not answer: %w", err)
	}
	return nil
}

func (a *Agent) setUnhealthy(err error) {
	a.mu.Lock()
	changed := (err == nil) != (a.unhealthy == "")
	a.unhealthy = ""
	if err != nil {
		a.unhealthy = err.Error()
	}
	a.mu.Unlock()
	switch {
	case changed && err != nil:
		a.o.Log.Error("not alive", "error", err)
	case changed:
		a.o.Log.Info("alive again")
	}
}
