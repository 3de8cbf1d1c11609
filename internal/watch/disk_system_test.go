//go:build system

package watch_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/watch"
)

// tmpfs mounts a file system of 64 KB; it goes when the engines of the test
// have stopped.
func tmpfs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	mount(t, "tmpfs", dir, "tmpfs", 0, "size=64k")
	t.Cleanup(func() { unmount(t, dir) })
	return dir
}

func mount(t *testing.T, source, dir, kind string, flags uintptr, data string) {
	t.Helper()
	if err := unix.Mount(source, dir, kind, flags, data); err != nil {
		t.Fatalf("mount %s: %v (system tests need root)", dir, err)
	}
}

func unmount(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Unmount(dir, 0); err != nil {
		t.Errorf("unmount %s: %v", dir, err)
	}
}

// fill leaves no byte free, until the function returned is called.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	ballast := filepath.Join(dir, "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
	}
}

// brokenPlace is a template whose place on disk fails, beside one whose place
// does not.
type brokenPlace struct {
	*host
	engine *watch.Engine
	dir    string // of the one that fails
}

func newBrokenPlace(t *testing.T, h *host, dir string, edit ...func(*config.Template)) *brokenPlace {
	t.Helper()
	h.put("v", "one")
	broken := config.Template{Name: "broken", Contents: `{{ key "v" }}`, Destination: filepath.Join(dir, "broken")}
	for _, e := range edit {
		e(&broken)
	}
	b := &brokenPlace{host: h, dir: dir}
	b.engine, _ = h.run(broken, h.tmpl("healthy", `{{ key "v" }}`))
	b.wantBoth("one")
	return b
}

func (b *brokenPlace) wantBoth(content string) {
	b.t.Helper()
	b.want("healthy", content)
	healthy := b.host.dir
	b.host.dir = b.dir
	b.want("broken", content)
	b.host.dir = healthy
	s := wantStatus(b.t, b.engine, "broken", "rendered", inState(watch.StateRendered))
	if s.Error != "" {
		b.t.Errorf("a template that is well has the error %q", s.Error)
	}
}

// wantFailure changes the data: the healthy file follows, the broken one stays
// whole, its status says why and what helps, and nothing is left beside it.
func (b *brokenPlace) wantFailure(value, before string, says ...string) {
	b.t.Helper()
	b.put("v", value)
	b.want("healthy", value)
	s := wantStatus(b.t, b.engine, "broken", "failed", inState(watch.StateFailed))
	for _, text := range says {
		if !strings.Contains(s.Error, text) {
			b.t.Errorf("its error is %q; want %q in it", s.Error, text)
		}
	}
	got, err := os.ReadFile(filepath.Join(b.dir, "broken"))
	if err != nil || string(got) != before {
		b.t.Errorf("the file holds %q, %v; want %q as before", got, err, before)
	}
	consultest.Eventually(b.t, "nothing to be left beside it", func(context.Context) error {
		left, err := filepath.Glob(filepath.Join(b.dir, ".broken*"))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("there is %v", left)
		}
		return err
	})
}

func TestFullDiskFailsOneTemplate(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	b := newBrokenPlace(t, h, tmpfs(t))
	free := fill(t, b.dir)
	b.wantFailure("two", "one", "no space left on device", "free some space", filepath.Join(b.dir, "broken"))
	free()
	b.wantBoth("two")
}

// TestFullDiskWhileBig: the first bytes fit, the whole does not.
func TestFullDiskWhileBig(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	b := newBrokenPlace(t, h, tmpfs(t))
	b.wantFailure(strings.Repeat("two", 40_000), "one", "no space left on device")
	b.put("v", "three")
	b.wantBoth("three")
}

func TestReadOnlyDiskFailsOneTemplate(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	dir := t.TempDir()
	mount(t, dir, dir, "", unix.MS_BIND, "")
	t.Cleanup(func() { unmount(t, dir) })
	b := newBrokenPlace(t, h, dir)
	mount(t, "", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	b.wantFailure("two", "one", "read-only file system", "make it writable, under systemd with ReadWritePaths=")
	mount(t, "", dir, "", unix.MS_BIND|unix.MS_REMOUNT, "")
	b.wantBoth("two")
}

// TestFullStateDisk: what is to be reloaded needs the journal, and is not begun
// without it; what is not reloaded continues.
func TestFullStateDisk(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	h.state = tmpfs(t)
	dir := t.TempDir()
	b := newBrokenPlace(t, h, dir, func(c *config.Template) {
		c.Reload = []string{"cp", filepath.Join(dir, "broken"), filepath.Join(dir, "reloaded")}
	})
	free := fill(t, h.state)
	b.wantFailure("two", "one", "no space left on device")
	got, err := os.ReadFile(filepath.Join(dir, "reloaded"))
	if err != nil || string(got) != "one" {
		t.Errorf("reloaded with %q, %v; want no reload since %q", got, err, "one")
	}
	free()
	b.wantBoth("two")
	if got, err = os.ReadFile(filepath.Join(dir, "reloaded")); err != nil || string(got) != "two" {
		t.Errorf("reloaded with %q, %v; want %q", got, err, "two")
	}
}
