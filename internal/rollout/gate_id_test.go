package rollout_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/pace"
)

// TestGateRunID: runs of gates of different changes, steps and samples have different ids.
func TestGateRunID(t *testing.T) {
	t.Parallel()
	long, at := strings.Repeat("x", 60), time.Unix(1, 0)
	seen := map[string]bool{}
	for _, change := range []string{"v1", "v2", long + "1", long + "2"} {
		for step := range 3 {
			for ask := range 3 {
				id := pace.GateRunID(change, at, step, ask)
				if seen[id] || len(id) > 70 || !strings.HasPrefix(id, pace.GateRunPrefix) {
					t.Errorf("%s is there twice, or %d bytes long", id, len(id))
				}
				seen[id] = true
			}
		}
	}
}
