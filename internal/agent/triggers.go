package agent

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/workflow"
)

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
