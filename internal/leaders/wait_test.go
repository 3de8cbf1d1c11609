package leaders_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/leaders"
	"github.com/jorc/jorc/internal/profile"
)

// TestElectPatiently: without any agent, a leader that keeps failing is
// replaced after the grace, one that recovers is not, and one that no member
// could replace stays.
func TestElectPatiently(t *testing.T) {
	t.Parallel()
	c, s := clustertest.Initialized(t)
	clustertest.AddNode(t, s, "a", consul.HealthPassing, consul.HealthPassing)
	clustertest.Join(t, c, "a")
	timing := cluster.Timing{StepDown: 100 * time.Millisecond, Replace: 500 * time.Millisecond}
	var waited [][]string
	elect := func(during func(), want ...string) {
		t.Helper()
		waited = nil
		l, err := leaders.ElectAndWait(t.Context(), c, timing, func(failing, retired []string) {
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
	clustertest.AddNode(t, s, "a", consul.HealthCritical, consul.HealthPassing)
	elect(nil, "a") // no better member
	if len(waited) != 0 {
		t.Errorf("waited for %q; nobody could take the place", waited)
	}
	clustertest.AddNode(t, s, "b", consul.HealthPassing, consul.HealthPassing)
	clustertest.Join(t, c, "b")
	elect(func() { clustertest.AddNode(t, s, "a", consul.HealthPassing, consul.HealthPassing) }, "a")
	if len(waited) != 2 || !slices.Equal(waited[0], []string{"a"}) {
		t.Errorf("waited for %q; want that a recovers", waited)
	}
	clustertest.AddNode(t, s, "a", consul.HealthCritical, consul.HealthPassing)
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
	c, _ := clustertest.Initialized(t)
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
		if err := clustertest.Set(t, c, cluster.ParamLeaderGrace, test.value, profile.Ref{}); !errors.Is(err, test.err) {
			t.Errorf("set %s = %v, want %v", test.value, err, test.err)
		}
		if err := clustertest.Set(t, unchecked(c), cluster.ParamLeaderGrace, test.value, profile.Ref{}); err != nil {
			t.Fatal(err)
		}
		got, err := leaders.GracePeriod(t.Context(), c)
		if !errors.Is(err, test.err) || got != test.want {
			t.Errorf("%s: %s, %v; want %s, %v", test.value, got, err, test.want, test.err)
		}
	}
}

// unchecked returns c as another tool writes params: past their meaning.
func unchecked(c *fleet.Cluster) *fleet.Cluster {
	accept := func(profile.Value) error { return nil }
	return c.WithValidators(map[string]profile.Validator{cluster.ParamLeaderGrace: accept, cluster.ParamFilter: accept, cluster.ParamEligible: accept})
}

// TestLeaderGraceOfAnElection: an election goes by the profile, also where its
// own default would never end.
func TestLeaderGraceOfAnElection(t *testing.T) {
	t.Parallel()
	c, s := clustertest.TwoMembers(t)
	if err := clustertest.Set(t, unchecked(c), cluster.ParamLeaderGrace, "200ms", profile.Ref{}); err != nil {
		t.Fatal(err)
	}
	wantFailover(t, c, s, cluster.Timing{StepDown: 100 * time.Millisecond, Replace: 24 * time.Hour})
}
