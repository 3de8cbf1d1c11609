package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/converge"
	"github.com/jorc/jorc/internal/lease"
	"github.com/jorc/jorc/internal/metrics"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/replace"
	"github.com/jorc/jorc/internal/supervise"
	"github.com/jorc/jorc/internal/watch"
	"github.com/jorc/jorc/internal/web"
	"github.com/jorc/jorc/internal/workflow"
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
	if s.Resting = a.loading.why(); s.Resting != "" {
		s.NotReady = append(s.NotReady, s.Resting)
	}
	if reload.err != nil {
		s.Reload.Error = reload.err.Error()
	}
	s.Expiry = expiryViews(a.expiring.items(conf, gen.engine), time.Now())
	for _, v := range a.registrar.Status() {
		s.Services = append(s.Services, serviceView(v))
	}
	environments := map[string]watch.Status{} // of processes, by their names
	for _, v := range gen.engine.Status() {
		if process, ok := supervise.ProcessOf(v.Name); ok {
			environments[process] = v
			continue
		}
		s.Templates = append(s.Templates, templateView(v))
	}
	for _, v := range a.processes.Status() {
		s.Processes = append(s.Processes, processView(v, environments[v.Name]))
	}
	for _, v := range workflow.Triggers(conf.StateDir, conf.Triggers) {
		s.Triggers = append(s.Triggers, triggerView(v))
	}
	for _, v := range workflow.Schedules(conf.StateDir, node, conf.Triggers) {
		s.Schedules = append(s.Schedules, scheduleView(v))
	}
	s.Lease = leaseView(a.leases.Status())
	if part != nil {
		now := time.Now()
		s.Rival = part.nameConflict()
		s.Held, s.HeldUntil = part.holds.heldText(now)
		if report, known := part.report.Seen().Get(); known {
			s.Grant, s.Stages = grantView(report.Answered(cluster.VersionChange)), stageViews(report, part.unorchestrated.files.is.Load())
		}
		if part.converge != nil {
			s.Convergence = convergenceView(part.converge.Status())
			s.Convergence.Detail = part.holds.pauseText(s.Convergence.Detail, now)
			if s.Convergence.Unorchestrated = part.unorchestrated.grant.is.Load(); s.Convergence.Unorchestrated {
				s.Convergence.Trouble = append(s.Convergence.Trouble, "no orchestrator runs: no host is offered a grant")
			}
		}
		for _, o := range part.orchestrated {
			s.Orchestrators = append(s.Orchestrators, orchestratorView(o.Status()))
		}
	}
	return s
}

// grantView is the grant that the host has accepted and that is open; nil: no grant is open.
func grantView(a cluster.Answer) *web.Grant {
	if !a.Open() {
		return nil
	}
	return &web.Grant{Version: a.Tag, State: a.State, Since: a.Since, Reason: a.Reason}
}

func leaseView(l lease.Status) *web.Lease {
	if l.State == lease.None {
		return nil
	}
	v := &web.Lease{ID: l.ID, State: string(l.State), Reason: l.Reason, Since: l.Since, Until: l.Until, Trouble: l.Trouble}
	if l.Waits != nil {
		v.Waits = l.Waits.Reason
	}
	return v
}

// stageViews are the stages in which something runs, waits or failed, in order.
func stageViews(r cluster.Report, unorchestrated bool) (all []web.Stage) {
	for _, name := range slices.Sorted(maps.Keys(r.Stages)) {
		s := r.Stages[name]
		t := web.Stage{Stage: name, State: s.Shown(), Since: r.Answered(cluster.FilesChange(name)).Since, Reason: s.Reason, Changed: s.Taken.Names()}
		switch {
		case t.State == "", t.State == cluster.StageDone:
			continue
		case t.State == cluster.StageWaiting:
			t.Since, t.Reason, t.Changed, t.Unorchestrated = s.WantsSince, "", s.Changed.Names(), unorchestrated
		case s.Unhealthy():
			t.Failed = true
		}
		all = append(all, t)
	}
	return all
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
			o.Decisions = append(o.Decisions, d.Decision)
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
		Name: v.Name, Destination: v.Destination, Together: v.Together, State: string(v.State), Since: v.Since,
		Waiting: v.Waiting, Held: v.Held, Stale: v.Stale, Lost: v.Lost, Edited: v.Edited, Error: v.Error,
		Changed: v.Changed, Checked: v.Checked, Writes: v.Writes, Executions: v.Executions,
	}
}

