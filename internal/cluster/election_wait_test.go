package cluster_test

import (
	"slices"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/profile"
)

// TestElectPatiently: without any agent, a leader that keeps failing is
// replaced after the grace, one that recovers is not, and one that no member
// could replace stays.
func TestElectPatiently(t *testing.T) {
	t.Parallel()
	c, s := initialized(t)
	addNode(t, s, "a", consul.HealthPassing, consul.HealthPassing)
	join(t, c, "a")
	timing := cluster.Timing{StepDown: 100 * time.Millisecond, Replace: 500 * time.Millisecond}
	var waited [][]string
	elect := func(during func(), want ...string) {
		t.Helper()
		waited = nil
		l, err := c.ElectAndWait(t.Context(), timing, func(failing, retired []string) {
			waited = append(waited, failing, retired)
			if during != nil {
				during()
			}
		})
		if err != nil || !slices.Equal(l.Leader, want) {
			t.Errorf("ElectPatiently = %+v, %v; want %q", l, err, want)
		}
	}
	elect(nil, "a")
	addNode(t, s, "a", consul.HealthCritical, consul.HealthPassing)
	elect(nil, "a") // no better member
	if len(waited) != 0 {
		t.Errorf("waited for %q; nobody could take the place", waited)
	}
	addNode(t, s, "b", consul.HealthPassing, consul.HealthPassing)
	join(t, c, "b")
	elect(func() { addNode(t, s, "a", consul.HealthPassing, consul.HealthPassing) }, "a")
	if len(waited) != 2 || !slices.Equal(waited[0], []string{"a"}) {
		t.Errorf("waited for %q; want that a recovers", waited)
	}
	addNode(t, s, "a", consul.HealthCritical, consul.HealthPassing)
	elect(nil, "b")
	if len(waited) != 4 || !slices.Equal(waited[0], []string{"a"}) || !slices.Equal(waited[3], []string{"a"}) {
		t.Errorf("waited for %q; want a failing, then a retired", waited)
	}
	l, err := c.Leaders(t.Context())
	if err != nil || !slices.Equal(l.Leader, []string{"b"}) || len(l.Retired) != 0 {
		t.Errorf("Leaders = %+v, %v; want b, nobody retired", l, err)
	}
}

// TestLeaderGrace: the profile says how long a leader may fail, but never less
// than it keeps leading without Consul.
func TestLeaderGrace(t *testing.T) {
	t.Parallel()
	c, _ := initialized(t)
	for _, test := range []struct {
		value string
		want  time.Duration
		err   error
	}{
		{`null`, 30 * time.Second, nil},
		{`"2m"`, 2 * time.Minute, nil},
		{`11s`, 11 * time.Second, nil},
		{`10s`, 30 * time.Second, cluster.ErrInvalid},
		{`-1m`, 30 * time.Second, cluster.ErrInvalid},
		{`120`, 30 * time.Second, cluster.ErrInvalid},
		{`{"a": 1}`, 30 * time.Second, cluster.ErrInvalid},
	} {
		wantIs(t, "set "+test.value, set(t, c, cluster.ParamLeaderGrace, test.value, profile.Ref{}), test.err)
		if err := set(t, unchecked(c), cluster.ParamLeaderGrace, test.value, profile.Ref{}); err != nil {
			t.Fatal(err)
		}
		got, err := c.LeaderGracePeriod(t.Context())
		wantIs(t, test.value, err, test.err)
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.value, got, test.want)
		}
	}
}

// unchecked returns c as another tool writes params: past their meaning.
func unchecked(c *cluster.Cluster) *cluster.Cluster {
	accept := func(profile.Value) error { return nil }
	return c.WithValidators(map[string]profile.Validator{cluster.ParamLeaderGrace: accept, cluster.ParamFilter: accept, cluster.ParamEligible: accept})
}

// TestLeaderGraceOfAnElection: an election goes by the profile, also where its
// own default would never end.
func TestLeaderGraceOfAnElection(t *testing.T) {
	t.Parallel()
	c, s := twoMembers(t)
	if err := set(t, unchecked(c), cluster.ParamLeaderGrace, "200ms", profile.Ref{}); err != nil {
		t.Fatal(err)
	}
	wantFailover(t, c, s, cluster.Timing{StepDown: 100 * time.Millisecond, Replace: 24 * time.Hour})
}
