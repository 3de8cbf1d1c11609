package filewatch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/jorc/jorc/internal/filewatch"
)

// TestReplacedWhileWatched: a directory may be replaced at the very moment at which it is
// watched; the watch is not left on the one that was moved away.
func TestReplacedWhileWatched(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		replace func(dir string, n int) error
	}{
		{"it is missing for a moment", func(dir string, n int) error {
			return all(rename("d", fmt.Sprintf("old%d", n)), makeDir("d"))(dir)
		}},
		{"it is never missing", func(dir string, _ int) error {
			return unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, "d"), unix.AT_FDCWD, filepath.Join(dir, "e"), unix.RENAME_EXCHANGE)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			must(t, all(makeDir("d"), makeDir("e"), write("d/f", "0"))(dir))
			seen := make(chan string, 1000)
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() {
				filewatch.Watch(ctx, filepath.Join(dir, "d/f"), func(context.Context) { seen <- read(t, dir) }, hclog.NewNullLogger())
			})
			n := 0
			for range 500 {
				for range 1 + rand.N(8) {
					n++
					must(t, test.replace(dir, n))
				}
				for range 3 {
					n++
					must(t, write("d/f", fmt.Sprint(n))(dir))
					await(seen, fmt.Sprint(n))
				}
			}
			cancel()
			running.Wait()
		})
	}
}
