package orchestrator

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/event"
)

// TestLongReports: reports that say as much as they can are kept as far as there
// is room, the newest always.
func TestLongReports(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ü", 1000)
	said := make([]event.Decision, 30)
	for i := range said {
		said[i] = event.Decision{Kind: "said_" + long, Node: long, Text: fmt.Sprint(i, long), Reason: long}
	}
	const cycles = 12
	var k reports
	var last Report
	for range cycles {
		r := Report{}
		r.decided("talker", said)
		k.last, last = k.appended(r)
	}
	if n := len(k.last); n < 2 || n >= cycles || last.Number != cycles || k.last[n-1].Number != cycles {
		t.Fatalf("%d reports are kept, the last is number %d, want number %d", n, k.last[n-1].Number, cycles)
	}
	data, err := json.Marshal(k.last)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 200<<10 {
		t.Errorf("the reports have %d bytes", len(data))
	}
	for _, x := range last.Decisions {
		if len(x.Text) > maxReportText || !strings.HasSuffix(x.Text, "ü…") || x.Reason != x.Node {
			t.Fatalf("got %q", x.Text)
		}
	}
	if last.Decided != len(said) || len(last.Decisions) != maxListed {
		t.Errorf("%d decisions, %d listed", last.Decided, len(last.Decisions))
	}
}
