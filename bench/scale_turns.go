package main

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/converge"
)

// turns notes when nodes go out of service and come back, and does in the
// catalog what their Consul agents would.
type turns struct {
	api *api

	mu            sync.Mutex
	begins, lifts map[string]time.Time
	writes        float64
}

// reset forgets what was noted.
func (t *turns) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.begins)
	clear(t.lifts)
	t.writes = 0
}

// turn is the maintenance mode of one node.
type turn struct {
	*turns
	node string
}

var _ converge.Maintenance = turn{}

const maintenanceCheck = "_node_maintenance"

// Begin implements converge.Maintenance.
func (t turn) Begin(ctx context.Context, reason string) error {
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
func (t turn) Lift(ctx context.Context) error {
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

// handOvers are the times, in ms, from one node having done to the next being
// out of service: with limit slots the n-th that is done lets go the one that
// is n+limit-th.
func (t *turns) handOvers(limit int) (all samples) {
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
