package converge

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/durable"
)

// drift finds the files of static configuration that are no longer as they
// were when the host converged.
type drift struct {
	patterns  []pattern
	doc       durable.Doc[snapshot] // keeps what they were
	interval  time.Duration         // between full scans
	pollEvery time.Duration         // between comparisons while changes cannot be watched
	changed   func()
	log       hclog.Logger
	wake      concurrency.Signal

	scanning sync.Mutex // one scan at a time; before mu

	mu         sync.Mutex
	base       *snapshot // nil: nothing is compared
	quiet      bool      // a job runs that may change files
	drifted    []string
	text       string // about drifted, as it was when it began
	first      string // the one that text names
	what       string // became of it
	capped     string // what is not watched, and why
	watchError string // why files are only compared at intervals
}

// snapshot is what the files were like.
type snapshot struct {
	Job     string           `json:"job"` // of the attempt that it is about
	Version string           `json:"version"`
	Files   map[string]print `json:"files"`
}

func newDrift(paths []string, file string, interval time.Duration, changed func(), log hclog.Logger) *drift {
	d := &drift{doc: durable.NewDoc[snapshot](file, snapshotFormat), interval: interval, pollEvery: interval, changed: changed, log: log, wake: concurrency.NewSignal()}
	for _, p := range paths {
		d.patterns = append(d.patterns, newPattern(p))
	}
	return d
}

// snapshot remembers what the files are like now, for the attempt of a job.
func (d *drift) snapshot(ctx context.Context, job, version string) error {
	if len(d.patterns) == 0 {
		return nil
	}
	d.scanning.Lock()
	defer d.scanning.Unlock()
	files, capped, err := scan(ctx, d.patterns, nil)
	if err != nil {
		return err
	}
	s := &snapshot{Job: job, Version: version, Files: files}
	d.mu.Lock()
	d.base, d.quiet, d.drifted, d.text, d.capped = s, false, nil, "", capped
	d.mu.Unlock()
	d.wake.Notify()
	if capped != "" {
		d.log.Warn("drift of static files", "note", capped)
	}
	return d.save(s)
}

// load continues from the snapshot on the disk, if that is of this attempt.
func (d *drift) load(a attempt) {
	if len(d.patterns) == 0 || a.Stage != stageDone && a.Stage != stageInvalid && !(a.Stage == stageValidating && a.Invalid) {
		return
	}
	s, found, err := d.doc.Load()
	if err != nil {
		d.log.Warn("cannot detect drift of static files until the next convergence", "error", err)
		return
	}
	if !found || s.Job != a.Job || s.Version != a.Version {
		return
	}
	d.mu.Lock()
	d.base = &s
	d.mu.Unlock()
}

// stop forgets everything: the static workflow is about to change files.
func (d *drift) stop() {
	d.mu.Lock()
	d.base, d.quiet, d.drifted, d.text = nil, false, nil, ""
	d.mu.Unlock()
}

// suspend is for the time of a validation: what changed before it drifted, what
// changes meanwhile did not.
func (d *drift) suspend(ctx context.Context) {
	d.look(ctx)
	d.mu.Lock()
	d.quiet = true
	d.mu.Unlock()
}

// resume remembers the present state of the files, except of files that had
// drifted.
func (d *drift) resume(ctx context.Context) {
	d.scanning.Lock()
	defer d.scanning.Unlock()
	d.mu.Lock()
	base, drifted := d.base, d.drifted
	d.mu.Unlock()
	if base == nil {
		d.mu.Lock()
		d.quiet = false
		d.mu.Unlock()
		return
	}
	files, _, err := scan(ctx, d.patterns, base.Files)
	if err != nil {
		d.log.Warn("cannot read static files", "error", err)
		files = base.Files
	}
	next := &snapshot{Job: base.Job, Version: base.Version, Files: files}
	for _, path := range drifted {
		if was, ok := base.Files[path]; ok {
			next.Files[path] = was
		} else {
			delete(next.Files, path)
		}
	}
	d.mu.Lock()
	d.quiet = false
	if d.base == base {
		d.base = next
	}
	d.mu.Unlock()
	if len(differences(base.Files, next.Files)) > 0 {
		if err := d.save(next); err != nil {
			d.log.Warn("what validation changed may count as drift after a restart", "error", err)
		}
	}
}

