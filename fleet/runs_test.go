//go:build fleet

package fleet_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/fleettest"
)

// What all hosts know. A host with a file `broken` cannot install; long continues
// until there is a file `finish`, and the second task of a campaign until there
// is one `go`.
const (
	runsConfig = `
workflow "install" {
  task "install" {
    script = <<-EOT
      [ ! -e $DIR/broken ] || { echo no such disk >&2; exit 3; }
      echo granted $(date +%s%N) >> $DIR/installed
      sleep 0.2
      echo released $(date +%s%N) >> $DIR/installed
    EOT
  }
}
workflow "long" {
  task "work" {
    script     = "echo begin >> $DIR/long; while [ ! -e $DIR/finish ]; do sleep 0.05; done; echo end >> $DIR/long"
    idempotent = true
  }
}
workflow "campaign" {
  task "first" {
    script = "echo first >> $DIR/campaign"
  }
  task "second" {
    script     = "echo second >> $DIR/campaign; while [ ! -e $DIR/go ]; do sleep 0.05; done"
    idempotent = true
  }
  task "third" {
    script     = "echo third >> $DIR/campaign; exec $JORC cluster run install --id of-campaign --filter 'Agent == \"up\"' --wait"
    token_file = "$DIR/operator-token"
  }
}
`
	milestones = `set -e
$JORC cluster run install --role leader --wait
$JORC cluster run install --role worker --wait
$JORC cluster wait --for idle --timeout 1m
`
)

// TestRuns: a script installs the leader first and then the others; a caller
// that waits gets how it ended; members and managers that are lost half way.
func TestRuns(t *testing.T) {
	t.Parallel()
	f := usual(t, runsConfig, runsConfig)
	healthy(t, f)
	for _, h := range f.Hosts {
		h.Write("operator-token", f.Operator.File("token"))
	}
	f.Operator.Write("milestones.sh", milestones)
	t.Run("milestones", func(t *testing.T) { inMilestones(t, f) })
	t.Run("wait", func(t *testing.T) { waitCodes(t, f) })
	t.Run("lost", func(t *testing.T) { lostMembers(t, f) })
	journal(t, f)
}

// inMilestones: no worker begins before the leader is done, and none at all when
// it failed.
func inMilestones(t *testing.T, f *fleettest.Fleet) {
	first := leader(t, f)
	script := func() fleettest.Result { return f.Operator.Exec("/bin/sh", f.Operator.Path("milestones.sh")) }
	script().OK()
	led := holds(t, first, "installed")
	if len(led) != 1 {
		t.Fatalf("the leader %s has installed %d times: %+v", first.Name, len(led), led)
	}
	for _, h := range f.Others(first) {
		if all := holds(t, h, "installed"); len(all) != 1 || all[0].Granted.Before(led[0].Released) {
			t.Errorf("%s has installed %+v, want once, and after the leader: %+v", h.Name, all, led)
		}
	}

	first.Write("broken", "")
	if r := script(); r.Code != 1 || !strings.Contains(r.Stderr, first.Name+": failed: ") || !strings.Contains(r.Stderr, "no such disk") {
		t.Errorf("with a broken leader the script exited %d, want 1 and %s named: %s", r.Code, first.Name, r.Stderr)
	}
	first.Remove("broken")
	for _, h := range f.Hosts {
		if all := holds(t, h, "installed"); len(all) != 1 {
			t.Errorf("%s has installed %d times, want no more than once: the leader failed", h.Name, len(all))
		}
	}
}

// waitCodes: 0 done, 1 failed and who, 6 paused.
func waitCodes(t *testing.T, f *fleettest.Fleet) {
	wait := func(id string) fleettest.Result {
		return f.Jorc("cluster", "wait", "--for", "run="+id, "--timeout", "2m")
	}
	want := func(r fleettest.Result, code int) {
		t.Helper()
		if r.Code != code {
			t.Errorf("%q exited %d, want %d: %s", r.Args[1:], r.Code, code, r.Stderr)
		}
	}
	bad := f.Host("web-3")
	bad.Write("broken", "")
	f.Jorc("cluster", "run", "install", "--id", "broken", "--role", "web").OK()
	r := wait("broken")
	want(r, 1)
	if !strings.Contains(r.Stderr, bad.Name+": failed: ") || strings.Contains(r.Stderr, "web-1") || strings.Contains(r.Stderr, "web-2") {
		t.Errorf("cluster wait says %q, want %s to be named only", r.Stderr, bad.Name)
	}
	bad.Remove("broken")
	f.Jorc("cluster", "run", "install", "--id", "mended", "--role", "web").OK()
	want(wait("mended"), 0)

	f.Jorc("cluster", "run", "long", "--id", "paused", "--role", "web").OK()
	f.Eventually("all webs to be at work", func(context.Context) error { return working(webs(f)) })
	waiting := make(chan fleettest.Result, 1)
	go func() { waiting <- wait("paused") }()
	f.Jorc("cluster", "pause", "--reason", "lunch").OK()
	want(<-waiting, 6)
	r = f.Jorc("cluster", "wait", "--timeout", "2m")
	want(r, 6)
	if !strings.Contains(r.Stderr, "lunch") {
		t.Errorf("cluster wait says %q, want the reason of the pause", r.Stderr)
	}
	edge := f.Host("edge-1")
	before := len(holds(t, edge, "installed"))
	f.Jorc("cluster", "run", "install", "--id", "later", "--role", "edge").OK()
	orchestrated(f)
	if got := len(holds(t, edge, "installed")); got != before {
		t.Errorf("%s has installed %d times, want %d: the cluster is paused", edge.Name, got, before)
	}
	for _, h := range webs(f) {
		h.Write("finish", "")
	}
	f.Jorc("cluster", "resume").OK()
	want(wait("later"), 0)
	want(wait("paused"), 0)
	for _, h := range webs(f) {
		h.Remove("finish")
		h.Remove("long")
	}
}

// working returns an error unless all hosts are in the middle of long.
func working(hosts []*fleettest.Host) error {
	for _, h := range hosts {
		if got := h.File("long"); got != "begin\n" {
			return fmt.Errorf("%s has noted %q", h.Name, got)
		}
	}
	return nil
}
