package watch

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/replace"
)

const (
	// editSettle is how long the events of one edit are collected before the file
	// is read.
	editSettle = 20 * time.Millisecond
	// editPoll is the pause between attempts to watch a directory that does not
	// exist, or that exceeds the kernel's limit on watches.
	editPoll = 2 * time.Second

	// Pauses before a file that is edited again and again is restored: another
	// program may own it, too. The first edit after editCalm is restored at once.
	firstRestore = time.Second
	lastRestore  = 5 * time.Minute
	editCalm     = 10 * time.Minute
)

// edit reports what another program, or the engine itself, made of a
// destination.
type edit struct {
	template int // index in the configuration
	stamp    replace.Stamp
	err      error // why it cannot be read
}

// editHistory are the recent edits of a unit's files.
type editHistory struct {
	count   int
	first   time.Time
	last    time.Time
	backoff *concurrency.Backoff
}

// add counts an edit and returns the pause before the file is restored.
func (h *editHistory) add(now time.Time) (pause time.Duration) {
	if h.count == 0 || now.Sub(h.last) > editCalm {
		h.count, h.first, h.backoff = 0, now, concurrency.NewBackoff(firstRestore, lastRestore)
	} else {
		pause = h.backoff.Next()
	}
	h.count++
	h.last = now
	return pause
}

// checkEdit makes a unit due when one of its files is not what the last job left.
func (e *Engine) checkEdit(ed edit) {
	u, t := e.places[ed.template].unit, e.places[ed.template].tmpl
	switch {
	case u.running:
		u.recheck = true
		return
	case !u.rendered, !u.retry.IsZero(): // the next job compares the file
		return
	case ed.err == nil && ed.stamp == t.stamp, !u.restore.IsZero():
		return
	}
	now := time.Now()
	pause := u.edits.add(now)
	if t.conf.OnEdit == config.OnEditReport {
		pause = min(pause, firstRestore) // nothing is written
	}
	u.restore = now.Add(pause)
	if pause > 0 && t.conf.OnEdit != config.OnEditReport {
		t.status.Edited = fmt.Sprintf("changed %d times by another program since %s; it is restored at %s",
			u.edits.count, u.edits.first.Format(time.RFC3339), u.restore.Format(time.RFC3339))
		e.o.Log.Warn("another program keeps changing a rendered file", "template", t.conf.Name, "file", t.conf.Destination,
			"changes", u.edits.count, "restored in", pause.Round(time.Millisecond))
		e.publish(u)
	}
	u.queue.reschedule(u)
}

// reportEdit writes the template's status about edits after a job.
func (e *Engine) reportEdit(u *unit, t *tmpl, j *job, now time.Time) {
	dest := t.conf.Destination
	switch {
	case slices.Contains(j.outcome.Edited, dest):
		if t.status.Edited == "" || j.edited {
			t.status.Edited = fmt.Sprintf("changed by another program, found at %s; it stays until the template's data changes (on_edit = %q)",
				now.Format(time.RFC3339), config.OnEditReport)
			e.o.Log.Warn("a rendered file was changed by another program; it stays until the template's data changes", "template", t.conf.Name, "file", dest)
		}
	case j.edited && (slices.Contains(j.outcome.Changed, dest) || slices.Contains(j.outcome.Fixed, dest)):
		t.status.Edited = fmt.Sprintf("changed by another program, %d times since %s; restored at %s",
			u.edits.count, u.edits.first.Format(time.RFC3339), now.Format(time.RFC3339))
		e.o.Log.Warn("a rendered file was changed by another program; it was restored", "template", t.conf.Name, "file", dest)
	case t.conf.OnEdit == config.OnEditReport:
		t.status.Edited = ""
	}
}

// hashWritten is the hash of what the file was brought to, which on_edit =
// "report" needs; nil if it is not needed, or stays as it was.
func (t *tmpl) hashWritten(data []byte, o *replace.Outcome) *replace.Hash {
	if t.conf.OnEdit != config.OnEditReport || slices.Contains(o.Edited, t.conf.Destination) {
		return nil
	}
	sum := sha256.Sum256(data)
	return &sum
}

// editWatcher reads the stamps of destinations whenever something happens to
// them. It watches their directories, because files are replaced by renames.
type editWatcher struct {
	files []string // destinations, in the order of the configuration
	found chan<- edit
	log   hclog.Logger

	notify  *fsnotify.Watcher // nil: it could not be made
	dirs    map[string]string // a destination's directory → the same without symbolic links, which is watched
	names   map[string][]int  // path in a watched directory → files
	unarmed map[int]bool      // files whose directory is not watched
	pending map[int]bool      // files to be read

	asked concurrency.Signal
	mu    sync.Mutex
	asks  []int // files to be read, of other goroutines
}

func newEditWatcher(templates []config.Template, found chan<- edit, log hclog.Logger) *editWatcher {
	w := &editWatcher{
		found: found, log: log, dirs: map[string]string{}, names: map[string][]int{},
		unarmed: map[int]bool{}, pending: map[int]bool{}, asked: concurrency.NewSignal(),
	}
	for i := range templates {
		w.files = append(w.files, filepath.Clean(templates[i].Destination))
	}
	return w
}

// look asks for files to be read, and watched from then on. It
// does not block.
func (w *editWatcher) look(files []int) {
	if w == nil {
		return
	}
	w.mu.Lock()
	w.asks = append(w.asks, files...)
	w.mu.Unlock()
	w.asked.Notify()
}

func (w *editWatcher) run(ctx context.Context) {
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
			w.log.Warn("watching rendered files failed; they are all looked at", "error", err)
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
				if !w.read(ctx, i) {
					return
				}
			}
		}
		switch {
		case set:
		case len(w.pending) > 0:
			timer.Reset(editSettle)
			set = true
		case len(w.unarmed) > 0:
			timer.Reset(editPoll)
			set = true
		}
	}
}

// note marks the files that an event is about. It is false if there are any.
func (w *editWatcher) note(ev fsnotify.Event) (other bool) {
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
func (w *editWatcher) forget(dir string) (files []int) {
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

// read watches a file's directory, and sends the file's stamp. It is false when
// ctx has ended.
func (w *editWatcher) read(ctx context.Context, i int) bool {
	delete(w.unarmed, i)
	if err := w.arm(i); err != nil {
		w.unarmed[i] = true
	}
	stamp, err := replace.ReadStamp(w.files[i])
	select {
	case w.found <- edit{template: i, stamp: stamp, err: err}:
		return true
	case <-ctx.Done():
		return false
	}
}

// arm watches the directory of a destination and, if that is a symbolic link, the
// directory of the file that it leads to.
func (w *editWatcher) arm(i int) error {
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
		return nil // reading the stamp reports why
	}
	_, err = w.watchName(target, i)
	return err
}

// watchName watches the directory of path for file i and returns path without
// symbolic links in its directory.
func (w *editWatcher) watchName(path string, i int) (string, error) {
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

func (w *editWatcher) close() {
	if w.notify != nil {
		_ = w.notify.Close() // its events are no longer read
		w.notify = nil
	}
	clear(w.dirs)
	clear(w.names)
}
