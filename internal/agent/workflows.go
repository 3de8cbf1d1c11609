package agent

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/leaders"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/workflow"
)

// work executes this host's tasks of runs until ctx ends.
func (p *part) work(ctx context.Context) error {
	return runs.NewWorker(runs.WorkerOptions{
		Store: p.cluster.Store(), Node: p.node, Runner: p.jobs, Manager: p.managing, Gates: p.gates,
		Begin: p.holds.begin, Held: p.holds.Held, Maintenance: p.maintenance, Version: p.version, Log: p.log.Named("runs"),
	}).Run(ctx)
}

// mayBeJoinedManually reports whether workOnceJoined has to run: neither the
// configuration nor a guest cluster makes this host work on the cluster's runs.
func (p *part) mayBeJoinedManually() bool {
	if p.conf.Member != nil {
		return false
	}
	for _, o := range p.guestClusters {
		if o.cluster.Name() == p.cluster.Name() {
			return false
		}
	}
	return true
}

// workOnceJoined works on runs once an operator has joined the host manually, so
// that a record of it exists although its configuration has no member block. Work
// that has begun continues when the host leaves. It returns ctx's error.
func (p *part) workOnceJoined(ctx context.Context) error {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	joined := false
	err := p.cluster.WatchRecord(waiting, p.node, func(u kv.Update[cluster.Record]) {
		switch {
		case u.Err != nil:
			p.log.Debug("cannot read whether this host was joined manually", "error", u.Err)
		case u.Entry.Exists:
			joined = true
			cancel()
		}
	})
	if !joined {
		return err
	}
	p.log.Info("this host was joined manually; it works on runs", "cluster", p.cluster.Name())
	g, ctx := errgroup.WithContext(ctx)
	if !participates(p.conf) {
		g.Go(func() error { return p.holds.run(ctx) })
	}
	g.Go(func() error { return p.work(ctx) })
	return g.Wait()
}

// triggers runs the workflows of the configuration's triggers until ctx ends.
func (p *part) triggers(ctx context.Context) error {
	return p.jobs.RunTriggers(ctx, workflow.TriggerOptions{
		StateDir: p.conf.StateDir, Triggers: p.conf.Triggers, Log: p.log.Named("triggers"),
		Source: func(t config.Trigger, after uint64, known bool) workflow.TriggerSource {
			if t.Event == "" {
				return workflow.ConsulSource(p.client, t, p.log.Named("triggers"))
			}
			return events{store: p.cluster.Store(), kind: t.Event, after: after, known: known, log: p.log}
		},
	})
}

// events are the events of one kind in the cluster's journal.
type events struct {
	store *kv.Store
	kind  string
	after uint64
	known bool // after is set
	log   hclog.Logger
}

// Watch implements workflow.TriggerSource.
func (e events) Watch(ctx context.Context, observe func(workflow.Observation)) error {
	if !e.known {
		saved, err := orchestrator.ReadView(ctx, e.store)
		if err != nil {
			return err
		}
		e.after = saved.Commit.Seq
		observe(workflow.Observation{Happened: true, UpTo: e.after})
	}
	last := e.after
	return orchestrator.FollowEvents(ctx, e.store, e.after, func(all []orchestrator.Event) error {
		restarted := all[0].Seq <= last
		if last = all[len(all)-1].Seq; restarted { // the cluster was deleted, or an older state restored
			observe(workflow.Observation{Happened: true, UpTo: last, Restarted: true})
			return nil
		}
		items := map[string]workflow.Item{}
		for _, v := range all {
			if v.Kind != e.kind {
				continue
			}
			data, err := json.Marshal(v)
			if err != nil {
				return err
			}
			items[strconv.FormatUint(v.Seq, 10)] = data
		}
		if len(items) > 0 {
			observe(workflow.Observation{Items: items, Happened: true})
		}
		return nil
	}, func(err error) { e.log.Warn("cannot read the events of a trigger", "event", e.kind, "error", err) })
}

// Reasons for which a leader's workflow ends between two tasks.
var (
	errNotLeading    = errors.New("this member no longer leads")
	errStepDownIsDue = errors.New("another member takes the place of this one")
)

// stepDownWithin bounds the workflow of a former leader: after
// cluster.Timing.StepDown another member takes its place in any case.
const stepDownWithin = time.Minute

// runLeaderWorkflows runs on_lead when this member begins to lead, and on_step_down
// when ctx ends because it no longer leads. No other member takes the place before
// that workflow or the time for stepping down has ended.
func (p *part) runLeaderWorkflows(ctx context.Context) {
	p.log.Info("this member leads now", "cluster", p.cluster.Name())
	_, led := p.leadership.last(p.log)
	if err := p.leadership.begin(storePrefix(p.conf), p.node); err != nil {
		p.log.Error("cannot keep that this member leads: on_step_down will not run if it loses its place while the agent is down", "error", err)
	}
	if name := p.conf.Member.OnLead; name != "" && !p.leadership.ended {
		p.leadership.ended = p.runLeaderWorkflow(ctx, errNotLeading, p.leaderJob(name, p.leading(), led))
	}
	<-ctx.Done()
	if p.running.Err() != nil {
		return // the agent ends, or has a new configuration; the place stays this member's
	}
	p.log.Info("this member no longer leads", "cluster", p.cluster.Name())
	p.stepDown(false)
}

