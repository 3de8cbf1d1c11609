package cluster_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
)

// candidates reads "a b! c- d-!": ! is failing, - not eligible.
func candidates(text string) []cluster.Candidate {
	var all []cluster.Candidate
	for _, word := range strings.Fields(text) {
		all = append(all, cluster.Candidate{
			Node: strings.Trim(word, "!-"), Eligible: !strings.Contains(word, "-"), Failing: strings.Contains(word, "!"),
		})
	}
	return all
}

func retired(nodes ...string) []cluster.Retired {
	var all []cluster.Retired
	for _, n := range nodes {
		all = append(all, cluster.Retired{Node: n})
	}
	return all
}

func TestDecide(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	timing := cluster.Timing{StepDown: 10 * time.Second, Replace: 30 * time.Second}
	for _, test := range []struct {
		name    string
		have    cluster.Leaders
		members string
		failing map[string]time.Time
		retired map[string]time.Time
		leaders []string
		gone    []string // retired afterwards
	}{
		{"nobody there", cluster.Leaders{Count: 1}, "", nil, nil, nil, nil},
		{"the first", cluster.Leaders{Count: 1}, "a b", nil, nil, []string{"a"}, nil},
		{"as many as asked for", cluster.Leaders{Count: 2}, "a b c", nil, nil, []string{"a", "b"}, nil},
		{"fewer than asked for", cluster.Leaders{Count: 3}, "a b", nil, nil, []string{"a", "b"}, nil},
		{"not the managers", cluster.Leaders{Count: 1}, "a- b", nil, nil, []string{"b"}, nil},
		{"healthy first", cluster.Leaders{Count: 1}, "a! b", nil, nil, []string{"b"}, nil},
		{"better one that fails than none", cluster.Leaders{Count: 1}, "a! b-", nil, nil, []string{"a"}, nil},
		{"stable", cluster.Leaders{Count: 1, Leader: []string{"c"}}, "a b c", nil, nil, []string{"c"}, nil},
		{"a vacancy is filled", cluster.Leaders{Count: 2, Leader: []string{"c"}}, "a b c", nil, nil, []string{"c", "a"}, nil},
		{"failing, for how long nobody knows", cluster.Leaders{Count: 1, Leader: []string{"a"}}, "a! b", nil, nil, []string{"a"}, nil},
		{
			"failing not for long",
			cluster.Leaders{Count: 1, Leader: []string{"a"}},
			"a! b",
			map[string]time.Time{"a": ago(29 * time.Second)},
			nil,
			[]string{"a"},
			nil,
		},
		{
			"failing for long: out first, the next later",
			cluster.Leaders{Count: 1, Leader: []string{"a"}},
			"a! b",
			map[string]time.Time{"a": ago(30 * time.Second)},
			nil, nil,
			[]string{"a"},
		},
		{
			"failing for long, but nobody is better",
			cluster.Leaders{Count: 1, Leader: []string{"a"}},
			"a! b! c-",
			map[string]time.Time{"a": ago(time.Hour)},
			nil,
			[]string{"a"},
			nil,
		},
		{
			"two fail and one is better",
			cluster.Leaders{Count: 2, Leader: []string{"a", "b"}},
			"a! b! c",
			map[string]time.Time{"a": ago(time.Hour), "b": ago(time.Hour)},
			nil,
			[]string{"b"},
			[]string{"a"},
		},
		{"retired just now", cluster.Leaders{Count: 1, Retired: retired("a")}, "a b", nil, map[string]time.Time{"a": ago(9 * time.Second)}, nil, []string{"a"}},
		{"retired unseen", cluster.Leaders{Count: 1, Retired: retired("a")}, "a b", nil, nil, nil, []string{"a"}},
		{"retired long enough", cluster.Leaders{Count: 1, Retired: retired("a")}, "a! b", nil, map[string]time.Time{"a": ago(10 * time.Second)}, []string{"b"}, nil},
		{"left", cluster.Leaders{Count: 1, Leader: []string{"a"}}, "b", nil, nil, nil, []string{"a"}},
		{"eligible no more", cluster.Leaders{Count: 1, Leader: []string{"a"}}, "a- b", nil, nil, nil, []string{"a"}},
		{"fewer are to lead", cluster.Leaders{Count: 1, Leader: []string{"a", "b"}}, "a! b", nil, nil, []string{"b"}, []string{"a"}},
		{"fewer are to lead, all are well", cluster.Leaders{Count: 1, Leader: []string{"b", "a"}}, "a b", nil, nil, []string{"b"}, []string{"a"}},
	} {
		s := cluster.Situation{Now: now, Failing: test.failing, Retired: test.retired, Timing: timing}
		before := slices.Clone(test.have.Leader)
		got := cluster.Decide(test.have, candidates(test.members), s, func(int) int { return 0 })
		var gone []string
		for _, r := range got.Retired {
			gone = append(gone, r.Node)
		}
		if !slices.Equal(got.Leader, test.leaders) || !slices.Equal(gone, test.gone) {
			t.Errorf("%s: leaders %q, retired %q; want %q, %q", test.name, got.Leader, gone, test.leaders, test.gone)
		}
		if !slices.Equal(before, test.have.Leader) {
			t.Errorf("%s: what was given was changed", test.name)
		}
	}
}

// TestDecideNeverTooMany: whatever happens to which of them, leaders and the ones that may
// still believe that they lead are never more than were asked for, unless the
// number asked for went down.
func TestDecideNeverTooMany(t *testing.T) {
	t.Parallel()
	timing := cluster.Timing{StepDown: 10 * time.Second, Replace: 30 * time.Second}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		now := time.Now()
		l := cluster.Leaders{Count: 1 + r.IntN(3)}
		believes := map[string]time.Time{} // node → until when it may think that it leads
		failing, gone := map[string]time.Time{}, map[string]time.Time{}
		for range 200 {
			now = now.Add(time.Duration(r.IntN(8000)) * time.Millisecond)
			var members []cluster.Candidate
			for _, node := range []string{"a", "b", "c", "d", "e"} {
				if r.IntN(10) > 0 {
					members = append(members, cluster.Candidate{Node: node, Eligible: r.IntN(10) > 0, Failing: r.IntN(2) == 0})
				}
			}
			for _, m := range members {
				if _, known := failing[m.Node]; !known && m.Failing {
					failing[m.Node] = now
				} else if !m.Failing {
					delete(failing, m.Node)
				}
			}
			for _, x := range l.Retired {
				if _, known := gone[x.Node]; !known {
					gone[x.Node] = now
				}
			}
			before := l.Leader
			l = cluster.Decide(l, members, cluster.Situation{Now: now, Failing: failing, Retired: gone, Timing: timing}, r.IntN)
			for node := range gone {
				if !slices.ContainsFunc(l.Retired, func(x cluster.Retired) bool { return x.Node == node }) {
					delete(gone, node)
				}
			}
			for _, node := range before {
				if !l.Leads(node) {
					believes[node] = now.Add(timing.StepDown)
				}
			}
			n := len(l.Leader)
			for node, until := range believes {
				if until.After(now) && !l.Leads(node) {
					n++
				}
			}
			if n > l.Count {
				t.Fatalf("seed %d: %d lead or believe so, %d are to: %+v, %v", seed, n, l.Count, l, believes)
			}
		}
	}
}
