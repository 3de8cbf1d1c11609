//go:build system

package fleetlock_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/lease"
)

// by sends a request n times at once, as another user, and returns what bash prints that then does what then says.
func (h *host) by(user string, n int, then string) string {
	h.t.Helper()
	text := body("theirs")
	request := fmt.Sprintf("POST /fleetlock/v1/pre-reboot HTTP/1.1\r\nHost: localhost\r\nfleet-lock-protocol: true\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	got, err := command.Run(h.t.Context(), command.Command{
		Args: []string{"bash", "-c", `exec 3<>"$1" && printf %s "$2" >&3; ` + then, "bash", "/dev/tcp/" + strings.Replace(h.addr, ":", "/", 1), strings.Repeat(request, n)},
		User: user, Dir: "/",
	})
	if err != nil || !got.OK() {
		h.t.Fatalf("%+v, %v", got, err)
	}
	return strings.TrimSpace(got.Output)
}

const read = "read -r _ code _ <&3; echo $code"

// TestOtherUsers needs root: only configured users may ask, and no other one becomes root by closing its connection.
func TestOtherUsers(t *testing.T) {
	h := newHost(t, time.Hour, "daemon", "no-such-user")
	if got := h.by("nobody", 1, read); got != "403" {
		t.Errorf("nobody gets %q", got)
	}
	for range 100 { // later ones of several requests find the connection closed
		h.by("nobody", 1, "exec 3>&-")
		h.by("nobody", 5, "exec 3>&-")
	}
	if got := h.Requests(); len(got) > 0 {
		t.Fatalf("nobody asked %d times for %+v", len(got), got[0])
	}
	if got := h.by("daemon", 1, read); got != "200" {
		t.Errorf("a configured user gets %q", got)
	}
	if s := h.Holder.Status(); s.State != lease.Ready || s.ID != "theirs" {
		t.Errorf("the lease is %+v", s)
	}
}
