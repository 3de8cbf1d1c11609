package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	jorcconsul "github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
)

// scaleSize is how much of the fleet's behaviour is measured.
type scaleSize struct {
	fleets   []int
	perHost  int           // agents of a process, at most
	perAgent int           // of them behind a Consul client agent, at most
	settled  time.Duration // from the start of the agents until anything else is measured
	idle     time.Duration
	rest     time.Duration // without a write: the fleet is at rest
	tabs     uiSize        // of the dashboard
	away     time.Duration // the Consul server, before it returns to the fleet
	storm    time.Duration // from then on requests are counted
	stored   int           // nodes of the orchestrator alone
	changes  int           // of them, one after the other
	interval time.Duration // of the orchestrator alone
	look     scaleLook
}

func fullScale() scaleSize {
	return scaleSize{
		fleets: []int{100, 1000, 5000}, perHost: 100, perAgent: 1000, settled: 128 * time.Second, idle: time.Minute, rest: 2 * time.Second,
		tabs: uiSize{changes: 10, streams: 50, idle: 10 * time.Second}, away: time.Minute, storm: stormWindow, stored: 5000, changes: 10, interval: time.Second,
	}
}

func quickScale() scaleSize {
	return scaleSize{
		fleets: []int{10, 50}, perHost: 10, perAgent: 30, settled: time.Second, idle: 5 * time.Second, rest: time.Second,
		tabs: uiSize{changes: 2, streams: 5, idle: time.Second}, away: 5 * time.Second, storm: 2 * time.Second, stored: 500, changes: 3, interval: time.Second,
	}
}

// fleetResult is the result for a fleet of one size.
type fleetResult struct {
	size    int
	join    window  // from nothing to all members at rest
	memory  float64 // MB of each agent
	consul  float64 // MB of the Consul server, with all of them
	client  float64 // MB of a Consul agent in front of the hosts
	first   window  // the first version
	change  window  // another version
	idle    window
	watches int // queries of an agent that block at rest
	rollout rolloutResult
	run     runResult
	stage   window
	storm   stormResult
}

// stepFunc measures a part of what a fleet does.
type stepFunc func(what string, w *window, do func(context.Context) error) error

// steps returns the stepFunc of a fleet, which logs what it measured.
func (b *bench) steps(ctx context.Context, f *simulated) stepFunc {
	return func(what string, w *window, do func(context.Context) error) error {
		begin, size := time.Now(), float64(f.size)
		if _, err := f.kinds(ctx); err != nil {
			return err
		}
		name := fmt.Sprintf("%d %s", f.size, what)
		got, err := f.during(ctx, b.scale.rest, func(ctx context.Context) error { return b.scale.look.profiled(ctx, f, name, do) })
		if err != nil {
			return fmt.Errorf("%d agents: %s: %w", f.size, what, err)
		}
		*w = got
		fmt.Fprintf(b.log, "         %s: %s, with the rest after it %s; %.2f writes, %.2f conflicts, %.1f requests, %.1f KB per node\n", what,
			got.took.Round(time.Millisecond), time.Since(begin).Round(time.Second), got.ok()/size, got.asked.Conflicts/size, got.asked.requests()/size, got.asked.Received/size/1000)
		fmt.Fprintf(b.log, "         per node: %.2f ms; of the agent's processor %.2f ms, of Consul's %.2f ms, of its Consul agent's %.2f ms\n",
			millisPer(f.size, got.took), millisPer(f.size, got.agents), millisPer(f.size, got.consul), millisPer(f.size, got.clients))
		return b.printKinds(ctx, f, what)
	}
}

// printKinds lists the agents' requests since the last call by kind, where they are counted by kind.
func (b *bench) printKinds(ctx context.Context, f *simulated, what string) error {
	if !f.countKinds {
		return nil
	}
	all, err := f.kinds(ctx)
	printKinds(b.log, what, f.size, all)
	return err
}

// measureFleet measures a fleet of one size. last: it is the largest one.
func (b *bench) measureFleet(ctx context.Context, size int, r *scaleReport, last bool) (err error) {
	f, err := b.newFleet(ctx, size)
	if err != nil {
		return err
	}
	defer f.close()
	if err := b.startHosts(ctx, f); err != nil {
		return err
	}
	one := fleetResult{size: size}
	if b.scale.look.has("rollout") {
		if one.rollout.floor, err = b.measureFloor(ctx, f); err != nil {
			return fmt.Errorf("%d hosts without jorc: %w", size, err)
		}
	}
	if err := b.measureAgents(ctx, f, &one); err != nil {
		return err
	}
	if err := b.measureOrchestrated(ctx, f, &one, r, last); err != nil {
		return err
	}
	r.Fleets = append(r.Fleets, one)
	return nil
}

// measureAgents measures what needs no orchestrator.
func (b *bench) measureAgents(ctx context.Context, f *simulated, r *fleetResult) error {
	step := b.steps(ctx, f)
	before, err := f.memory(ctx)
	if err != nil {
		return err
	}
	if err := step("start", &r.join, f.start); err != nil {
		return err
	}
	// Until then each wait that ends is a request of the agent's age, not of what is measured.
	if sleep(ctx, b.scale.settled); ctx.Err() != nil {
		return ctx.Err()
	}
	if err := step("first version", &r.first, f.trigger("v1", nil)); err != nil {
		return err
	}
	if b.scale.look.has("change") {
		if err := step("version change", &r.change, f.trigger("v2", nil)); err != nil {
			return err
		}
	}
	if b.scale.look.has("idle") {
		index, err := f.consul.raftIndex(ctx)
		if err != nil {
			return err
		}
		if err := step("idle", &r.idle, func(ctx context.Context) error { sleep(ctx, b.scale.idle); return ctx.Err() }); err != nil {
			return err
		}
		if r.idle.writes > 0 {
			fmt.Fprintf(b.log, "         written while idle: %s\n", strings.Join(f.changed(ctx, index), " "))
		}
	}
	if r.watches, err = f.watches(ctx); err != nil {
		return err
	}
	after, err := f.memory(ctx)
	if err != nil {
		return err
	}
	r.memory = (after - before) / float64(f.size)
	if r.consul, _, err = f.consul.proc.memory(); err != nil {
		return err
	}
	if r.client, _, err = f.clients[0].proc.memory(); err != nil || !b.scale.look.has("storm") {
		return err
	}
	if r.storm, err = b.storm(ctx, f); err != nil {
		return fmt.Errorf("%d agents: Consul's return: %w", f.size, err)
	}
	fmt.Fprintf(b.log, "         Consul's return: all current after %s; %.1f requests per node within %s, the longest answer to another %.0f ms\n",
		r.storm.took.Round(time.Millisecond), r.storm.asked.requests()/float64(f.size), b.scale.storm, r.storm.answers.most())
	return nil
}

// trigger makes a version the desired one and waits until all run it.
func (f *simulated) trigger(version string, policy func(*pace.Policy)) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := f.rollouts().Trigger(ctx, rollout.Request{Version: version, Policy: policy})
		if err != nil {
			return err
		}
		return f.converged(ctx, version)
	}
}

func (f *simulated) rollouts() *rollout.Rollouts {
	return rollout.New(f.client, fleetPrefix, fleetCluster)
}

// changed names the keys that were written after index.
func (f *simulated) changed(ctx context.Context, index uint64) (keys []string) {
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
