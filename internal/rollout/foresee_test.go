package rollout_test

import (
	"slices"
	"testing"

	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
)

// TestForesee: a plan names every step, and stays as it is when nothing of it is
// carried out.
func TestForesee(t *testing.T) {
	t.Parallel()
	percent := func(n int) pace.Amount { return pace.Amount{N: n, Percent: true} }
	zones := func(i int, m *rollout.Member) { m.Zone = string(rune('a' + i%2)) }
	roles := func(i int, m *rollout.Member) { m.Roles = []string{[]string{"db", "web"}[i%2]} }
	for _, test := range []struct {
		name   string
		policy pace.Policy
		change func(int, *rollout.Member)
		want   []string
	}{
		{"plain", pace.Policy{}, nil, []string{"all at once: 10 members are admitted"}},
		{"sliding", pace.Policy{MaxParallel: pace.Amount{N: 1}}, nil, []string{"batch 1 of 1: 10 members are admitted"}},
		{
			"canary and batches",
			pace.Policy{Canary: 1, Batches: []pace.Amount{percent(20), percent(50), percent(100)}},
			nil,
			[]string{"canary: 1 member is admitted", "batch 1 of 3: 1 member is admitted", "batch 2 of 3: 3 members are admitted", "batch 3 of 3: 5 members are admitted"},
		},
		{
			"zones",
			pace.Policy{ZoneByZone: true, MaxParallel: percent(10)},
			zones,
			[]string{`batch 1 of 1: 5 members are admitted`, `batch 1 of 1: 5 members are admitted`},
		},
		{
			"a role that is kept",
			pace.Policy{Order: []pace.Role{{Name: "web"}, {Name: "db", Kept: true}}},
			roles,
			[]string{"batch 1 of 1: 5 members are admitted"},
		},
		{
			"some are there already",
			pace.Policy{Canary: 2},
			func(i int, m *rollout.Member) {
				if i > 1 {
					arrive(m)
				}
			},
			[]string{"batch 1 of 1: 2 members are admitted"},
		},
		{
			"somebody is down",
			pace.Policy{Canary: 1},
			func(i int, m *rollout.Member) { set(m, i > 0, false) },
			[]string{"canary: 1 member is admitted", "batch 1 of 1: 8 members are admitted"},
		},
		{
			"somebody is under way from before",
			pace.Policy{Canary: 1},
			func(i int, m *rollout.Member) {
				if i == 0 {
					grant(m)
				}
			},
			[]string{"canary: 1 member is admitted", "batch 1 of 1: 9 members are admitted"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			v := fleetOf(10, test.change)
			d := rollout.Begin("v2", test.policy, noon)
			first := rollout.Foresee(d, v, noon)
			var got []string
			for _, step := range first {
				if step.Kind == event.ChangeStepBegan {
					got = append(got, step.Text)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
			if again := rollout.Foresee(d, v, noon); len(again) != len(first) {
				t.Errorf("again: %+v", again)
			}
		})
	}
}

// TestForeseeHalfWay: also while the canary runs the next hosts are foreseen.
func TestForeseeHalfWay(t *testing.T) {
	t.Parallel()
	v := fleetOf(4, nil)
	d := rollout.Plan(started(t, pace.Policy{Canary: 1}), v, noon).Document
	v = changed(v, admitted(d, v), grant)
	steps := rollout.Foresee(d, v, noon)
	if len(steps) != 1 || steps[0].Count != 3 {
		t.Errorf("got %+v, want that the other 3 are admitted", steps)
	}
}
