package orchestrator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/runs"
)

// TestMinHealthyWakes: the end of a member's time in health wakes the planner, so that the next
// member begins: with an hour between two cycles a run of one member after the other still ends.
func TestMinHealthyWakes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, node := range []string{"a", "b", "c"} {
		s.host(node, "10.0.0.1", "passing", "passing")
		s.join(node)
		s.worker(node)
	}
	o := quick(s.client)
	o.Interval, o.Grants = time.Hour, true
	s.start(o)
	one, err := pace.ParseAmount("1")
	s.must(nil, err)
	all := runs.New(s.store)
	for id, disturbs := range map[string]bool{"quiet": false, "disturbs": true} {
		limits := runs.Limits{MaxParallel: one, MinHealthy: pace.Duration(time.Second)}
		_, _, err := all.Ask(t.Context(), id, runs.Request{Workflow: "good", Disturbs: disturbs, Limits: limits}, "ann")
		s.must(nil, err)
		s.eventually("the end of run "+id, func() error {
			r, err := all.Run(t.Context(), id)
			if err == nil && (r.State != runs.Done || r.Counts.Done != 3) {
				err = fmt.Errorf("it is %s: %+v, %s", r.State, r.Counts, r.Why)
			}
			return err
		})
	}
}
