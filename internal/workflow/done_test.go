package workflow

import (
	"context"
	"testing"
)

// TestDoneElsewhere: tasks that another host has done are skipped; that all are
// done is success.
func TestDoneElsewhere(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		done []string
		ran  string
	}{
		{"first", []string{"one"}, "two\n"},
		{"all", []string{"one", "two"}, ""},
		{"of another name", []string{"three"}, "one\ntwo\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, Options{}, sh("one", ""), sh("two", ""))
			res, err := h.Run(context.Background(), Job{ID: "j", Workflow: "w", Done: test.done})
			if err != nil {
				t.Fatal(err)
			}
			want(t, "state", res.State, Success)
			want(t, "what ran", h.read("ran"), test.ran)
		})
	}
}
