package watch

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/filewatch"
	"github.com/jorc/jorc/internal/replace"
	"github.com/jorc/jorc/internal/text"
)

const (
	// editSettle is how long the events of one edit are collected before the file
	// is read.
	editSettle = 20 * time.Millisecond

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
	if u.edits == nil {
		u.edits = &editHistory{}
	}
	pause := u.edits.add(now)
	if t.conf.OnEdit == config.OnEditReport {
		pause = min(pause, firstRestore) // nothing is written
	}
	u.restore = now.Add(pause)
	if pause > 0 && t.conf.OnEdit != config.OnEditReport {
		e.o.Log.Warn("another program keeps changing a rendered file", "template", t.conf.Name, "file", t.conf.Destination,
			"changes", u.edits.count, "restored in", pause.Round(time.Millisecond))
		e.publish(u, func(_ int, other *tmpl) {
			if other == t {
				t.status.Edited = fmt.Sprintf("changed %s by another program since %s; it is restored at %s",
					text.Count(u.edits.count, "time", "times"), u.edits.first.Format(time.RFC3339), u.restore.Format(time.RFC3339))
			}
		})
	}
	u.queue.reschedule(u)
}

// reportEdit writes the template's status about edits after a job. The caller holds e.mu.
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
		t.status.Edited = fmt.Sprintf("changed by another program, %s since %s; restored at %s",
			text.Count(u.edits.count, "time", "times"), u.edits.first.Format(time.RFC3339), now.Format(time.RFC3339))
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

// newEditWatcher returns what reads the stamps of destinations whenever something
// happens to them. Templates without a destination are the last ones.
func newEditWatcher(templates []config.Template, found chan<- edit, log hclog.Logger) *filewatch.Watcher {
	var files []string
	for i := range templates {
		if file := templates[i].Destination; file != "" {
			files = append(files, file)
		}
	}
	return filewatch.New(files, editSettle, func(ctx context.Context, i int) {
		stamp, err := replace.ReadStamp(files[i])
		select {
		case found <- edit{template: i, stamp: stamp, err: err}:
		case <-ctx.Done():
		}
	}, log)
}
