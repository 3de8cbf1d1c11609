package rollout_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/rollout"
)

// FuzzDocument: whatever a document says, nobody panics on it, and a plan that
// was carried out has nothing to add.
func FuzzDocument(f *testing.F) {
	for _, text := range []string{
		`{"version":"v2","policy":{"canary":2,"max_parallel":"10%"},"phase":"canary","rule":{"to":{"place":0,"hash":"~"}}}`,
		`{"version":"v2","policy":{"order":["web=1"],"zone_by_zone":true},"phase":"batch","batch":-3,"rule":{"from":{"place":-9},"to":{"place":99}}}`,
		`{"version":"v2","previous":"v1","policy":{"on_failure":"rollback","max_failures":-1},"phase":"?","forgiven":-5,"forgive":true}`,
		`{"version":"v2","policy":{"batches":["100%","1"],"windows":["22:00-06:00"],"progress_deadline":"1s"},"phase":"waiting","rule":{"all":true}}`,
	} {
		f.Add(text, uint8(3))
	}
	f.Fuzz(func(t *testing.T, text string, n uint8) {
		var d rollout.Document
		if json.Unmarshal([]byte(text), &d) != nil {
			return
		}
		v := fleetOf(int(n%12), func(i int, m *rollout.Member) {
			m.Up, m.Sick, m.Holds = i%3 != 0, i%4 == 0, i%5 == 0
			m.Version, m.Zone = []string{"v1", "v2"}[i%2], []string{"a", ""}[i%2]
		})
		next, limit, _ := rollout.Plan(d, v, noon)
		if again, limitAgain, more := rollout.Plan(next, v, noon); len(more) > 0 || limit != limitAgain || again.StateText() != next.StateText() {
			t.Errorf("planned again: %v", more)
		}
		if limit == 0 {
			t.Error("any number of slots")
		}
		rollout.Describe(next, v, noon)
		s := rollout.Snapshot{Desired: "v2", Document: next, Exists: true}
		rollout.Explain(s, rollout.Self{Node: "n1", Member: true}, v, noon)
	})
}

// TestExplain: what a host is told that does not run the version yet.
func TestExplain(t *testing.T) {
	t.Parallel()
	v := fleetOf(4, nil)
	d, _, _ := rollout.Plan(started(t, rollout.Policy{MaxParallel: rollout.Amount{N: 1}}), v, noon)
	canary, _, _ := rollout.Plan(started(t, rollout.Policy{Canary: 1, MaxParallel: rollout.Amount{N: 1}}), v, noon)
	in := admitted(canary, v)[0]
	out := "n1"
	if in == out {
		out = "n2"
	}
	busy := change(v, []string{in}, func(m *rollout.Member) { m.Holds, m.HeldSince = true, noon })
	broken := change(busy, []string{in}, fail)
	for _, test := range []struct {
		name string
		doc  rollout.Document
		view rollout.View
		self rollout.Self
		want string // reason and detail; empty: nothing
	}{
		{"free to begin", d, v, rollout.Self{Node: "n1", Member: true}, ""},
		{"no slot is free", d, busy, rollout.Self{Node: out, Member: true}, "slot: waits for a slot: 1 may be held: by " + in + " since 2026-11-21T12:00:00Z"},
		{"it has one", d, busy, rollout.Self{Node: in, Member: true, Holds: true}, "slot: it holds a slot since 2026-11-21T12:00:00Z: it is under way"},
		{
			"it failed and keeps its slot", d, broken,
			rollout.Self{Node: in, Member: true, Holds: true},
			"slot: it holds a slot since 2026-11-21T12:00:00Z, stays out of service with it and tries again by itself until it succeeds: config failed: task puppet: exit 4: broken",
		},
		{
			"who failed has the slot", d, broken,
			rollout.Self{Node: out, Member: true},
			"slot: waits for a slot: 1 may be held: by " + in + " since 2026-11-21T12:00:00Z, which failed and keeps it",
		},
		{
			"behind the canary", canary, busy,
			rollout.Self{Node: out, Member: true},
			"rollout: not admitted yet: phase canary, 1 of 4 members are admitted; it waits for " + in + " to finish",
		},
		{"a stranger", canary, v, rollout.Self{Node: "x"}, "rollout: it is no member of the cluster: 'jorc cluster join' makes it one"},
	} {
		var got []string
		for _, r := range rollout.Explain(rollout.Snapshot{Desired: "v2", Document: test.doc, Exists: true}, test.self, test.view, noon.Add(time.Second)) {
			got = append(got, r.Reason+": "+r.Detail)
		}
		if strings.Join(got, "; ") != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// TestBlocked: a rollout that somebody resumed waits for those who failed while
// they have all slots, and says so.
func TestBlocked(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		limit int
		want  string
	}{
		{1, "n2, n3, n4 to begin; n1 to succeed: who failed keeps its slot"},
		{2, "n2, n3, n4 to begin"},
	} {
		d := started(t, rollout.Policy{MaxParallel: rollout.Amount{N: test.limit}, MaxFailures: 1})
		v := change(fleetOf(4, nil), []string{"n1"}, func(m *rollout.Member) { m.Holds, m.HeldSince = true, noon; fail(m) })
		d, _, _ = rollout.Plan(d, v, noon)
		if got := strings.Join(rollout.Describe(d, v, noon).Waits, "; "); got != test.want {
			t.Errorf("with %d slots: %q, want %q", test.limit, got, test.want)
		}
	}
}
