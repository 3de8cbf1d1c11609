package agent

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/converge"
)

// TestHolds: a held host changes nothing; while the cluster is paused no new job
// begins, and running jobs continue.
func TestHolds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name        string
		now         converge.Hold
		free, begin bool
	}{
		{"nothing", converge.Hold{}, true, true},
		{"held", converge.Hold{Held: "why"}, false, false},
		{"paused", converge.Hold{Paused: "why"}, true, false},
	} {
		for what, wait := range map[string]struct {
			on   func(*holds, context.Context) error
			want bool
		}{
			"free": {(*holds).free, test.free}, "begin": {func(h *holds, ctx context.Context) error { _, err := h.begin(ctx); return err }, test.begin},
		} {
			synctest.Test(t, func(t *testing.T) {
				h := &holds{}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan error, 1)
				go func() { ended <- wait.on(h, ctx) }()
				synctest.Wait()
				h.now.Set(test.now)
				synctest.Wait()
				if !wait.want {
					h.now.Set(converge.Hold{Held: "another reason"})
					synctest.Wait()
					if len(ended) > 0 {
						t.Errorf("%s: %s returned while the host is held", test.name, what)
					}
					cancel()
				}
				if err := <-ended; (err == nil) != wait.want {
					t.Errorf("%s: %s returned %v", test.name, what, err)
				}
			})
		}
	}
}

// TestMaintenance: jorc lifts only the maintenance that it began, leaves that of
// others as it is, and repeating either changes nothing.
func TestMaintenance(t *testing.T) {
	t.Parallel()
	client := consultest.Start(t).Client()
	m := nodeMaintenance{client}
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
