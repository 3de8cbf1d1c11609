// Package filewatch reports that files may have changed.
package filewatch

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/concurrency"
)

// poll is how often a file is checked whose directory cannot be watched: it does not
// exist, or the kernel's limit on watches is reached.
const poll = 2 * time.Second

// Watcher follows files. It watches their directories, because files are replaced by
// renames, and also the file that a symbolic link leads to.
type Watcher struct {
	files   []string
	settle  time.Duration
	changed func(ctx context.Context, file int)
	log     hclog.Logger

	notify  *fsnotify.Watcher // nil: it could not be made
	dirs    map[string]string // a file's directory → the same without symbolic links, which is watched
	names   map[string][]int  // path in a watched directory → files
	unarmed map[int]bool      // files whose directory is not watched
	pending map[int]bool      // files to be reported

	asked concurrency.Signal
	mu    sync.Mutex
	asks  []int // of Check
}

// New returns a Watcher of files. It collects the events of one change for settle and
// then calls changed with the index of each file that may be another one.
func New(files []string, settle time.Duration, changed func(ctx context.Context, file int), log hclog.Logger) *Watcher {
	w := &Watcher{
		settle: settle, changed: changed, log: log, dirs: map[string]string{}, names: map[string][]int{},
		unarmed: map[int]bool{}, pending: map[int]bool{}, asked: concurrency.NewSignal(),
	}
	for _, file := range files {
		w.files = append(w.files, filepath.Clean(file))
	}
	return w
}

// Watch calls changed now, and whenever file may be another one, until ctx ends.
func Watch(ctx context.Context, file string, changed func(ctx context.Context), log hclog.Logger) {
	w := New([]string{file}, 0, func(ctx context.Context, _ int) { changed(ctx) }, log)
	w.Check(0)
	w.Run(ctx)
}

// Check has files reported, and watched from then on. It does not block. A nil
// Watcher does nothing.
func (w *Watcher) Check(files ...int) {
	if w == nil {
		return
	}
	w.mu.Lock()
	w.asks = append(w.asks, files...)
	w.mu.Unlock()
	w.asked.Notify()
}

// Run watches until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	defer w.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for set := true; ; {
		var events <-chan fsnotify.Event
		var errs <-chan error
		if w.notify != nil {
			events, errs = w.notify.Events, w.notify.Errors
		}
		select {
		case <-ctx.Done():
			return
		case ev := <-events:
			set = w.note(ev) && set
		case err := <-errs:
			w.log.Warn("watching files failed; all are checked", "error", err)
			w.close()
			for i := range w.files {
				w.unarmed[i] = true
			}
		case <-w.asked.C():
			w.mu.Lock()
			for _, i := range w.asks {
				w.pending[i] = true
			}
			w.asks = nil
			w.mu.Unlock()
			set = false
		case <-timer.C:
			set = false
			for i := range w.unarmed {
				w.pending[i] = true
			}
			for i := range w.pending {
				delete(w.pending, i)
				if w.report(ctx, i); ctx.Err() != nil {
					return
				}
			}
		}
		switch {
		case set:
		case len(w.pending) > 0:
			timer.Reset(w.settle)
			set = true
		case len(w.unarmed) > 0:
			timer.Reset(poll)
			set = true
		}
	}
}

// note marks the files that an event is about. It is false if there are any.
func (w *Watcher) note(ev fsnotify.Event) (other bool) {
	name := filepath.Clean(ev.Name)
	about := w.names[name]
	if ev.Has(fsnotify.Remove) || ev.Has(fsnotify.Rename) {
		about = append(slices.Clone(about), w.forget(name)...)
	}
	for _, i := range about {
		w.pending[i] = true
	}
	return len(about) == 0
}

// forget returns the files of a directory that is gone and no longer watched.
func (w *Watcher) forget(dir string) (files []int) {
	for as, real := range w.dirs {
		if real == dir {
			delete(w.dirs, as)
			_ = w.notify.Remove(dir) // it may have been renamed
		}
	}
	for name, list := range w.names {
		if filepath.Dir(name) == dir {
			files = append(files, list...)
			delete(w.names, name)
		}
	}
	return files
}

// report watches a file's directory, and reports the file.
func (w *Watcher) report(ctx context.Context, i int) {
	delete(w.unarmed, i)
	if err := w.arm(i); err != nil {
		w.unarmed[i] = true
	}
	w.changed(ctx, i)
}

// arm watches the directory of a file and, if that is a symbolic link, the directory
// of the file that it leads to.
func (w *Watcher) arm(i int) error {
	if w.notify == nil {
		n, err := fsnotify.NewWatcher()
		if err != nil {
			return err
		}
		w.notify = n
	}
	name, err := w.watchName(w.files[i], i)
	if err != nil {
		return err
	}
	info, err := os.Lstat(name)
	if err != nil || info.Mode()&os.ModeSymlink == 0 {
		return nil // the file may come into being
	}
	target, err := filepath.EvalSymlinks(name)
	if err != nil {
		return nil // reading the file reports why
	}
	_, err = w.watchName(target, i)
	return err
}

// watchName watches the directory of path for file i and returns path without
// symbolic links in its directory.
func (w *Watcher) watchName(path string, i int) (string, error) {
	dir := filepath.Dir(path)
	real, ok := w.dirs[dir]
	if !ok {
		var err error
		if real, err = filepath.EvalSymlinks(dir); err != nil {
			return "", err
		}
		if err := w.notify.Add(real); err != nil {
			return "", err
		}
		w.dirs[dir] = real
	}
	name := filepath.Join(real, filepath.Base(path))
	if !slices.Contains(w.names[name], i) {
		w.names[name] = append(w.names[name], i)
	}
	return name, nil
}

func (w *Watcher) close() {
	if w.notify != nil {
		_ = w.notify.Close() // its events are no longer read
		w.notify = nil
	}
	clear(w.dirs)
	clear(w.names)
}
