//go:build soak

package orchestrator_test

import (
	"testing"
	"time"
)

// TestExactlyOnceSoak is TestExactlyOnce for as long as it takes to meet rare
// interleavings.
func TestExactlyOnceSoak(t *testing.T) {
	t.Parallel()
	exactlyOnce(t, 5*time.Minute)
}
