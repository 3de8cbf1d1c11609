package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
)

// TestReportedWorkflows: what is beyond the bounds of a record is unknown.
func TestReportedWorkflows(t *testing.T) {
	t.Parallel()
	many := make([]string, 513)
	for i := range many {
		many[i] = fmt.Sprint("w", i)
	}
	for _, test := range []struct {
		what    string
		names   []string
		want    int
		unknown bool
	}{
		{"none", nil, 0, false},
		{"twice", []string{"b", "a", "b"}, 2, false},
		{"the most", many[1:], 512, false},
		{"too many", many, 0, true},
		{"too long", []string{strings.Repeat("x", 257)}, 0, true},
	} {
		if got := cluster.ReportedWorkflows(test.names); len(got) != test.want || (got == nil) != test.unknown {
			t.Errorf("%s: got %d names, unknown %v", test.what, len(got), got == nil)
		}
	}
	for i := range many {
		many[i] = fmt.Sprintf("%0100d", i)
	}
	if cluster.ReportedWorkflows(many[:400]) != nil {
		t.Error("40,000 bytes of names are reported")
	}
}
