package cluster_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
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
		if err := set(t, c, cluster.ParamGrace, test.value, profile.Ref{}); err != nil {
			t.Fatal(err)
		}
		got, err := c.LeaderGrace(t.Context())
		wantIs(t, test.value, err, test.err)
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.value, got, test.want)
		}
	}
}

// TestLeaderGraceOfAnElection: an election goes by the profile, also where its
// own default would never come to an end.
func TestLeaderGraceOfAnElection(t *testing.T) {
	t.Parallel()
	c, s := initialized(t)
	for _, node := range []string{"a", "b"} {
		addNode(t, s, node, "passing", "passing")
		join(t, c, node)
	}
	if err := set(t, c, cluster.ParamGrace, "200ms", profile.Ref{}); err != nil {
		t.Fatal(err)
	}
	addNode(t, s, "a", "critical", "critical")
	timing := cluster.Timing{StepDown: 100 * time.Millisecond, Replace: 24 * time.Hour}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	e := c.NewElection(cluster.ElectionOptions{Node: "judge", Timing: timing, Lock: kv.LockOptions{TTL: 2 * time.Second}})
	running.Go(func() { _ = e.Run(ctx) })
	consultest.Eventually(t, "b to lead", func(ctx context.Context) error {
		l, err := c.Leaders(ctx)
		if err == nil && !slices.Equal(l.Leader, []string{"b"}) {
			err = fmt.Errorf("%q lead", l.Leader)
		}
		return err
	})
}
