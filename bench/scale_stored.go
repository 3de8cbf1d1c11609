package main

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	jorcconsul "github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
)

// storedResult is what an orchestrator took for nodes without agents.
type storedResult struct {
	nodes     int
	first     samples // ms: the cycle that sees all nodes for the first time
	unchanged samples // ms
	changed   samples // ms
	rollout   samples // ms: those after a trigger
	rss       float64 // MB, peak
	largest   int     // bytes of the largest value below the cluster's prefix
	key       string  // its key
	bytes     int     // of all values
}

// measureStored measures the orchestrator alone, over members that are only in
// KV and in the catalog.
func (b *bench) measureStored(ctx context.Context) (r storedResult, err error) {
	f, err := b.newFleet(ctx, b.scale.stored)
	if err != nil {
		return r, err
	}
	defer f.close()
	r.nodes = f.size
	if err := f.store(ctx); err != nil {
		return r, err
	}
	o, err := b.orchestrate(ctx, f.consul, f.consul.http, b.scale.interval)
	if err != nil {
		return r, err
	}
	defer o.close()
	r.first = o.seenCycles(false)
	if err := calm(ctx, f.consul, b.scale.rest); err != nil {
		return r, err
	}
	o.reset()
	if err := o.await(ctx, uint64(b.scale.changes)); err != nil {
		return r, err
	}
	r.unchanged = o.seenCycles(true)
	o.reset()
	ledger := fleet.New(f.client, fleetPrefix, fleetCluster)
	for i := range b.scale.changes {
		if _, err := ledger.SetState(ctx, nodeName(i), cluster.CategoryConfig, cluster.CategoryState{State: cluster.StateFailed, Version: "v1", Detail: "measured"}); err != nil {
			return r, err
		}
		if err := o.await(ctx, 2); err != nil {
			return r, err
		}
	}
	r.changed = o.seenCycles(false)
	o.reset()
	_, err = f.rollouts().Trigger(ctx, rollout.Request{Version: "v2", Policy: func(p *pace.Policy) { p.MaxParallel = parallel }})
	if err != nil {
		return r, err
	}
	if err := o.await(ctx, uint64(b.scale.changes)); err != nil {
		return r, err
	}
	r.rollout = append(o.seenCycles(false), o.seenCycles(true)...)
	if _, r.rss, err = o.proc.memory(); err != nil {
		return r, err
	}
	return r, f.weigh(ctx, &r)
}

// store writes what members and their agents would have.
func (f *simulated) store(ctx context.Context) error {
	s := kv.New(f.client, path.Join(fleetPrefix, fleetCluster))
	documents := fleet.New(f.client, fleetPrefix, fleetCluster).Reports()
	batch := s.NonAtomicBatch()
	now := time.Now().UTC().Truncate(time.Second)
	fine := cluster.CategoryState{State: cluster.StateSuccess, Since: now, Version: "v1"}
	d := cluster.Report{Version: "v1", Since: now, States: map[string]cluster.CategoryState{
		cluster.CategoryProvisioned: fine, cluster.CategoryConfig: fine, cluster.CategoryValidation: fine,
	}}
	members := kv.NewTree[cluster.Record](s, cluster.PrefixHosts, 1).Ending(cluster.EndMember)
	for i := range f.size {
		t := s.Txn()
		members.At(nodeName(i)).SetIn(t, cluster.Record{Zone: fmt.Sprintf("rack-%d", i/40), Roles: []string{"web"}})
		documents.At(nodeName(i)).SetIn(t, d)
		running, config, validation := "running_version/v1/", "status/config/success/", "status/validation/success/"
		kv.NewText(s, running+nodeName(i)).SetIn(t, now.Format(time.RFC3339))
		for _, index := range []string{config, validation} {
			t.Set(index+nodeName(i), fmt.Appendf(nil, `{"since":%q,"version":"v1"}`, now.Format(time.RFC3339)))
		}
		batch.Add(t)
	}
	if err := batch.Commit(ctx); err != nil {
		return err
	}
	_, err := f.rollouts().Trigger(ctx, rollout.Request{Version: "v1"})
	return err
}

// weigh finds the largest value of the cluster.
func (f *simulated) weigh(ctx context.Context, r *storedResult) error {
	pairs, _, err := f.client.KVList(ctx, path.Join(fleetPrefix, fleetCluster)+"/", jorcconsul.Query{})
	if err != nil {
		return err
	}
	for _, p := range pairs {
		r.bytes += len(p.Value)
		if len(p.Value) > r.largest {
			r.largest, r.key = len(p.Value), strings.TrimPrefix(p.Key, path.Join(fleetPrefix, fleetCluster)+"/")
		}
	}
	return nil
}