// look compares the files with what they were.
func (d *drift) look(ctx context.Context) {
	d.scanning.Lock()
	defer d.scanning.Unlock()
	d.mu.Lock()
	base, quiet := d.base, d.quiet
	d.mu.Unlock()
	if base == nil || quiet {
		return
	}
	files, capped, err := scan(ctx, d.patterns, base.Files)
	if err != nil {
		return // ctx ended
	}
	drifted := differences(base.Files, files)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.base != base || d.quiet {
		return // a job began meanwhile
	}
	stale := len(drifted) > 0 && d.what != became(d.first, base.Files, files)
	if slices.Equal(drifted, d.drifted) && capped == d.capped && !stale {
		return
	}
	switch {
	case len(drifted) == 0:
		d.log.Info("static files are again as they were after convergence")
		d.text = ""
	case d.text == "" || !slices.Contains(drifted, d.first) || stale:
		d.first = drifted[0]
		d.what = became(d.first, base.Files, files)
		d.text = driftText(d.first, d.what, len(drifted)-1)
		d.log.Warn("static files", "text", d.text)
	}
	d.drifted, d.capped = drifted, capped
	d.changed()
}

// became says what became of a file.
func became(path string, was, is map[string]print) string {
	old, had := was[path]
	switch now, ok := is[path]; {
	case !ok:
		return "vanished"
	case had && old.Sum == now.Sum:
		return fmt.Sprintf("was made %s instead of %s", now.Access, old.Access)
	}
	return "changed"
}

func driftText(path, what string, others int) string {
	text := fmt.Sprintf("drifted: %s %s after convergence", path, what)
	if others > 0 {
		text += fmt.Sprintf(", and %d more", others)
	}
	return text
}

// differences are the paths of files that are others, sorted.
func differences(was, is map[string]print) []string {
	var all []string
	for path, p := range was {
		if q, ok := is[path]; !ok || !p.is(q) {
			all = append(all, path)
		}
	}
	for path := range maps.Keys(is) {
		if _, ok := was[path]; !ok {
			all = append(all, path)
		}
	}
	slices.Sort(all)
	return all
}

// reason is the text about what drifted, as it was when that began.
func (d *drift) reason() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text
}

// paths are the files that drifted.
func (d *drift) paths() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.drifted
}

// note is what is not known, and why.
func (d *drift) note() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return suspectWith(d.capped, d.watchError)
}

// watched are the directories in which something has to happen before files of
// the patterns change: the scanned ones, and for a missing one its
// nearest ancestor.
func watched(ctx context.Context, patterns []pattern) []string {
	s := &scanner{ctx: ctx, dirs: map[string]bool{}}
	var dirs []string
	for _, p := range patterns {
		dir := p.base
		info, err := os.Stat(dir)
		for ; (err != nil || !info.IsDir()) && dir != "/"; info, err = os.Stat(dir) {
			dir = filepath.Dir(dir)
		}
		dirs = append(dirs, dir, filepath.Dir(p.base))
		if dir == p.base {
			s.walk(p, dir, 0)
		}
	}
	for dir := range s.dirs {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// walk finds the directories below one.
func (s *scanner) walk(p pattern, dir string, depth int) {
	if len(s.dirs) >= maxDirs || s.ctx.Err() != nil {
		return
	}
	s.dirs[dir] = true
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() && p.enters(depth+1) {
			s.walk(p, filepath.Join(dir, e.Name()), depth+1)
		}
	}
}

// snapshotFormat is the number of the file's format.
const snapshotFormat = 1

// save writes a snapshot down.
func (d *drift) save(s *snapshot) error {
	if err := d.doc.Save(*s); err != nil {
		return fmt.Errorf("snapshot of static files: %w", err)
	}
	return nil
}