func triggerView(v workflow.TriggerStatus) web.Trigger {
	t := web.Trigger{Trigger: v.Trigger, Kind: v.Kind, Workflow: v.Workflow, Running: v.Running, Error: v.Error}
	if v.Last != nil {
		t.Last = &web.LastJob{Job: v.Last.Job, State: string(v.Last.State), Why: v.Last.Why, At: v.Last.At}
	}
	return t
}

func scheduleView(v workflow.ScheduleStatus) web.Schedule {
	return web.Schedule{
		Trigger: v.Trigger, Schedule: v.Schedule, Zone: v.Zone, Workflow: v.Workflow, LastRun: v.LastRun, NextRun: v.NextRun,
		Missed: web.Missed(v.Missed), Error: v.Error,
	}
}

// processView returns the status of a process and of the data of its environment.
func processView(v supervise.Status, env watch.Status) web.Process {
	p := web.Process{
		Name: v.Name, State: string(v.State), Since: v.Since, PID: v.PID, Starts: v.Starts,
		Waiting: v.Waiting, Pending: v.Pending, Error: v.Error, Next: v.Next,
	}
	for _, what := range env.Waiting {
		p.Waiting = append(p.Waiting, "its environment: "+what)
	}
	for _, what := range env.Stale {
		p.Stale = append(p.Stale, "its environment: "+what)
	}
	if env.Error != "" {
		p.Error = strings.TrimPrefix(p.Error+"; its environment: "+env.Error, "; ")
	}
	return p
}

