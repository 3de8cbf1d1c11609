package watch

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/filewatch"
	"github.com/jorc/jorc/internal/replace"
	"github.com/jorc/jorc/internal/text"
)

// unit is what is rendered, replaced and reloaded as one: a template, or all
// that go together. The engine's loop owns it; while a job of the unit runs,
// the job owns its templates.
type unit struct {
	name      string
	templates []*tmpl
	wait      config.Wait
	commands  bool // it has checks, reloads or a fleet slot to wait for, which may take long

	dirty    bool      // something it uses changed since its last job
	first    time.Time // when the first and the last of these changes came
	last     time.Time
	running  bool
	rendered bool         // its files are as they should be, or were once
	wake     time.Time    // look again then, whatever happens; zero: never
	retry    time.Time    // not before then, after a failure
	restore  time.Time    // when an edited file is restored; zero: no file was edited
	edits    *editHistory // nil: none yet
	recheck  bool         // a file may have been edited while the job ran
	failures int
	backoff  *concurrency.Backoff // of failures; nil: none yet
	blocked  string               // why it may not be rendered yet; see Options.Require
	slot     string               // what fleet slot its job waits for
	fallback bool                 // it may use the data of an earlier process

	queue *queue
	place int // in the queue; -1: not there
	due   time.Time
}

// tmpl is one template of a unit.
type tmpl struct {
	conf  *config.Template
	src   *source // nil: it could not be loaded yet
	guard guard
	perms fs.FileMode

	used     dependencies   // of the last executions
	size     int            // of their data in the store
	accepted map[string]any // what the file is made of: services only
	holds    map[string]hold
	stamp    replace.Stamp // of the destination after the last job
	written  *replace.Hash // of the content after the last job; nil: not known, or not needed
	restored bool          // accepted is known, from this process or an earlier one
	status   *published    // in Engine.statuses
}

// file returns what is to be replaced by data.
func (t *tmpl) file(data []byte) replace.File {
	c := t.conf
	return replace.File{
		Name: c.Name, Destination: c.Destination, Data: data, Perms: t.perms, User: c.User, Group: c.Group,
		CreateDirs: c.CreateDirs, Backup: c.Backup, Check: c.Check, CheckTimeout: c.CheckTimeout,
		Reload: c.Reload, ReloadTimeout: c.ReloadTimeout, Stamp: &t.stamp, Written: t.written,
	}
}

// newUnits makes units of templates, in the order of their configuration.
func newUnits(templates []config.Template, o *options, loadLater bool, plain, commands *queue) ([]*unit, error) {
	var units []*unit
	together := map[string]*unit{}
	for i := range templates {
		c := &templates[i]
		t, err := newTmpl(c, o, loadLater)
		if err != nil {
			return nil, err
		}
		u := together[c.Together]
		if c.Together == "" || u == nil {
			u = &unit{name: "template " + c.Name, place: -1}
			if c.Together != "" {
				u.name = "together " + c.Together
				together[c.Together] = u
			}
			units = append(units, u)
		}
		u.templates = append(u.templates, t)
		u.wait = config.Wait{Min: max(u.wait.Min, c.Wait.Min), Max: max(u.wait.Max, c.Wait.Max)}
		u.commands = u.commands || len(c.Check)+len(c.Reload) > 0 || c.Slot != ""
	}
	for _, u := range units {
		u.queue = plain
		if u.commands {
			u.queue = commands
		}
	}
	return units, nil
}

func newTmpl(c *config.Template, o *options, loadLater bool) (*tmpl, error) {
	src, err := load(c, o)
	if err != nil && !loadLater {
		return nil, err
	}
	g, err := newGuard(c)
	if err != nil {
		return nil, err
	}
	var perms uint64
	if c.Perms != "" {
		if perms, err = strconv.ParseUint(c.Perms, 8, 32); err != nil {
			return nil, err
		}
	}
	return &tmpl{conf: c, src: src, guard: g, perms: fs.FileMode(perms)}, nil
}

