package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/converge"
)

// maintenances records when nodes enter and leave maintenance mode, and writes to
// the catalog what their Consul agents would: like them after it has answered, for each node one after the other.
type maintenances struct {
	ctx context.Context // of the writes
	api *api

	mu            sync.Mutex
	begins, lifts map[string]time.Time
	writes        float64
	last          map[string]chan struct{} // of each node's last write; closed when it has ended
	failed        error
	writing       sync.WaitGroup
}

// newMaintenances returns those of nodes with the Consul agent at an address.
func newMaintenances(ctx context.Context, address string) *maintenances {
	return &maintenances{
		ctx: ctx, api: newAPI("http://" + address),
		begins: map[string]time.Time{}, lifts: map[string]time.Time{}, last: map[string]chan struct{}{},
	}
}

// write changes the catalog after the node's writes before.
func (t *maintenances) write(node, path string, v any) {
	before, done := t.last[node], make(chan struct{})
	t.last[node] = done
	t.writes++
	t.writing.Go(func() {
		defer close(done)
		if before != nil {
			<-before
		}
		if err := t.api.putJSON(t.ctx, path, v); err != nil {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.failed = errors.Join(t.failed, err)
		}
	})
}

// Outages are when nodes entered and left maintenance mode, and the writes for that.
type Outages struct {
	Begins, Lifts []time.Time
	Writes        float64
}

// take returns what was recorded since it was last called, once all of it is written, and why that failed.
func (t *maintenances) take() (Outages, error) {
	t.writing.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	o := Outages{slices.Collect(maps.Values(t.begins)), slices.Collect(maps.Values(t.lifts)), t.writes}
	err := t.failed
	t.begins, t.lifts, t.writes, t.failed = map[string]time.Time{}, map[string]time.Time{}, 0, nil
	return o, err
}

// maintenance is the maintenance mode of one node.
type maintenance struct {
	*maintenances
	node string
}

var _ converge.Maintenance = maintenance{}

const maintenanceCheck = "_node_maintenance"

// Begin implements converge.Maintenance.
func (t maintenance) Begin(_ context.Context, reason string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, in := t.begins[t.node]; in {
		return nil
	}
	t.begins[t.node] = time.Now()
	t.write(t.node, "/v1/catalog/register", map[string]any{
		"Node": t.node, "Address": "127.0.0.1", "SkipNodeUpdate": true,
		"Check": map[string]any{"Node": t.node, "CheckID": maintenanceCheck, "Name": "Node Maintenance Mode", "Status": "critical", "Notes": reason},
	})
	return nil
}

// Lift implements converge.Maintenance.
func (t maintenance) Lift(context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, in := t.begins[t.node]
	if _, out := t.lifts[t.node]; !in || out {
		return nil
	}
	t.lifts[t.node] = time.Now()
	t.write(t.node, "/v1/catalog/deregister", map[string]any{"Node": t.node, "CheckID": maintenanceCheck})
	return nil
}

// gaps are the times, in ms, from the end of one node's maintenance to the begin
// of the next one's: with a limit of n the (i+n)-th takes the place of the i-th.
func (o Outages) gaps(limit int) (all samples) {
	slices.SortFunc(o.Begins, time.Time.Compare)
	slices.SortFunc(o.Lifts, time.Time.Compare)
	for i := range o.Lifts {
		if i+limit < len(o.Begins) {
			all.addMillis(o.Begins[i+limit].Sub(o.Lifts[i]))
		}
	}
	return all
}
