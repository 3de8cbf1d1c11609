package watch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// maxFile bounds what the function file reads into memory.
const maxFile = 16 << 20

// watchFile follows a local file by watching its directory, so that files that
// are replaced, or that come into being, are seen.
func (s *sources) watchFile(ctx context.Context, d *dependency) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		s.send(ctx, []change{{id: d.id, err: fmt.Errorf("watch file %s: %w", d.name, err), at: time.Now()}})
		return
	}
	defer w.Close()
	watching := false
	for {
		if !watching {
			watching = w.Add(filepath.Dir(d.name)) == nil
		}
		s.send(ctx, []change{readFile(d)})
		var again <-chan time.Time
		if !watching {
			t := time.NewTimer(5 * time.Second) // the directory does not exist yet
			defer t.Stop()
			again = t.C
		}
		if !s.nextFileEvent(ctx, w, d.name, again) {
			return
		}
	}
}

// nextFileEvent waits for something to happen to path; it is false when ctx ended.
func (s *sources) nextFileEvent(ctx context.Context, w *fsnotify.Watcher, path string, again <-chan time.Time) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-again:
			return true
		case err := <-w.Errors:
			s.log.Warn("watching a file", "path", path, "error", err)
			return true
		case e := <-w.Events:
			if filepath.Clean(e.Name) == filepath.Clean(path) {
				return true
			}
		}
	}
}

func readFile(d *dependency) change {
	c := change{id: d.id, at: time.Now()}
	info, err := os.Stat(d.name)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxFile) {
		err = fmt.Errorf("file %s is not a regular file of at most %d bytes", d.name, maxFile)
	}
	if err != nil {
		c.err = err
		return c
	}
	data, err := os.ReadFile(d.name)
	c.value, c.err = string(data), err
	return c
}
