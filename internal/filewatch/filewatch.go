// Package filewatch reports that files may have changed.
package filewatch

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/fsnotify/fsnotify"
	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/concurrency"
)

// poll is how often a file is checked that cannot be watched: a directory on the way to
// it may not be read, or the kernel's limit on watches is reached.
const poll = 2 * time.Second

// longest is how many times settle a series of events is collected.
const longest = 10

// maxLinks is how many symbolic links a path may lead through, as in Linux.
const maxLinks = 40

// Watcher follows files. It watches all directories on the way to a file from the root
// on, and the same of the links on it: a file also changes when one of them is replaced.
type Watcher struct {
	files   []string
	settle  time.Duration
	changed func(ctx context.Context, file int)
	log     hclog.Logger

	notify  *fsnotify.Watcher // nil: it could not be made
	failed  chan error        // of notify
	pump    sync.WaitGroup
	dirs    map[string]map[string][]int // watched directory → name in it → files that it is on the way to
	ways    map[int][]string            // file → the paths on the way to it
	unarmed map[int]bool                // files that are not watched
	pending map[int]bool                // files to be reported

	asked concurrency.Signal
	mu    sync.Mutex
	asks  []int // of Check
}

// New returns a Watcher of files. It collects the events of one change for settle and
// then calls changed with the index of each file that may be another one.
func New(files []string, settle time.Duration, changed func(ctx context.Context, file int), log hclog.Logger) *Watcher {
	w := &Watcher{
		settle: settle, changed: changed, log: log, dirs: map[string]map[string][]int{}, ways: map[int][]string{},
		failed: make(chan error, 1), unarmed: map[int]bool{}, pending: map[int]bool{}, asked: concurrency.NewSignal(),
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
	timer := time.NewTimer(poll)
	defer timer.Stop()
	var first time.Time // when the first of the pending files became so
	for {
		var events <-chan fsnotify.Event
		if w.notify != nil {
			events = w.notify.Events
		}
		news := false
		select {
		case <-ctx.Done():
			return
		case ev := <-events:
			news = w.note(ev)
		case err := <-w.failed:
			w.log.Warn("watching files failed; all are checked", "error", err)
			for i := range w.ways {
				w.pending[i] = true
			}
			w.close()
			news = true
		case <-w.asked.C():
			w.mu.Lock()
			for _, i := range w.asks {
				w.pending[i] = true
			}
			w.asks = nil
			w.mu.Unlock()
			news = true
		case <-timer.C:
			for i := range w.unarmed {
				w.pending[i] = true
			}
			for i := range w.pending {
				delete(w.pending, i)
				if w.report(ctx, i); ctx.Err() != nil {
					return
				}
			}
			if first = (time.Time{}); len(w.unarmed) > 0 {
				timer.Reset(poll)
			}
		}
		if !news || len(w.pending) == 0 {
			continue
		}
		now := time.Now()
		if first.IsZero() {
			first = now
		}
		timer.Reset(min(w.settle, first.Add(longest*w.settle).Sub(now)))
	}
}

// note marks the files that an event is about, and reports whether there are any.
func (w *Watcher) note(ev fsnotify.Event) bool {
	name := filepath.Clean(ev.Name)
	about := w.dirs[filepath.Dir(name)][filepath.Base(name)]
	if ev.Op != fsnotify.Chmod {
		about = slices.Concat(about, w.forget(name)) // if it is a directory, it is another one now
	}
	for _, i := range about {
		w.pending[i] = true
	}
	return len(about) > 0
}

// forget ends the watches of a directory and of those below it. It returns the files
// that it was on the way to.
func (w *Watcher) forget(dir string) (files []int) {
	if w.dirs[dir] == nil {
		return nil
	}
	for d, names := range w.dirs {
		if d != dir && !strings.HasPrefix(d, dir+string(filepath.Separator)) {
			continue
		}
		for _, list := range names {
			files = append(files, list...)
		}
		w.unwatch(d)
	}
	return files
}

func (w *Watcher) unwatch(dir string) {
	delete(w.dirs, dir)
	_ = w.notify.Remove(dir) // it ended by itself if the directory was moved or removed
}

// report watches the way to a file, and reports the file.
func (w *Watcher) report(ctx context.Context, i int) {
	delete(w.unarmed, i)
	if err := w.arm(i); err != nil {
		w.unarmed[i] = true
	}
	w.changed(ctx, i)
}

// arm watches the way to a file, and no longer what was on the way to it before.
func (w *Watcher) arm(i int) error {
	if w.notify == nil {
		n, err := fsnotify.NewWatcher()
		if err != nil {
			return err
		}
		w.notify = n
		w.pump.Go(func() { w.receive(n) })
	}
	way, err := w.walk(i)
	for _, path := range w.ways[i] {
		if !slices.Contains(way, path) {
			w.leave(path, i)
		}
	}
	w.ways[i] = way
	return err
}

// receive takes errors from n until it is closed. It does nothing else: n keeps its
// lock while it reports an error, and Add and Remove wait for that.
func (w *Watcher) receive(n *fsnotify.Watcher) {
	for err := range n.Errors {
		if errors.Is(err, syscall.EINVAL) {
			continue // a directory that was moved was removed, too, before n ended its watch
		}
		select {
		case w.failed <- err:
		default: // one is enough
		}
	}
}

// walk watches the directories on the way to a file as far as they exist. Each is watched before the
// next one is read: whatever replaces that one afterwards is an event.
func (w *Watcher) walk(i int) (way []string, err error) {
	file := w.files[i]
	root := filepath.VolumeName(file) + string(filepath.Separator)
	at, rest := root, split(file)
	for links := 0; len(rest) > 0; {
		if rest[0] == "." || rest[0] == ".." { // in the target of a link
			at, rest = filepath.Join(at, rest[0]), rest[1:]
			continue
		}
		path := filepath.Join(at, rest[0])
		blind := w.watch(at)
		if blind == nil {
			w.enter(path, i)
			way = append(way, path)
		}
		if blind != nil && !errors.Is(blind, fs.ErrPermission) {
			return way, blind
		}
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return way, blind // it may come into being
		case err != nil:
			return way, err
		case info.IsDir():
			at, rest = path, rest[1:]
		case info.Mode()&fs.ModeSymlink == 0 || links == maxLinks:
			return way, blind
		default:
			target, err := os.Readlink(path)
			if err != nil {
				return way, err
			}
			if filepath.IsAbs(target) {
				at = root
			}
			links, rest = links+1, append(split(target), rest[1:]...)
		}
	}
	return way, nil
}

