package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	jorcconsul "github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/rollout"
)

// scaleSize is how much of the fleet's behaviour is measured.
type scaleSize struct {
	fleets   []int
	idle     time.Duration
	rest     time.Duration // without a write: the fleet is at rest
	stored   int           // nodes of the orchestrator alone
	changes  int           // of them, one after the other
	interval time.Duration // of the orchestrator alone
	look     scaleLook
}

func fullScale() scaleSize {
	return scaleSize{fleets: []int{100, 1000}, idle: 2 * time.Minute, rest: 2 * time.Second, stored: 5000, changes: 10, interval: time.Second}
}

func quickScale() scaleSize {
	return scaleSize{fleets: []int{10, 50}, idle: 5 * time.Second, rest: time.Second, stored: 500, changes: 3, interval: time.Second}
}

// fleetResult is the result for a fleet of one size.
type fleetResult struct {
	size    int
	join    window  // from nothing to all members at rest
	memory  float64 // MB of each agent
	consul  float64 // MB of the Consul server, with all of them
	first   window  // the first version
	change  window  // another version
	idle    window
	watches int // queries of an agent that block at rest
	rollout rolloutResult
}

// rolloutResult is the result for a rollout.
type rolloutResult struct {
	window
	limit  int
	served float64 // writes of the Consul agents of the nodes: maintenance mode
	next   samples // ms, from a released slot to the next node
	cycles samples // ms, of the cycles that changed something
	rss    float64 // MB, peak of the orchestrator
}

// parallel is the share of nodes that may be out of service.
var parallel = rollout.Amount{N: 10, Percent: true}

// measureFleet measures a fleet of one size.
func (b *bench) measureFleet(ctx context.Context, size int) (r fleetResult, err error) {
	r.size = size
	before, err := ownMemory()
	if err != nil {
		return r, err
	}
	f, err := b.newFleet(ctx, size)
	if err != nil {
		return r, err
	}
	defer f.close()
	step := func(what string, w *window, do func(context.Context) error) error {
		begin := time.Now()
		f.kinds()
		name := fmt.Sprintf("%d %s", size, what)
		got, err := f.during(ctx, b.scale.rest, func(ctx context.Context) error { return b.scale.look.profiled(ctx, f.consul, name, do) })
		if err != nil {
			return fmt.Errorf("%d agents: %s: %w", size, what, err)
		}
		*w = got
		fmt.Fprintf(b.log, "         %s: %s, with the rest after it %s; %.2f writes, %.2f conflicts, %.1f reads per node\n", what,
			got.took.Round(time.Millisecond), time.Since(begin).Round(time.Second), got.ok()/float64(size), got.asked.conflicts/float64(size), got.asked.reads/float64(size))
		fmt.Fprintf(b.log, "         per node: %.2f ms, of the agent's processor %.2f ms, of Consul's %.2f ms\n", float64(got.took.Milliseconds())/float64(size),
			float64(got.agents.Microseconds())/1000/float64(size), float64(got.consul.Microseconds())/1000/float64(size))
		if b.scale.look.requests {
			printKinds(b.log, what, size, f.kinds())
		}
		return nil
	}
	if err := step("start", &r.join, f.start); err != nil {
		return r, err
	}
	if err := step("first version", &r.first, f.trigger("v1", nil)); err != nil {
		return r, err
	}
	if b.scale.look.has("change") {
		if err := step("version change", &r.change, f.trigger("v2", nil)); err != nil {
			return r, err
		}
	}
	if b.scale.look.has("idle") {
		index, err := f.consul.raftIndex(ctx)
		if err != nil {
			return r, err
		}
		if err := step("idle", &r.idle, func(ctx context.Context) error { sleep(ctx, b.scale.idle); return ctx.Err() }); err != nil {
			return r, err
		}
		if r.idle.writes > 0 {
			fmt.Fprintf(b.log, "         written while idle: %s\n", strings.Join(f.changed(ctx, index), " "))
		}
	}
	r.watches = f.watches()
	after, err := ownMemory()
	if err != nil {
		return r, err
	}
	r.memory = (after - before) / float64(size)
	if r.consul, _, err = f.consul.proc.memory(); err != nil {
		return r, err
	}
	if b.scale.look.has("rollout") {
		return r, b.rollOut(ctx, f, &r.rollout, step)
	}
	return r, nil
}

// trigger makes a version the desired one and waits until all run it.
func (f *fleet) trigger(version string, policy func(*rollout.Policy)) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := f.rollouts().Trigger(ctx, rollout.Request{Version: version, Policy: policy})
		if err != nil {
			return err
		}
		return f.converged(ctx, version)
	}
}

func (f *fleet) rollouts() *rollout.Rollouts { return rollout.New(f.client, fleetPrefix, fleetCluster) }

// changed names the keys that were written after index.
func (f *fleet) changed(ctx context.Context, index uint64) (keys []string) {
	pairs, _, err := f.client.KVList(ctx, "", jorcconsul.Query{})
	if err != nil {
		return []string{err.Error()}
	}
	for _, p := range pairs {
		if p.ModifyIndex > index {
			keys = append(keys, p.Key)
		}
	}
	return keys
}

// rollOut measures a rollout with an orchestrator.
func (b *bench) rollOut(ctx context.Context, f *fleet, r *rolloutResult, step func(string, *window, func(context.Context) error) error) error {
	to, asked := f.consul.http, &kinds{}
	if b.scale.look.requests {
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
	if err := calm(ctx, f.consul, b.scale.rest); err != nil {
		return err
	}
	o.reset()
	f.outages.reset()
	asked.take()
	err = step("rollout", &r.window, func(ctx context.Context) error {
		if err := f.trigger("v3", func(p *rollout.Policy) { p.MaxParallel = parallel })(ctx); err != nil {
			return err
		}
		return f.done(ctx)
	})
	if err != nil {
		return err
	}
	if b.scale.look.requests {
		printKinds(b.log, "the orchestrator's", f.size, asked.take())
	}
	r.limit = parallel.Of(f.size)
	r.next, r.served = f.outages.gaps(r.limit), f.outages.writes
	r.cycles = o.seenCycles(false)
	_, r.rss, err = o.proc.memory()
	return err
}

// done returns when the rollout is done.
func (f *fleet) done(ctx context.Context) error {
	watch, stop := context.WithCancel(ctx)
	defer stop()
	var last rollout.Document
	_ = f.rollouts().Watch(watch, func(u kv.Update[rollout.Document]) {
		if last = u.Entry.Value; u.Err == nil && last.Over() {
			stop()
		}
	}) // ends with watch
	if last.Phase != rollout.Done {
		return fmt.Errorf("the rollout is %s: %+v: %w", last.StateText(), last.Counts, context.Cause(ctx))
	}
	return nil
}
