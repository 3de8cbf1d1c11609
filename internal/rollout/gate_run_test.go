package rollout

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
)

// TestGateRunIn: what an operator did since the orchestrator wrote its book ends the wait for a run of a gate, too.
func TestGateRunIn(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	store := kv.New(new(consul.Client), "jorc/prod")
	d := begin("v2", pace.Policy{MaxParallel: pace.Amount{N: 1}}, "ann", "v1", now)
	d.Phase, d.Batch, d.Steps = pace.Batch, 1, 1
	d.Gate = &pace.GateProgress{Since: now, Baked: true, Run: "gate-1"}
	failed := d.paused(Stop{By: byJorc}, now)
	gate := *d.Gate
	gate.Failed = true
	failed.Gate = &gate
	for name, tt := range map[string]struct {
		spec Spec
		book Book
		want string
	}{
		"it waits":                     {d.Spec, d.Book(), "gate-1"},
		"it is paused":                 {d.paused(Stop{By: "ann"}, now).Spec, d.Book(), "gate-1"},
		"it was aborted":               {d.aborted(Stop{By: "ann"}, now).Spec, d.Book(), ""},
		"a gate that failed was asked": {failed.resumed(now.Add(time.Minute)).Spec, failed.Book(), ""},
		"another version is triggered": {begin("v3", pace.Policy{}, "ann", "v1", now.Add(time.Minute)).Spec, d.Book(), ""},
		"there is no rollout":          {Spec{}, d.Book(), ""},
	} {
		state := cluster.State{Rollout: stored(t, store, cluster.KeyVersion, tt.spec), RolloutState: stored(t, store, cluster.KeyVersionState, tt.book)}
		if got, err := GateRunIn(store, &state); got != tt.want || err != nil {
			t.Errorf("%s: %q, %v, want %q", name, got, err, tt.want)
		}
	}
}

// stored is a document as a state of the cluster has it.
func stored(t *testing.T, s *kv.Store, key string, v any) kv.Entry[string] {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	data = append([]byte(`{"format":1,`), data[1:]...)
	e, err := kv.NewText(s, key).Find(consul.KVPairs{{Key: s.Path(key), Value: data, ModifyIndex: 1}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}