// fleetMetrics collects the metrics of the clusters that the agent orchestrates.
func (a *Agent) fleetMetrics(out *metrics.Exposition) {
	a.mu.Lock()
	part := a.part
	a.mu.Unlock()
	if part == nil {
		return
	}
	for _, o := range part.orchestrated {
		o.Collect(out)
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
	now := monotonic()
	if now == 0 {
		return "RELOADING=1"
	}
	return fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now)
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

// How often the summary of the host is rebuilt: while an administrator may read a
// start, and after it.
const (
	summaryStart = time.Second
	summaryEvery = 10 * time.Second
)

// announce tells the service manager how the host is, which `systemctl status` shows.
func (a *Agent) announce(ctx context.Context) error {
	for said := ""; ; {
		summary, ready := web.Summary(a.Status())
		if summary != said {
			a.o.Notify("STATUS=" + summary)
			said = summary
		}
		pause := summaryEvery
		if !ready {
			pause = summaryStart
		}
		if err := concurrency.Sleep(ctx, pause); err != nil {
			return nil // the agent stops
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

// checks publishes which health checks of this node fail.
type checks struct {
	client *consul.Client
	node   string
	shared *concurrency.Latest[catalog.NodeChecks] // the registrar's, or nil
	log    hclog.Logger
	all    concurrency.Latest[converge.Health]
	own    concurrency.Latest[converge.Health] // of the checks that the host's configuration can fix
}

// Watch implements converge.Checks.
func (c *checks) Watch(ctx context.Context, handle func(converge.Health)) error {
	return c.all.Watch(ctx, handle)
}

// ownChecks are the checks that decide whether the host's configuration works. The
// gossip check is not one of them: the static workflow cannot fix the host's
// connection to the gossip pool.
type ownChecks struct{ *checks }

// Watch implements converge.Checks.
func (c ownChecks) Watch(ctx context.Context, handle func(converge.Health)) error {
	return c.own.Watch(ctx, handle)
}

// fixable returns the checks that the host's configuration can fix.
func fixable(all consul.HealthChecks) consul.HealthChecks {
	return slices.DeleteFunc(slices.Clone(all), func(h *consul.HealthCheck) bool { return h.CheckID == consul.GossipCheck })
}

// run follows the node's checks until ctx ends. While they cannot be read the last
// known state counts.
func (c *checks) run(ctx context.Context) error {
	var seen concurrency.Latest[consul.HealthChecks]
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return seen.Watch(ctx, func(all consul.HealthChecks) { c.setOwn(ctx, &seen, all) }) })
	g.Go(func() error {
		return c.read(ctx, func(all consul.HealthChecks) {
			c.all.Set(healthOf(all))
			seen.Set(all)
		})
	})
	return g.Wait()
}

// read calls handle with the node's checks and after each change. It uses the
// registrar's query unless the configured node name differs from the Consul agent's.
func (c *checks) read(ctx context.Context, handle func(consul.HealthChecks)) error {
	if c.shared != nil {
		first, err := c.shared.Wait(ctx, func(catalog.NodeChecks) bool { return true })
		if err != nil {
			return err
		}
		if first.Node == c.node {
			return c.shared.Watch(ctx, func(n catalog.NodeChecks) { handle(n.Checks) })
		}
	}
	source := func(ctx context.Context, q consul.Query) (consul.HealthChecks, consul.Meta, error) {
		return c.client.HealthNode(ctx, c.node, q)
	}
	return consul.Watch(ctx, c.client, consul.Query{}, source, func(u consul.Update[consul.HealthChecks]) {
		if u.Err == nil && !u.Meta.Filtered {
			handle(u.Value)
		}
	})
}

// confirmInterval is the pause between two comparisons while the catalog and the
// local agent differ.
const confirmInterval = 2 * time.Second

// setOwn sets the failing checks that the host can fix. A check that is critical in
// the catalog counts only while it is critical on the local agent, too: while the
// servers have no leader the catalog does not change, and afterwards it still holds
// old states for a moment.
func (c *checks) setOwn(ctx context.Context, seen *concurrency.Latest[consul.HealthChecks], all consul.HealthChecks) {
	for {
		real, agreed := c.confirmed(ctx, fixable(all))
		c.own.Set(healthOf(real))
		if agreed || concurrency.Sleep(ctx, confirmInterval) != nil {
			return
		}
		if now, _ := seen.Get(); !reflect.DeepEqual(now, all) {
			return // the next call handles it
		}
	}
}

// confirmed returns all without the critical checks that are not critical on the
// local agent; agreed: the catalog and the agent did not differ.
func (c *checks) confirmed(ctx context.Context, all consul.HealthChecks) (real consul.HealthChecks, agreed bool) {
	if len(failing(all)) == 0 {
		return all, true
	}
	local, err := c.client.AgentChecks(ctx, "")
	if err != nil {
		return all, false
	}
	real = slices.DeleteFunc(slices.Clone(all), func(h *consul.HealthCheck) bool {
		l := local[h.CheckID]
		return h.Status == consul.HealthCritical && l != nil && l.Status != consul.HealthCritical
	})
	return real, len(real) == len(all)
}

// healthOf returns what the checks of a host say.
func healthOf(all consul.HealthChecks) converge.Health {
	return converge.Health{Failing: failing(all), Drained: slices.ContainsFunc(all, func(h *consul.HealthCheck) bool {
		return consul.IsMaintenance(h.CheckID) && !consul.StartedByJorc(h.Notes)
	})}
}

// failing describes the critical checks, except maintenance, and jorc's presence
// service, which an agent of another cluster may have left behind.
func failing(all consul.HealthChecks) []string {
	list := []string{}
	presence := catalog.PresenceID("") // the service's name, whatever its cluster
	for _, h := range all {
		if h.Status != consul.HealthCritical || h.ServiceName == presence || consul.IsMaintenance(h.CheckID) {
			continue
		}
		text := h.ServiceName
		if text == "" {
			text = "host"
		}
		text += ": " + h.Name + " is " + h.Status
		if line, _, _ := strings.Cut(strings.TrimSpace(h.Output), "\n"); line != "" {
			text += fmt.Sprintf(": %.200s", line)
		}
		list = append(list, text)
	}
	slices.Sort(list)
	return list
}
