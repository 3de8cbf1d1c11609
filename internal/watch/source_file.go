package watch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/jorc/jorc/internal/concurrency"
)

// maxFile bounds what the function file reads into memory.
const maxFile = 16 << 20

// filePoll is how often a file is looked at when its directory cannot be
// watched: it does not exist, or the kernel's limit on watches is reached.
const filePoll = 2 * time.Second

// watchFile follows a local file by watching its directory, so that files that
// are replaced, or that come into being, are seen.
func (s *sources) watchFile(ctx context.Context, d *dependency) {
	w := &fileWatcher{sources: s, path: filepath.Clean(d.name)}
	defer w.close()
	for {
		w.watch()
		s.send(ctx, []change{readFile(d)})
		if !w.wait(ctx) {
			return
		}
	}
}

type fileWatcher struct {
	*sources
	path   string
	notify *fsnotify.Watcher // nil: polled
}

// watch watches the file's directory, if it can.
func (w *fileWatcher) watch() {
	if w.notify != nil {
		return
	}
	n, err := fsnotify.NewWatcher()
	if err != nil {
		return
	}
	if n.Add(filepath.Dir(w.path)) != nil {
		_ = n.Close() // it watches nothing
		return
	}
	w.notify = n
}

func (w *fileWatcher) close() {
	if w.notify != nil {
		_ = w.notify.Close() // nobody reads its events any more
		w.notify = nil
	}
}

// wait returns when something may have happened to the file; it is false when
// ctx ended.
func (w *fileWatcher) wait(ctx context.Context) bool {
	if w.notify == nil {
		return concurrency.Sleep(ctx, filePoll) == nil
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case err := <-w.notify.Errors:
			w.log.Warn("watching a file", "path", w.path, "error", err)
			w.close()
			return true
		case e := <-w.notify.Events:
			switch filepath.Clean(e.Name) {
			case w.path:
				return true
			case filepath.Dir(w.path):
				if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
					w.close() // another directory may take its place
					return true
				}
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
