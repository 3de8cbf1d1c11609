// Package replace brings files to new content without ever leaving a
// half-written one: compare, stage beside the destination, check the staged
// file, replace atomically, reload the programs that use it, and put everything back when
// that fails. A journal repairs what a crash left. The package knows
// nothing of templates or Consul.
package replace

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/durable"
)

// DefaultTimeout bounds check and reload commands that name no timeout.
const DefaultTimeout = 30 * time.Second

// BackupSuffix ends the names of previous files that are kept; see File.Backup.
const BackupSuffix = ".bak"

// File is one file to bring to Data.
type File struct {
	Name string // for messages
	// Destination is absolute. When it is a symbolic link that root or jorc's own
	// user made, what it points to is replaced; other links are refused.
	Destination string
	Data        []byte
	Perms       fs.FileMode // Unix bits up to 07777; 0 keeps the existing file's, else 0644
	User, Group string      // names or numbers; "" keeps the existing file's, else jorc's own
	CreateDirs  bool        // make missing parents (0755)
	Backup      bool        // keep the previous file beside it, with BackupSuffix

	Check         []string // {{.Staged}} and {{.Destination}} are replaced; see CheckArgs
	CheckTimeout  time.Duration
	Reload        []string
	ReloadTimeout time.Duration

	// Stamp is what the destination was when the last Replace of it returned, and
	// is brought up to date by the next one. A destination that was removed since
	// returns with the mode and owner of the stamp. Optional.
	Stamp *Stamp
	// Written is the hash of the content that the destination was last brought to.
	// If Data still is that content, changes that another program made to the
	// destination are left alone; see Outcome.Edited. nil: they are not.
	Written *Hash
}

// Hash is the SHA-256 of a file's content.
type Hash = [sha256.Size]byte

// Unit is a set of files that are replaced and reloaded together or not at
// all. Two units never share a destination.
type Unit struct {
	Name  string // says which journal is its own: stable across restarts, unique
	Files []File
	// Gate is asked when the checks have passed and something is about to
	// change; release is called when the reload is done. Optional.
	Gate func(ctx context.Context) (release func(), err error)
}

// Outcome is what Replace did.
type Outcome struct {
	Changed    []string            // destinations whose content was replaced; none after a roll back
	Fixed      []string            // destinations whose content was right, but not their mode or owner
	Edited     []string            // destinations that another program changed and that are left alone; see File.Written
	Lost       map[string][]string // destination → what its new file could not keep of the ACL and the extended attributes
	Reloaded   [][]string          // reload commands that succeeded with the new content
	RolledBack bool                // the previous content was put back

	Checking, Waiting, Writing, Reloading time.Duration // Waiting is for the gate
}

// Owners says which file is whose.
type Owners interface {
	// Check returns why the template must not write path, which has no symbolic links.
	Check(template, path string) error
}

// Replacer replaces files. Its methods may be called at the same time.
type Replacer struct {
	// Owners says which file is whose; set it before the first call. Optional: without
	// it no file is refused.
	Owners Owners

	journals string // directory
	outputs  string // directory of the output of failed commands; see withhold
	env      []string
	log      hclog.Logger
	dirs     durable.DirSyncer
	staging  *staging

	life    context.Context // of commands
	abandon context.CancelFunc

	mu    sync.Mutex
	units map[string]*turn // unit name → turn; only of units that Replace works on

	link func(d *durable.Dir, from, to string) error // Dir.Link
	hook func(step string)                           // tests die here
}

// New returns a Replacer that keeps its journal below stateDir. Commands get
// exactly env, or command.Environ() when it is nil. New does no I/O.
func New(stateDir string, env []string, log hclog.Logger) *Replacer {
	if env == nil {
		env = command.Environ()
	}
	r := &Replacer{
		journals: filepath.Join(stateDir, "journal"),
		outputs:  filepath.Join(stateDir, "output"),
		env:      env,
		log:      log,
		units:    make(map[string]*turn),
		link:     (*durable.Dir).Link,
		staging:  newStaging(),
	}
	r.life, r.abandon = context.WithCancel(context.Background())
	return r
}