// split returns the names in a path.
func split(path string) []string {
	path = path[len(filepath.VolumeName(path)):]
	return strings.FieldsFunc(path, func(c rune) bool { return c < utf8.RuneSelf && os.IsPathSeparator(uint8(c)) })
}

func (w *Watcher) watch(dir string) error {
	if w.dirs[dir] != nil {
		return nil
	}
	if err := w.notify.Add(dir); err != nil {
		return err
	}
	w.dirs[dir] = map[string][]int{}
	return nil
}

// enter notes that path, in a watched directory, is on the way to file i.
func (w *Watcher) enter(path string, i int) {
	names, name := w.dirs[filepath.Dir(path)], filepath.Base(path)
	if !slices.Contains(names[name], i) {
		names[name] = append(names[name], i)
	}
}

// leave notes that path no longer is on the way to file i.
func (w *Watcher) leave(path string, i int) {
	dir, name := filepath.Split(path)
	dir = filepath.Clean(dir)
	names := w.dirs[dir]
	if names == nil {
		return // it is forgotten
	}
	if names[name] = slices.DeleteFunc(names[name], func(other int) bool { return other == i }); len(names[name]) == 0 {
		delete(names, name)
	}
	if len(names) == 0 {
		w.unwatch(dir)
	}
}

func (w *Watcher) close() {
	if w.notify != nil {
		_ = w.notify.Close() // its events are no longer read
		w.notify = nil
	}
	w.pump.Wait()
	clear(w.dirs)
	clear(w.ways)
}