// stepDown runs on_step_down and ends the term; resumed: an agent before may have begun it.
func (p *part) stepDown(resumed bool) {
	if name := p.conf.Member.OnStepDown; name != "" {
		down, cancel := context.WithTimeout(p.running, stepDownWithin)
		defer cancel()
		if !p.runLeaderWorkflow(down, errStepDownIsDue, p.leaderJob(name, p.notLeading(), resumed)) {
			return
		}
	}
	p.endTerm()
}

func (p *part) endTerm() {
	if err := p.leadership.end(); err != nil {
		p.log.Warn("cannot forget that this member led: on_step_down runs again at the next start unless it leads then", "error", err)
	}
}

// stepDownIfReplaced runs on_step_down if this host led when its agent ended and another
// member may lead now: when it no longer leads, or cannot know that for as long as a leader
// continues without Consul.
func (p *part) stepDownIfReplaced(ctx context.Context) {
	last, led := p.leadership.last(p.log)
	switch {
	case !led:
		return
	case p.conf.Member == nil || p.conf.Member.OnStepDown == "" && p.conf.Member.OnLead == "":
		p.endTerm()
		return
	case last.Cluster == storePrefix(p.conf) && last.Node == p.node && p.leads(ctx):
		return
	case ctx.Err() != nil || p.holds.free(ctx) != nil:
		return
	}
	p.log.Info("this member lost its place as a leader while its agent was away", "cluster", p.cluster.Name())
	if job, ok := p.lastLeaderJob(); ok && job.Open && job.Origin == p.leading() {
		if _, err := p.jobs.Abandon(p.running, job.ID, errNotLeading.Error()); err != nil {
			p.log.Warn("cannot end the job of an earlier leadership", "job", job.ID, "error", err)
		}
	}
	p.stepDown(true)
	leaders.ConfirmStepDown(ctx, p.cluster.Cluster, p.node, cluster.Timing{})
}

// leads reports whether this member leads, by an answer within the time for which a leader
// continues without one.
func (p *part) leads(ctx context.Context) (leads bool) {
	ctx, cancel := context.WithTimeout(ctx, cluster.DefaultStepDown)
	defer cancel()
	_ = concurrency.Retry(ctx, concurrency.NewBackoff(time.Second, time.Second), func(ctx context.Context) error {
		l, err := p.cluster.Consistent().Leaders(ctx)
		leads = err == nil && l.Leads(p.node)
		return err
	}, nil) // without an answer it does not lead
	return leads
}

// leaderJob returns a job of a workflow: a new one or, with resumed, the one of the same
// origin that a restart of the agent cut off. That one continues, or stays interrupted.
func (p *part) leaderJob(name, origin string, resumed bool) workflow.Job {
	job := workflow.Job{Workflow: name, Origin: origin}
	if !resumed {
		return job
	}
	last, ok := p.lastLeaderJob()
	if ok && last.Origin == origin && last.Workflow == name && (last.Open || last.State == workflow.Interrupted) {
		job.ID = last.ID
	}
	return job
}

// lastLeaderJob returns the last job of on_lead or on_step_down.
func (p *part) lastLeaderJob() (last workflow.Result, ok bool) {
	jobs, err := p.jobs.Jobs()
	if err != nil {
		p.log.Warn("cannot read whether a job of a leader was interrupted", "error", err)
	}
	i := slices.IndexFunc(jobs, func(j workflow.Result) bool { return j.Origin == p.leading() || j.Origin == p.notLeading() })
	if i < 0 {
		return last, false
	}
	return jobs[i], true
}

// leading and notLeading are the origins of jobs of on_lead and of on_step_down.
func (p *part) leading() string    { return "leading cluster " + p.cluster.Name() }
func (p *part) notLeading() string { return "no longer leading cluster " + p.cluster.Name() }

// runLeaderWorkflow runs a job to its end and does not repeat one that failed. When
// ctx ends the job ends early, with why as the reason. It returns false if this part ended
// before the job did, or interrupted it: the next part learns how the job ends.
func (p *part) runLeaderWorkflow(ctx context.Context, why error, job workflow.Job) (ended bool) {
	res, err := p.jobs.Drive(p.running, job, workflow.Hooks{Watch: func(watching context.Context, stop func(error)) {
		select {
		case <-ctx.Done():
			stop(why)
		case <-watching.Done():
		}
	}})
	switch {
	case p.running.Err() != nil && (res.ID == "" || res.Open || res.State == workflow.Interrupted):
		return false
	case p.running.Err() != nil: // a reload waits for the task that runs: the job may end with this part
		p.log.Info("workflow ended", "workflow", job.Workflow, "for", job.Origin, "state", res.State, "why", res.Why)
	case errors.Is(err, why):
		p.log.Info("workflow ended early", "workflow", job.Workflow, "for", job.Origin, "why", err)
	case err != nil:
		p.log.Error("cannot run the workflow", "workflow", job.Workflow, "for", job.Origin, "error", err)
	case res.State == workflow.Interrupted:
		p.log.Error("workflow was interrupted and is not run again by itself: 'jorc workflow run' runs it", "workflow", job.Workflow, "for", job.Origin, "why", res.Why)
	default:
		p.log.Info("workflow ended", "workflow", job.Workflow, "for", job.Origin, "state", res.State, "why", res.Why)
	}
	return true
}