// ErrAbandoned: a reload was ended by Abandon. The new content is in place, and
// the next Recover reloads it.
var ErrAbandoned = errors.New("abandoned")

// Abandon ends the running commands and lets none begin: for a stop
// that cannot wait for them. What they would have done stays in the journal.
func (r *Replacer) Abandon() { r.abandon() }

// Compare reads what f's destination holds now (nil when there is no such
// file) and whether that is f.Data already. It changes nothing.
func (r *Replacer) Compare(f File) (current []byte, same bool, err error) {
	it, err := r.locate(f)
	if err != nil {
		return nil, false, err
	}
	defer it.at.Dir.Close()
	file, err := it.open()
	if err != nil || file == nil {
		return nil, false, err
	}
	defer file.Close() // only read
	current, err = io.ReadAll(file)
	if err != nil {
		return nil, false, ioError("read", f.Destination, err)
	}
	return current, string(current) == string(f.Data), nil
}

// turn lets one caller at a time into a unit.
type turn struct {
	token   chan struct{}
	callers int // that are in or wait
}

// hold lets one caller at a time into a unit.
func (r *Replacer) hold(ctx context.Context, unit string) (release func(), err error) {
	r.mu.Lock()
	t := r.units[unit]
	if t == nil {
		t = &turn{token: make(chan struct{}, 1)}
		r.units[unit] = t
	}
	t.callers++
	r.mu.Unlock()
	leave := func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if t.callers--; t.callers == 0 {
			delete(r.units, unit)
		}
	}
	select {
	case t.token <- struct{}{}:
		return func() { <-t.token; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// reportLost warns of attributes that a new file could not keep.
func (r *Replacer) reportLost(name string, lost []string) {
	for _, what := range lost {
		r.log.Warn("an attribute of the replaced file is lost", "file", name, "attribute", what)
	}
}

// step marks a point at which a crash is survived.
func (r *Replacer) step(name string) {
	if r.hook != nil {
		r.hook(name)
	}
}

// Replace brings all files of u to their content, or none.
//
// Equal bytes write, check and reload nothing. Before anything changes every
// file is staged and every check has passed on it; an error up to there
// leaves all as it was: *CheckError, ctx's, the gate's, or a wrapped I/O error
// that names the destination and the remedy. When a reload fails, the previous
// content is put back and reloaded, and the error is a *ReloadError.
//
// When ctx ends after the first file was replaced, the reload is still run to
// its end: every new file has been loaded.
func (r *Replacer) Replace(ctx context.Context, u Unit) (out Outcome, err error) {
	release, err := r.hold(ctx, u.Name)
	if err != nil {
		return out, err
	}
	defer release()
	if err := r.settleOld(ctx, u); err != nil {
		return out, err
	}

	items, private, err := r.compare(u, &out)
	defer func() {
		for _, it := range items {
			_ = it.at.Dir.Close()
		}
	}()
	if err != nil || len(items) == 0 {
		return out, err
	}
	staged := false
	defer func() {
		if !staged {
			if cerr := unstage(items); cerr != nil {
				r.log.Warn("a staged file stays behind", "unit", u.Name, "error", cerr)
			}
		}
	}()
	if err := r.prepare(ctx, items, private, &out); err != nil {
		return out, err
	}
	if u.Gate != nil {
		r.step("gate")
		begin := time.Now()
		release, err := u.Gate(ctx)
		out.Waiting = time.Since(begin)
		if err != nil {
			return out, fmt.Errorf("gate of %s: %w", u.Name, err)
		}
		if release != nil {
			defer release()
		}
	}
	if err := ctx.Err(); err != nil {
		return out, err
	}
	staged = true // from here on the staged files are used up, or removed by their users
	if len(items) == 1 && len(items[0].Reload) == 0 && !items[0].Backup {
		return out, r.replaceOne(items[0], &out)
	}
	return out, r.replaceAll(context.WithoutCancel(ctx), newJournal(u, items, private), items, &out)
}

// compare returns the files that have to change, whose directories the caller
// closes, also beside an error. Files that only lack the configured mode or owner
// get it here. private is whether a file of u is, also one that does not change.
func (r *Replacer) compare(u Unit, out *Outcome) (items []*item, private bool, err error) {
	seen := make(map[string]string, len(u.Files))
	for _, f := range u.Files {
		it, err := r.locate(f)
		if err != nil {
			return items, private, err
		}
		if first, dup := seen[it.path]; dup {
			_ = it.at.Dir.Close()
			return items, private, fmt.Errorf("destinations %s and %s of %s are one file", first, f.Destination, u.Name)
		}
		seen[it.path] = f.Destination
		fixed, err := it.compare()
		private = private || it.private()
		if err == nil && !it.same && !it.edited {
			items = append(items, it)
			continue
		}
		_ = it.at.Dir.Close()
		if err != nil {
			return items, private, err
		}
		if it.edited {
			out.Edited = append(out.Edited, f.Destination)
		}
		if fixed {
			out.Fixed = append(out.Fixed, f.Destination)
		}
	}
	return items, private, nil
}

// prepare stages and checks; nothing live is touched. private is of compare.
func (r *Replacer) prepare(ctx context.Context, items []*item, private bool, out *Outcome) error {
	begin := time.Now()
	for _, it := range items {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.stage(it); err != nil {
			return err
		}
	}
	for _, it := range items {
		r.reportLost(it.Destination, it.lost)
		if len(it.lost) > 0 {
			if out.Lost == nil {
				out.Lost = map[string][]string{}
			}
			out.Lost[it.Destination] = it.lost
		}
	}
	r.step("staged")
	out.Writing = time.Since(begin)
	begin = time.Now()
	err := r.check(ctx, items, private)
	out.Checking = time.Since(begin)
	return err
}

// replaceOne is the short way: a single file without a reload command needs
// no journal, because the rename is all there is.
func (r *Replacer) replaceOne(it *item, out *Outcome) error {
	begin := time.Now()
	defer func() { out.Writing += time.Since(begin) }()
	r.step("rename")
	err := it.verify()
	if err == nil {
		if err = it.at.Dir.Rename(stagedName(it.at.Name), it.at.Name); err != nil {
			err = ioError("replace", it.Destination, err)
		}
	}
	if err != nil {
		_ = unstage([]*item{it})
		return err
	}
	out.Changed = []string{it.Destination}
	it.stamp(it.staged)
	r.step("renamed")
	r.staging.await()
	if err := r.dirs.Sync(it.at.Dir); err != nil {
		return ioError("replaced, but maybe not for good:", it.Destination, err)
	}
	r.step("done")
	return nil
}

// replaceAll is the long way: journal, replace, reload, and back if need be.
func (r *Replacer) replaceAll(ctx context.Context, j *journal, items []*item, out *Outcome) error {
	begin := time.Now()
	for _, it := range items {
		if err := it.verify(); err != nil {
			_ = unstage(items)
			return err
		}
	}
	if err := r.open(j, items); err != nil {
		r.discard(j)
		_ = unstage(items)
		return err
	}
	if err := r.renameAll(j); err != nil {
		out.Writing += time.Since(begin)
		out.RolledBack = true
		lost, uerr := r.undo(j)
		if uerr == nil {
			uerr = r.close(j, false)
		}
		if uerr = errors.Join(lost, uerr); uerr != nil {
			out.RolledBack = false
			return fmt.Errorf("%w; roll back: %w", err, uerr)
		}
		return err
	}
	out.Writing += time.Since(begin)
	if err := r.finish(ctx, j, out); err != nil {
		return err
	}
	for _, it := range items {
		it.stamp(it.staged)
	}
	return nil
}
