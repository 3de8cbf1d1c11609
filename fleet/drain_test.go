//go:build fleet

package fleet_test

import (
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/fleettest"
)

// TestMaintenanceDrains: haproxy, configured by jorc on one host, lets go of a
// web host that is in maintenance, which then may die, without a request that
// fails. All three take their turn.
func TestMaintenanceDrains(t *testing.T) {
	t.Parallel()
	f := usual(t, "", "")
	healthy(t, f)
	load := f.Load(front)
	for _, h := range webs(f) {
		load.WaitServed(h.Name)
	}
	for _, h := range webs(f) {
		h.Maintenance(true)
		h.Exec(fleettest.Self(), "role:drain", "http://"+h.IP+":8080", "1s").OK()
		h.Write("version", "after "+h.Name)
		h.Exec("kill", "-9", strings.TrimSpace(h.File("web.pid"))).OK()
		h.Exec(fleettest.Self(), "role:answers", "http://"+h.IP+":8080", "after "+h.Name).OK()
		h.Maintenance(false)
		load.WaitServed(h.Name + " after " + h.Name)
	}
	load.Stop(100)
}
