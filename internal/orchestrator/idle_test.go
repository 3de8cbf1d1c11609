package orchestrator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/orchestrator"
)

// TestIdle: while any of the documents that decisions are made of cannot be read
// no decider is asked, and that continues by itself when it can.
func TestIdle(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.join("a")
	s.must(s.cluster.Pause(t.Context(), cluster.Hold{Since: time.Now()})) // so that there is such a document
	d := &recorder{}
	o := quick(s.client)
	o.Interval, o.Deciders = 50*time.Millisecond, []orchestrator.Decider{d}
	orch, _ := s.start(o)
	idle := func(want string) {
		t.Helper()
		s.eventually(fmt.Sprintf("idle: %q", want), func() error {
			if last := orch.Status().Last; last == nil || last.Idle != want {
				return errEventsPending
			}
			return nil
		})
	}
	idle("")
	for _, key := range []string{"current/control", "current/leaders", "profile"} {
		good, _, err := s.client.KVGet(t.Context(), s.store.Path(key), consul.Query{})
		s.must(nil, err)
		s.put(key, "garbage")
		idle(key + " cannot be read: nothing is decided on what may be wrong")
		before := d.asked()
		s.cyclesPass(orch, 3)
		if n := d.asked(); n != before {
			t.Errorf("%s: the decider was asked %d times more", key, n-before)
		}
		s.put(key, string(good.Value))
		idle("")
	}
}
