package replace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/durable"
)

// limitEnv makes the test binary a process whose files may hold 1000 bytes,
// which is as good as a full disk; its value is "files directory|state
// directory|bytes to write|reload or none".
const limitEnv = "JORC_TEST_REPLACE_LIMIT"

func limitMain() int {
	parts := strings.Split(os.Getenv(limitEnv), "|")
	p := place{dir: parts[0], state: parts[1]}
	p.r = New(p.state, nil, hclog.NewNullLogger())
	var size int
	if _, err := fmt.Sscan(parts[2], &size); err != nil {
		return 2
	}
	f := p.file("a", strings.Repeat("n", size))
	if parts[3] == "reload" {
		f.Reload = p.sh("touch reloaded " + strings.Repeat(" ", 1000)) // the journal is above the limit
	}
	signal.Ignore(consultest.FileSizeSignal)
	if err := consultest.LimitFiles(1000); err != nil {
		return 2
	}
	_, err := p.try(context.Background(), f)
	if errors.Is(err, syscall.EFBIG) {
		_, _ = fmt.Fprintln(os.Stdout, err)
		return 3
	}
	return 1
}

// TestNoSpace is a disk that takes no more: in the destination's directory,
// and where the journal is.
func TestNoSpace(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, reload, want string
		size               int
	}{
		{name: "staged file", size: 5000, reload: "none", want: "free some space; the file is as it was"},
		{name: "staged file with reload", size: 5000, reload: "reload", want: "free some space; the file is as it was"},
		{name: "journal", size: 10, reload: "reload", want: "nothing was changed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.write(t, "a", "old")
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			child := exec.CommandContext(t.Context(), self, "-test.run=^$")
			child.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%s|%d|%s", limitEnv, p.dir, p.state, tt.size, tt.reload))
			out, err := child.CombinedOutput()
			if child.ProcessState.ExitCode() != 3 || !strings.Contains(string(out), tt.want) {
				t.Errorf("got %v: %s, want it refused with %q", err, out, tt.want)
			}
			p.want(t, "a", "old")
			p.wantNone(t, "reloaded")
			p.wantClean(t)
		})
	}
}

// TestStateDirUnusable has a file where the state directory should be.
func TestStateDirUnusable(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.write(t, "a", "old")
	p.write(t, "state", "")
	p.r = New(p.path("state"), nil, hclog.NewNullLogger())
	f := p.file("a", "new")
	f.Reload = p.sh("touch reloaded")
	if _, err := p.try(t.Context(), f); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("got %v, want ENOTDIR", err)
	}
	p.want(t, "a", "old")
	p.wantNone(t, "reloaded")
	p.wantClean(t)
}

// TestCopyAsBackup is what happens where there are no hard links.
func TestCopyAsBackup(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.r.link = func(*durable.Dir, string, string) error { return &os.LinkError{Op: "link", Err: syscall.EPERM} }
	p.write(t, "a", "old")
	if err := os.Chmod(p.path("a"), 0o604); err != nil {
		t.Fatal(err)
	}
	f := p.file("a", "new")
	f.Reload = p.sh("! grep new a")
	var rerr *ReloadError
	if _, err := p.try(t.Context(), f); !errors.As(err, &rerr) || !rerr.RolledBack {
		t.Errorf("got %v, want it rolled back", err)
	}
	p.want(t, "a", "old")
	info, err := os.Stat(p.path("a"))
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o604 {
		t.Errorf("mode: got %o, want 604", got)
	}
	p.wantClean(t)
}
