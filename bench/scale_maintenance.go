package main

import (
	"context"
	"encoding/json"
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

// reset forgets what was recorded.
func (t *maintenances) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.begins)
	clear(t.lifts)
	t.writes = 0
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
func (t *maintenances) gaps(limit int) (all samples) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sorted := func(m map[string]time.Time) []time.Time {
		var times []time.Time
		for _, at := range m {
			times = append(times, at)
		}
		slices.SortFunc(times, time.Time.Compare)
		return times
	}
	begins, lifts := sorted(t.begins), sorted(t.lifts)
	for i := range lifts {
		if i+limit < len(begins) {
			all.addMillis(begins[i+limit].Sub(lifts[i]))
		}
	}
	return all
}
