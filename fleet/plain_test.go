//go:build fleet

package fleet_test

import "testing"

// TestPlainVersion: without a policy all hosts go to a version at once.
func TestPlainVersion(t *testing.T) {
	t.Parallel()
	f := rolling(t)
	f.Jorc("update", "trigger", "v2").OK()
	allAt(f, "v2")
	f.Jorc("update", "single", "v2").OK()
	healthy(t, f)
}
