package orchestrator_test

import (
	"path/filepath"
	"testing"

	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/orchestrator"
)

// TestDamagedPositions: how far the sinks are is written down again when
// that was damaged by hand, and each event comes once more.
func TestDamagedPositions(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.put("events/sinks", "garbage")
	path := filepath.Join(t.TempDir(), "events.jsonl")
	o := quick(s.client)
	o.Sinks = []orchestrator.Sink{orchestrator.FileSink{Path: path}}
	orch, stop := s.start(o)
	s.join("a")
	s.wantEvents(0, "cluster_created", "cluster_changed", "leaders_changed", "member_joined a")
	s.eventually("the sink to have all events", func() error {
		if orch.Status().Sinks["file:"+path] != 4 {
			return errEventsPending
		}
		return nil
	})
	stop()
	type positions struct {
		Sinks map[string]uint64 `json:"sinks"`
	}
	e, err := kv.NewDoc[positions](s.store, "events/sinks", 1).Get(t.Context())
	if err != nil || e.Value.Sinks["file:"+path] != 4 {
		t.Errorf("the sink is at %+v, %v", e.Value, err)
	}
}
