package orchestrator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
)

// TestIdle: while any of the documents that decisions are made of cannot be read
// nothing is granted, and that continues by itself when it can.
func TestIdle(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.host("a", "10.0.0.1", "passing", "passing")
	s.join("a")
	s.worker("a")
	s.must(s.cluster.Pause(t.Context(), cluster.Hold{Since: time.Now()})) // so that there is such a document
	s.must(s.cluster.Resume(t.Context()))
	orch, _ := s.start(s.deciding())
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
		id := strings.ReplaceAll(key, "/", "-")
		s.asksFor(id)
		s.cyclesPass(orch, 3)
		if s.has(id) {
			t.Errorf("%s: a run is granted", key)
		}
		s.put(key, string(good.Value))
		idle("")
		s.done(id)
	}
}
