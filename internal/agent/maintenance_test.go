package agent

import (
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// TestMaintenance: jorc lifts only the maintenance that it began, leaves that of
// others as it is, and repeating either changes nothing.
func TestMaintenance(t *testing.T) {
	t.Parallel()
	client := consultest.Start(t).Client()
	m := maintenance{client}
	do := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	want := func(when, notes string) {
		t.Helper()
		got, there, err := m.notes(t.Context())
		if err != nil || got != notes || there != (notes != "") {
			t.Errorf("%s: maintenance %t, notes %q, %v; want %q", when, there, got, err, notes)
		}
	}
	want("at first", "")
	for _, round := range []string{"once", "again"} {
		do("Begin", m.Begin(t.Context(), "jorc: update to v1"))
		do("Begin", m.Begin(t.Context(), "jorc: another reason"))
		want(round, "jorc: update to v1")
		do("Lift", m.Lift(t.Context()))
		do("Lift", m.Lift(t.Context()))
		want("lifted "+round, "")
	}
	do("maintenance by hand", client.SetNodeMaintenance(t.Context(), true, "by ann"))
	do("Begin", m.Begin(t.Context(), "jorc: update to v1"))
	want("by hand", "by ann")
	do("Lift", m.Lift(t.Context()))
	want("by hand, after Lift", "by ann")
}
