package nodes_test

import (
	"testing"
	"time"

	"github.com/jorc/jorc/internal/nodes"
)

// TestRemembering: an agent's ledger lists index keys once, moves its node right
// all the same, also past what others write of it, and writes nothing twice.
func TestRemembering(t *testing.T) {
	t.Parallel()
	other, s := newLedger(t)
	mustReport(t, other, "n0", "v0")
	p := s.Proxy()
	l := nodes.New(p.Client(), "jorc", "default").Remembering(time.Hour)
	mustReport(t, l, "n1", "v0")
	asked := p.Asked("/v1/kv/jorc/default/running_version") + p.Asked("/v1/kv/jorc/default/status")
	if asked == 0 {
		t.Fatal("nothing was listed")
	}
	for _, v := range []string{"v1", "v2", "v3"} {
		mustReport(t, other, "n0", v)
		mustReport(t, l, "n1", v)
		mustState(t, l, "n1", "config", nodes.State{State: nodes.Success})
		mustState(t, l, "n1", "config", nodes.State{State: nodes.Running})
	}
	mustState(t, other, "n1", "backup", nodes.State{State: nodes.Failed}) // by somebody else, in a place that l does not know
	mustState(t, l, "n1", "config", nodes.State{State: nodes.Success})
	wantWhole(t, s, "n1")
	unwritten(t, s, "reporting what is known", func() { mustReport(t, l, "n1", "v3") })
	if now := p.Asked("/v1/kv/jorc/default/running_version") + p.Asked("/v1/kv/jorc/default/status"); now != asked {
		t.Errorf("index keys were listed %d times more", now-asked)
	}
	wantWhole(t, s, "n0")
}
