package agent

import (
	"reflect"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/web"
)

// TestOrchestratorView: the status has the whole report of the last cycle, with
// what was decided and why, but not what came to nothing.
func TestOrchestratorView(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	got := orchestratorView(orchestrator.Status{
		Cluster: "prod", Active: true, Cycles: 7, Seq: 99,
		Last: &orchestrator.Report{
			Start: start, Duration: 125, Outcome: orchestrator.OutcomePartial, Idle: "observe only", Error: "e", Synced: 3, Failed: 1,
			Decisions: []orchestrator.Decided{{Decision: event.Decision{Kind: "a", Node: "n", Text: "t", Reason: "r"}}},
			Problems:  []orchestrator.Problem{{What: "node", Name: "m", Why: "w"}},
		},
	})
	want := web.Orchestrator{
		Cluster: "prod", Active: true, Cycles: 7, Last: start, Took: 0.125, Outcome: "partial", Idle: "observe only", Error: "e", Synced: 3, Failed: 1,
		Problems: 1, Event: 99, Decisions: []event.Decision{{Kind: "a", Node: "n", Text: "t", Reason: "r"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