// touch notes a change that came at a time.
func (u *unit) touch(at time.Time) {
	if !u.dirty {
		u.dirty, u.first = true, at
	}
	u.last = at
}

// next is when the unit's next job is due; ok is false if none is due.
func (u *unit) next() (due time.Time, ok bool) {
	if u.running || u.blocked != "" {
		return time.Time{}, false
	}
	if u.dirty {
		due = quiet(u.first, u.last, u.wait)
		if !u.restore.IsZero() && u.restore.Before(due) {
			due = u.restore
		}
		return due, true
	}
	for _, at := range [...]time.Time{u.retry, u.wake, u.restore} {
		if !at.IsZero() && (due.IsZero() || at.Before(due)) {
			due = at
		}
	}
	return due, !due.IsZero()
}

// quiet is when a series of changes has come to rest: min after the last of
// them, max after the first at the latest.
func quiet(first, last time.Time, w config.Wait) time.Time {
	at := last.Add(w.Min)
	if latest := first.Add(w.Max); w.Max > 0 && latest.Before(at) {
		return latest
	}
	return at
}

// slotNews says what fleet slot a unit waits for; empty: it has the slot.
type slotNews struct {
	unit *unit
	why  string
}

// limits returns how many may hold each slot that templates name: the least of
// what they say, 0 for any number, below zero when none of them says.
func limits(templates []config.Template) map[string]int {
	all := map[string]int{}
	for i := range templates {
		c := &templates[i]
		if c.Slot == "" {
			continue
		}
		known, ok := all[c.Slot]
		switch {
		case !ok || known < 0, known == 0 && c.MaxParallel > 0:
			all[c.Slot] = c.MaxParallel
		case c.MaxParallel > 0:
			all[c.Slot] = min(known, c.MaxParallel)
		}
	}
	return all
}

// gate returns what a unit waits at before its files are replaced; nil: nothing.
func (e *Engine) gate(u *unit) func(ctx context.Context) (release func(), err error) {
	groups := map[string]bool{}
	for _, t := range u.templates {
		if t.conf.Slot != "" {
			groups[t.conf.Slot] = true
		}
	}
	if len(groups) == 0 {
		return nil
	}
	// In one order everywhere, so that no two hosts wait for each other.
	names := slices.Sorted(maps.Keys(groups))
	return func(ctx context.Context) (func(), error) { return e.pass(ctx, u, names) }
}

// pass takes the slots one after the other, and publishes what the unit waits for.
func (e *Engine) pass(ctx context.Context, u *unit, names []string) (release func(), err error) {
	var taken []func()
	release = func() {
		for _, r := range slices.Backward(taken) {
			r()
		}
	}
	defer e.publishSlot(ctx, u, "")
	for _, name := range names {
		e.publishSlot(ctx, u, fmt.Sprintf("a slot of %q", name))
		r, err := e.o.Slot(ctx, name, e.slots[name], "reload of "+u.name)
		if err != nil {
			release()
			return nil, err
		}
		taken = append(taken, r)
	}
	if err := e.held(); err != nil { // it may have been meanwhile
		release()
		return nil, err
	}
	return release, nil
}

// publishSlot informs the engine's loop, if it runs.
func (e *Engine) publishSlot(ctx context.Context, u *unit, why string) {
	if !e.looping.Load() {
		return
	}
	select {
	case e.slotNews <- slotNews{u, why}:
	case <-ctx.Done():
	}
}

// Gate is replace.RecoverOptions.Gate: it takes the fleet slots that the
// templates of a unit name now. Call it before Run.
func (e *Engine) Gate(ctx context.Context, unit string) (release func(), err error) {
	for _, u := range e.units {
		if gate := e.gate(u); u.name == unit && gate != nil {
			return gate(ctx)
		}
	}
	return nil, nil
}

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
