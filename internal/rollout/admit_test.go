package rollout_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/rollout"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) // a Saturday

// TestAdmit: who may begin, and what the others are told.
func TestAdmit(t *testing.T) {
	t.Parallel()
	night, err := rollout.ParseWindows("22:00-06:00")
	if err != nil {
		t.Fatal(err)
	}
	order := rollout.Policy{Order: []rollout.Role{{Name: "db"}, {Name: "old", Kept: true}}, MaxParallel: rollout.Amount{N: 1}}
	web := rollout.Self{Node: "n1", Roles: []string{"web", "worker"}, Member: true}
	with := func(change func(*rollout.Self)) rollout.Self {
		s := web
		change(&s)
		return s
	}
	key := order.KeyOf("v2", "n1", web.Roles, "")
	running := rollout.Document{Version: "v2", Policy: order, Phase: rollout.Batch, Batch: 1, Rule: rollout.Rule{To: &key}}
	changed := func(change func(*rollout.Document)) rollout.Document {
		d := running
		change(&d)
		return d
	}
	for _, test := range []struct {
		name string
		doc  rollout.Document
		self rollout.Self
		want rollout.Verdict
		says string
	}{
		{"in the rule", running, web, rollout.Admitted, "batch 1 of 1"},
		{"above the rule", changed(func(d *rollout.Document) { d.Rule.To = &rollout.Key{Place: 0, Hash: "~"} }), web, rollout.NotYet, "not admitted yet"},
		{"below the rule", changed(func(d *rollout.Document) {
			d.Rule = rollout.Rule{From: &rollout.Key{Place: 3}, To: &rollout.Key{Place: 4}}
		}), web, rollout.NotYet, ""},
		{"no rule", changed(func(d *rollout.Document) { d.Rule = rollout.Rule{} }), web, rollout.NotYet, ""},
		{"all", changed(func(d *rollout.Document) { d.Rule = rollout.Rule{All: true} }), web, rollout.Admitted, ""},
		{"a manager", running, with(func(s *rollout.Self) { s.Roles = []string{"manager"} }), rollout.NoPart, "managers"},
		{"outside", running, with(func(s *rollout.Self) { s.Outside = true }), rollout.NoPart, "cluster/filter"},
		{"no member", running, with(func(s *rollout.Self) { s.Member = false }), rollout.NotMember, "join"},
		{"kept back", running, with(func(s *rollout.Self) { s.Roles = []string{"db", "old"} }), rollout.KeptBack, `"old"`},
		{"kept back when done", changed(func(d *rollout.Document) {
			d.Phase, d.Rule = rollout.Done, rollout.Rule{All: true}
		}), with(func(s *rollout.Self) { s.Roles = []string{"old"} }), rollout.KeptBack, ""},
		{
			"paused", changed(func(d *rollout.Document) { d.Stopped = &rollout.Stop{Reason: "lunch", By: "ann", Since: noon} }),
			web, rollout.Stopped, "paused since 2026-11-21T12:00:00Z by ann: lunch",
		},
		{"aborted", changed(func(d *rollout.Document) { d.Phase = rollout.Aborted }), web, rollout.Stopped, "aborted"},
		{
			"paused, but under way", changed(func(d *rollout.Document) { d.Stopped = &rollout.Stop{} }),
			with(func(s *rollout.Self) { s.Holds = true }), rollout.Admitted, "out of service already",
		},
		{"outside the window", changed(func(d *rollout.Document) { d.Policy.Windows = night }), web, rollout.Closed, "until 2026-11-21T22:00:00Z"},
		{"rolling back at any time", changed(func(d *rollout.Document) {
			d.Policy.Windows, d.Phase, d.Rule = night, rollout.RollingBack, rollout.Rule{All: true}
		}), web, rollout.Admitted, ""},
		{"full", changed(func(d *rollout.Document) { d.Rule.Full = true }), web, rollout.Full, "out of service"},
		{
			"full, but sick itself", changed(func(d *rollout.Document) { d.Rule.Full = true }),
			with(func(s *rollout.Self) { s.Sick = true }), rollout.Admitted, "",
		},
		{"plain", rollout.Document{Version: "v2", Rule: rollout.Rule{All: true}}, rollout.Self{Node: "x"}, rollout.Admitted, "everybody"},
		{"plain, paused", rollout.Document{Version: "v2", Stopped: &rollout.Stop{}}, rollout.Self{Node: "x"}, rollout.Stopped, "paused"},
		{"plain, aborted", rollout.Document{Version: "v2", Phase: rollout.Aborted}, rollout.Self{Node: "x"}, rollout.Stopped, "aborted"},
		{"another version", rollout.Document{Version: "v1", Policy: order}, web, rollout.Admitted, "written past"},
		{"rubbish", rollout.Document{Version: "v2", Policy: rollout.Policy{Canary: -5}, Phase: "x", Batch: -1}, web, rollout.NotYet, ""},
	} {
		got := rollout.Admit(rollout.Snapshot{Desired: "v2", Document: test.doc, Exists: true}, test.self, noon)
		if got.Verdict != test.want || got.OK() != (test.want == rollout.Admitted) || got.Reason == "" || !strings.Contains(got.Reason, test.says) {
			t.Errorf("%s: %+v, want %s with %q", test.name, got, test.want, test.says)
		}
		if slot := !test.doc.Policy.Plain() && test.doc.Version == "v2" && got.OK(); got.Slot != slot {
			t.Errorf("%s: a slot is needed: %v", test.name, got.Slot)
		}
	}
	if got := rollout.Admit(rollout.Snapshot{}, web, noon); got.Verdict != rollout.Nothing {
		t.Errorf("nothing desired: %+v", got)
	}
	if got := rollout.Admit(rollout.Snapshot{Desired: "v2"}, web, noon); !got.OK() || got.Slot {
		t.Errorf("no document: %+v", got)
	}
}
