package converge

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	driftQuiet = 200 * time.Millisecond // after the last change, until files are scanned
	driftMost  = 2 * time.Second        // after the first one
)

// run looks whenever something changed where static files are, and every
// interval, until ctx ends.
func (d *drift) run(ctx context.Context) error {
	if len(d.patterns) == 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	w := d.listener()
	defer func() {
		if w != nil {
			_ = w.Close()
		}
	}()
	tick := time.NewTicker(d.interval)
	defer tick.Stop()
	instead := time.NewTicker(d.pollEvery)
	defer instead.Stop()
	due := time.NewTimer(0) // a scan at the start
	defer due.Stop()
	first := time.Now()
	for {
		var events chan fsnotify.Event
		var failures chan error
		if w != nil {
			events, failures = w.Events, w.Errors
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.wake.C():
			due.Reset(0)
		case e := <-events:
			if !d.concerns(e.Name) {
				continue
			}
			if first.IsZero() {
				first = time.Now()
			}
			due.Reset(max(0, min(driftQuiet, time.Until(first.Add(driftMost)))))
		case err := <-failures:
			d.log.Warn("changes of static files", "error", err) // an overflow: scan all
			due.Reset(driftQuiet)
		case <-instead.C:
			if w == nil {
				w = d.listener()
				due.Reset(0)
			}
		case <-tick.C:
			due.Reset(0)
		case <-due.C:
			first = time.Time{}
			w = d.aim(ctx, w)
			d.look(ctx)
		}
	}
}

// listener hears of changes; nil when the host has no more of them.
func (d *drift) listener() *fsnotify.Watcher {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		d.setWatchError(err)
		return nil
	}
	d.setWatchError(nil)
	return w
}

// aim has w listen to all directories that matter now. When the host's limit
// is reached it is given back: files are then scanned at every interval.
func (d *drift) aim(ctx context.Context, w *fsnotify.Watcher) *fsnotify.Watcher {
	d.mu.Lock()
	idle := d.base == nil
	d.mu.Unlock()
	if w == nil || idle {
		return w
	}
	had := map[string]bool{}
	for _, dir := range w.WatchList() {
		had[dir] = true
	}
	for _, dir := range watched(ctx, d.patterns) {
		// A directory that was replaced by another of its name is no longer watched.
		had[dir] = false
		err := w.Add(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			_ = w.Close()
			d.setWatchError(fmt.Errorf("%s: %w", dir, err))
			return nil
		}
	}
	for dir, old := range had {
		if old {
			_ = w.Remove(dir) // it may be gone
		}
	}
	return w
}

// setWatchError notes why changes cannot be watched; nil: they are.
func (d *drift) setWatchError(err error) {
	text := ""
	if err != nil {
		text = fmt.Sprintf("cannot watch static files, comparing them every %v: %v (raise fs.inotify.max_user_watches, max_user_instances)", d.pollEvery, err)
	}
	d.mu.Lock()
	news := text != d.watchError
	d.watchError = text
	d.mu.Unlock()
	if news {
		if text != "" {
			d.log.Warn("drift", "note", text)
		}
		d.changed()
	}
}

// concerns reports whether a change of name can change files of the patterns.
func (d *drift) concerns(name string) bool {
	for _, p := range d.patterns {
		if name == p.base || strings.HasPrefix(p.base, strings.TrimSuffix(name, "/")+"/") || strings.HasPrefix(name, strings.TrimSuffix(p.base, "/")+"/") {
			return true
		}
	}
	return false
}
