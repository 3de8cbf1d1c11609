//go:build system

package control_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/command"
)

// TestOtherUsersOfTheSocket needs root: only members of the group may connect, and without a group no other user.
func TestOtherUsersOfTheSocket(t *testing.T) {
	for _, test := range []struct{ group, user, want string }{
		{"", "nobody", "Permission denied"},
		{"", "daemon", "Permission denied"},
		{"daemon", "nobody", "Permission denied"},
		{"daemon", "daemon", "connected"},
	} {
		h := newHost(t)
		h.Group = test.group
		for dir := filepath.Dir(h.Socket); dir != os.TempDir(); dir = filepath.Dir(dir) {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		stop := h.serve(t)
		got, err := command.Run(t.Context(), command.Command{
			Args: []string{"perl", "-e", `use Socket; socket(S, PF_UNIX, SOCK_STREAM, 0) && connect(S, sockaddr_un($ARGV[0])) ? print "connected" : print $!`, h.Socket},
			User: test.user, Dir: "/",
		})
		if err != nil || !strings.Contains(got.Output, test.want) {
			t.Errorf("group %q, user %s: %s, %v, want %s", test.group, test.user, got.Output, err, test.want)
		}
		if strings.Contains(h.log.String(), "WARN") {
			t.Errorf("group %q: %s", test.group, h.log)
		}
		stop()
	}
}
