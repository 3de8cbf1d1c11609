package orchestrator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/orchestrator"
)

// TestLongReports: reports that say as much as they can are kept as far as there
// is room, the newest always, and each request is answered.
func TestLongReports(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	long := strings.Repeat("ü", 1000)
	d := &recorder{name: "talker", decide: func(context.Context, orchestrator.Input) ([]orchestrator.Decision, error) {
		all := make([]orchestrator.Decision, 30)
		for i := range all {
			all[i] = orchestrator.Decision{Kind: "said_" + long, Node: long, Text: fmt.Sprint(i, long), Reason: long}
		}
		return all, nil
	}}
	o := quick(s.client)
	o.Interval, o.Deciders = time.Hour, []orchestrator.Decider{d}
	s.start(o)
	const asked = 12
	var last *orchestrator.Report
	for range asked {
		s.eventually("a cycle", func() (err error) {
			if last, err = orchestrator.Ask(t.Context(), s.store, "me"); err == nil && last == nil {
				err = errEventsPending // discarded
			}
			return err
		})
	}
	all := s.reports()
	if n := len(all); n < 2 || n >= asked || all[n-1].Number != last.Number {
		t.Fatalf("%d reports are kept, the last is number %d, want it to be %d", n, all[n-1].Number, last.Number)
	}
	data, err := json.Marshal(all)
	s.must(nil, err)
	if len(data) > 200<<10 {
		t.Errorf("the reports have %d bytes", len(data))
	}
	for _, x := range last.Decisions {
		if len(x.Text) > 300 || !strings.HasSuffix(x.Text, "ü…") || x.Reason != x.Node {
			t.Fatalf("got %q", x.Text)
		}
	}
	if last.Decided != 30 || len(last.Decisions) != 20 {
		t.Errorf("%d decisions, %d listed", last.Decided, len(last.Decisions))
	}
}
