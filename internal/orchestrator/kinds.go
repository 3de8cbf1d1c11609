package orchestrator

import (
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
)

// RolloutAdopted is the kind of event for a version that was written past the
// rollout.
const RolloutAdopted = "rollout_adopted"

// Kinds of events about the orchestrator's own cycles.
const (
	OrchestratorFailing   = "orchestrator_failing" // three cycles in a row failed
	OrchestratorRecovered = "orchestrator_recovered"
)

// rolloutKind is the kind of event for a rollout's decision of a kind.
func rolloutKind(kind string) string { return "rollout_" + strings.ReplaceAll(kind, " ", "_") }

// Kinds returns all kinds of events that this version journals: what Diff
// finds and what is decided, sorted. A newer one may know more.
func Kinds() []string {
	all := append(differenceKinds(), RolloutAdopted, OrchestratorFailing, OrchestratorRecovered)
	for _, kind := range rollout.DecisionKinds() {
		all = append(all, rolloutKind(kind))
	}
	all = append(all, runs.DecisionKinds()...)
	slices.Sort(all)
	return all
}
