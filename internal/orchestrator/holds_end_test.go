package orchestrator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/orchestrator"
)

// ended are the texts of the events for holds that ended by themselves.
func ended(events []orchestrator.Event) (texts []string) {
	for _, e := range events {
		switch e.Kind {
		case event.HoldEnded:
			text, _, _ := strings.Cut(e.Text, " since ")
			texts = append(texts, text)
		case event.ClusterResumed:
			texts = append(texts, "resumed: "+e.Text)
		}
	}
	slices.Sort(texts)
	return texts
}

// TestHoldsEndOnce: a pause and holds with an end are over without a command. Each end is
// written once and is one event, also if the orchestrator is killed as soon as it
// journalled that, and if none runs when they end.
func TestHoldsEndOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.join("n1", "db")
	s.join("n2", "web")
	var want []string
	for round, killed := range []string{"at the end", "before the end"} {
		p := s.process()
		s.eventually("the orchestrator of round "+killed, func() error {
			if got := s.holder(); got != p.name() {
				return fmt.Errorf("%q has the lock", got)
			}
			return nil
		})
		end := time.Now().Add(3 * time.Second).UTC().Truncate(time.Second)
		h := cluster.Hold{Since: time.Now().UTC().Truncate(time.Second), Until: end, Reason: killed, By: "ann"}
		s.must(s.cluster.Pause(t.Context(), h))
		s.must(s.cluster.Hold(t.Context(), cluster.Scope{Role: "db"}, h))
		s.must(s.cluster.Hold(t.Context(), cluster.Scope{Node: "n2"}, h))
		s.eventually("the pause and both holds to be journalled", func() error {
			events := s.events()
			paused := slices.ContainsFunc(events, func(e orchestrator.Event) bool {
				return e.Kind == event.ClusterPaused && strings.Contains(e.Text, killed)
			})
			held := slices.ContainsFunc(events, func(e orchestrator.Event) bool {
				return e.Kind == event.ClusterChanged && strings.Count(e.After, killed) == 2
			})
			if !paused || !held {
				return fmt.Errorf("paused %t, held %t: %+v", paused, held, events)
			}
			return nil
		})
		want = append(want, "a hold ended by itself: node \"n2\":", "a hold ended by itself: role \"db\":", "the pause ended by itself:")
		slices.Sort(want)
		if killed == "at the end" {
			s.eventually("the events", func() error {
				if got := ended(s.events()); len(got) == 0 {
					return fmt.Errorf("%v", got)
				}
				return nil
			})
		}
		p.kill()
		next := s.process()
		s.eventually("the ends to be written", func() error {
			stored, err := kv.NewDoc[cluster.Control](s.store, cluster.KeyControl, 1).Get(t.Context())
			held, errHold := s.store.List(t.Context(), cluster.HoldKey("n2"))
			if v := stored.Value; err != nil || errHold != nil || v.Paused != nil || len(v.Roles)+len(held) > 0 {
				return fmt.Errorf("stored are %+v, %v (%v, %v)", v, held, err, errHold)
			}
			return nil
		})
		s.join(fmt.Sprintf("late-%d", round))
		s.eventually("a later event of the next orchestrator", func() error {
			events := s.events()
			if last := events[len(events)-1]; last.Node != fmt.Sprintf("late-%d", round) {
				return fmt.Errorf("the last event is %+v", last)
			}
			return nil
		})
		if got := ended(s.events()); !slices.Equal(got, want) {
			t.Errorf("killed %s: %q ended, want %q", killed, got, want)
		}
		next.kill()
	}
}
