package runs_test

import (
	"testing"

	"github.com/jorc/jorc/internal/runs"
)

func TestAudience(t *testing.T) {
	t.Parallel()
	for want, q := range map[string]runs.Request{
		"all":                  {},
		"role db":              {Role: "db"},
		`Zone == "a"`:          {Filter: `Zone == "a"`},
		`role db, Zone == "a"`: {Role: "db", Filter: `Zone == "a"`},
		"a manager":            {OnManager: true},
		`a, b, Zone == "a"`:    {Nodes: []string{"a", "b"}, Filter: `Zone == "a"`},
		`1 of run r, Zone < 3`: {Nodes: []string{"a"}, RetryOf: "r", Filter: "Zone < 3"},
	} {
		if got := (runs.Run{Request: q}).Audience(); got != want {
			t.Errorf("%+v: got %q, want %q", q, got, want)
		}
	}
	rule := runs.Run{Rule: &runs.Standing{Name: "nightly"}}
	if got := rule.Audience(); got != "all (rule nightly)" {
		t.Errorf("a run of a rule: got %q", got)
	}
}
