//go:build system

package command

import (
	"os/exec"
	"os/user"
	"strings"
	"testing"
)

// TestOtherUser needs root: the command has that user's groups and no others.
func TestOtherUser(t *testing.T) {
	for _, name := range []string{"nobody", "daemon", "mail"} {
		u, err := user.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		want, err := exec.CommandContext(t.Context(), "id", "-G", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Run(t.Context(), Command{Args: []string{"sh", "-c", "id -u; id -G; echo $HOME"}, User: name, Dir: "/"})
		if err != nil {
			t.Fatal(err)
		}
		if w := u.Uid + "\n" + strings.TrimSpace(string(want)) + "\n" + u.HomeDir + "\n"; got.Output != w {
			t.Errorf("%s: got %q, want %q", name, got.Output, w)
		}
	}
}
