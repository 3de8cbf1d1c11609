//go:build fleet

package fleet_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/fleettest"
)

// TestFleetComesUp: hosts that know nothing but their own configuration become
// a cluster with leaders, and each has its files.
func TestFleetComesUp(t *testing.T) {
	t.Parallel()
	f := usual(t, "", "")
	healthy(t, f)
	if got := strings.Fields(f.Jorc("cluster", "leader").OK()); len(got) != 1 {
		t.Errorf("leaders %q, want one", got)
	}
	if got := f.Jorc("cluster", "members", "--count", "--filter", `"web" in Roles`).OK(); got != "3\n" {
		t.Errorf("members with role web: %q", got)
	}
	f.Jorc("doctor").OK()
	for _, h := range f.Hosts {
		waitFile(f, h, "value first\nweb web-1 web-2 web-3\n")
		h.Jorc("doctor").OK()
	}
	load := f.Load(front)
	for _, h := range webs(f) {
		load.WaitServed(h.Name)
	}
	load.Stop(10)
}

func waitFile(f *fleettest.Fleet, h *fleettest.Host, want string) {
	f.Eventually(h.Name+"'s file to be "+fmt.Sprintf("%q", want), func(context.Context) error {
		if got := h.File("file"); got != want {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}
