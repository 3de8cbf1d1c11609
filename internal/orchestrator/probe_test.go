package orchestrator_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// deaf reaches no host, and counts the attempts.
type deaf struct{ asked atomic.Int64 }

func (d *deaf) Probe(context.Context, string) error {
	d.asked.Add(1)
	return errors.New("nobody answers")
}

// TestProbedNowAndThen: a node that is down is not probed in each cycle.
func TestProbedNowAndThen(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.host("a", "127.0.0.9", "critical", "passing")
	s.join("a")
	probe := &deaf{}
	o := quick(s.client)
	o.Interval, o.Probe = 10*time.Millisecond, probe
	orch, _ := s.start(o)
	s.wantEvents(0, "cluster_created", "cluster_changed", "leaders_changed", "member_joined a", "node_down a", "service_changed web")
	before := probe.asked.Load()
	s.cyclesPass(orch, 10)
	if n := probe.asked.Load(); before == 0 || n != before {
		t.Errorf("it was probed %d times, and %d times within ten cycles more", before, n-before)
	}
}
