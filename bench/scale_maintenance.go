package main

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/converge"
)

// maintenances records when nodes enter and leave maintenance mode, and writes to
// the catalog what their Consul agents would.
type maintenances struct {
	api *api

	mu            sync.Mutex
	begins, lifts map[string]time.Time
	writes        float64
}

// Outages are when nodes entered and left maintenance mode, and the writes for that.
type Outages struct {
	Begins, Lifts []time.Time
	Writes        float64
}

// take returns what was recorded since it was last called.
func (t *maintenances) take() Outages {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := Outages{slices.Collect(maps.Values(t.begins)), slices.Collect(maps.Values(t.lifts)), t.writes}
	t.begins, t.lifts, t.writes = map[string]time.Time{}, map[string]time.Time{}, 0
	return o
}

// maintenance is the maintenance mode of one node.
type maintenance struct {
	*maintenances
	node string
}

var _ converge.Maintenance = maintenance{}

const maintenanceCheck = "_node_maintenance"

// Begin implements converge.Maintenance.
func (t maintenance) Begin(ctx context.Context, reason string) error {
	t.mu.Lock()
	_, in := t.begins[t.node]
	if !in {
		t.begins[t.node] = time.Now()
		t.writes++
	}
	t.mu.Unlock()
	if in {
		return nil
	}
	return t.api.putJSON(ctx, "/v1/catalog/register", map[string]any{
		"Node": t.node, "Address": "127.0.0.1", "SkipNodeUpdate": true,
		"Check": map[string]any{"Node": t.node, "CheckID": maintenanceCheck, "Name": "Node Maintenance Mode", "Status": "critical", "Notes": reason},
	})
}

// Lift implements converge.Maintenance.
func (t maintenance) Lift(ctx context.Context) error {
	t.mu.Lock()
	_, in := t.begins[t.node]
	_, out := t.lifts[t.node]
	if in && !out {
		t.lifts[t.node] = time.Now()
		t.writes++
	}
	t.mu.Unlock()
	if !in || out {
		return nil
	}
	body, err := json.Marshal(map[string]any{"Node": t.node, "CheckID": maintenanceCheck})
	if err != nil {
		return err
	}
	_, err = t.api.do(ctx, "PUT", "/v1/catalog/deregister", body, nil)
	return err
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
