//go:build system

package converge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consultest"
)

// TestDiskFull: while the disk is full nothing begins, and the reason is reported
// once; when there is room the host converges, with every task
// run once.
func TestDiskFull(t *testing.T) {
	server := consultest.Start(t)
	client := server.Client()
	for _, full := range []string{"start", "enter", "begun", "static passed", "validation begun", "validation passed", "pass done", "version file"} {
		t.Run(full, func(t *testing.T) {
			h := newHostOn(t, client, "full-"+strings.ReplaceAll(full, " ", "-"), "n1", t.TempDir())
			disk := h.path("state")
			if err := os.Mkdir(disk, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=2m"); err != nil {
				t.Fatalf("mount: %v (system tests need root)", err)
			}
			t.Cleanup(func() {
				if err := unix.Unmount(disk, 0); err != nil {
					t.Errorf("unmount: %v", err)
				}
			})
			ballast := filepath.Join(disk, "ballast")
			if full == "enter" {
				h.options.Admission = &gate{source: newSource(true)}
			}
			h.trigger("v1")
			h.build()
			var saves atomic.Int64
			h.hook = func(step string) {
				if step == "save" {
					saves.Add(1)
				}
				if _, err := os.Stat(ballast); step == full && os.IsNotExist(err) {
					fill(t, ballast)
				}
			}
			if full == "start" {
				fill(t, ballast)
			}
			h.run()
			s := h.until("trouble", func(s Status) bool { return strings.Contains(strings.Join(s.Trouble, "\n"), "no space left on device") })
			if s.Phase == PhaseConverged {
				t.Errorf("it says that it has converged: %+v", s)
			}
			consultest.Eventually(t, "a failed state that says why", func(context.Context) error {
				c := h.document().States[cluster.CategoryConfig]
				if c.State != cluster.StateFailed || c.Version != "v1" || !strings.Contains(c.Detail, "no space left on device") {
					return fmt.Errorf("got %+v", c)
				}
				return nil
			})
			told, tries := h.modified(), saves.Load()
			h.until("more tries", func(Status) bool { return saves.Load() > tries+3 })
			want(t, "writes while nothing changed", h.modified(), told)
			if err := os.Truncate(ballast, 0); err != nil {
				t.Fatal(err)
			}
			h.untilPhase(PhaseConverged, "v1")
			want(t, "ran", h.ran(), "one@v1 two@v1 check@v1")
			h.stop()
		})
	}
}

func fill(t *testing.T, path string) {
	f, err := os.Create(path)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Error(err)
	}
}
