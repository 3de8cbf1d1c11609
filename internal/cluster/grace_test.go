package cluster_test

import (
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/profile"
)

// TestLeaderGrace: the profile says how long a leader may fail, but never less
// than it goes on leading without Consul.
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
		wantIs(t, "set "+test.value, set(t, c, cluster.ParamGrace, test.value, profile.Ref{}), test.err)
		if err := set(t, unchecked(c), cluster.ParamGrace, test.value, profile.Ref{}); err != nil {
			t.Fatal(err)
		}
		got, err := c.LeaderGrace(t.Context())
		wantIs(t, test.value, err, test.err)
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.value, got, test.want)
		}
	}
}

// unchecked returns c as another tool writes params: past their meaning.
func unchecked(c *cluster.Cluster) *cluster.Cluster {
	accept := func(profile.Value) error { return nil }
	return c.WithValidators(map[string]profile.Validator{cluster.ParamGrace: accept, cluster.ParamFilter: accept, cluster.ParamEligible: accept})
}

// TestLeaderGraceOfAnElection: an election goes by the profile, also where its
// own default would never come to an end.
func TestLeaderGraceOfAnElection(t *testing.T) {
	t.Parallel()
	c, s := twoMembers(t)
	if err := set(t, unchecked(c), cluster.ParamGrace, "200ms", profile.Ref{}); err != nil {
		t.Fatal(err)
	}
	wantFailover(t, c, s, cluster.Timing{StepDown: 100 * time.Millisecond, Replace: 24 * time.Hour})
}
