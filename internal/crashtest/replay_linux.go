package crashtest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Log is what a process changed in a directory, in the order in which the calls ended.
type Log struct {
	root    string
	begin   *disk
	changes []change
}

// kind is what a change does.
type kind string

const (
	made    kind = "make"   // a file without a name
	named   kind = "name"   // a name for a file
	renamed kind = "rename" // another name for a file
	removed kind = "remove" // of a name
	filled  kind = "write"  // content
	modeSet kind = "mode"
	synced  kind = "sync" // what the file is like is on the disk; for a directory, its names
	marked  kind = "mark"
)

// change is one change of the directory.
type change struct {
	kind   kind
	file   int
	isDir  bool
	mode   fs.FileMode
	data   []byte
	kept   int // how much of the begin of data was there before
	before int // a sync is about the changes before this one

	fromDir  int
	fromName string
	dir      int
	name     string
	path     string // for messages
}

func (c change) String() string {
	if c.path != "" {
		return string(c.kind) + " " + c.path
	}
	if c.kind == marked {
		return "mark " + c.name
	}
	return fmt.Sprintf("%s of file %d", c.kind, c.file)
}

// syncedBy reports whether a sync is about the change.
func (c change) syncedBy(s change) bool {
	switch c.kind {
	case filled, modeSet:
		return s.file == c.file
	case named, removed:
		return s.file == c.dir
	case renamed:
		return s.file == c.dir && c.dir == c.fromDir
	}
	return false
}

// disk is what is in a directory.
type disk struct {
	root   int
	inodes map[int]*inode
}

type inode struct {
	isDir bool
	mode  fs.FileMode
	data  []byte
	names map[string]int
}

func newDisk() *disk { return &disk{inodes: map[int]*inode{}} }

func (d *disk) clone() *disk {
	c := &disk{root: d.root, inodes: make(map[int]*inode, len(d.inodes))}
	for id, n := range d.inodes {
		c.inodes[id] = &inode{n.isDir, n.mode, n.data, maps.Clone(n.names)}
	}
	return c
}

// apply carries out a change. Names of which nothing is on the disk change nothing.
func (d *disk) apply(c change) {
	switch c.kind {
	case made:
		d.inodes[c.file] = &inode{isDir: c.isDir, mode: c.mode, names: map[string]int{}}
	case named:
		d.inodes[c.dir].names[c.name] = c.file
	case renamed:
		if from := d.inodes[c.fromDir].names; from[c.fromName] == c.file {
			delete(from, c.fromName)
		}
		d.inodes[c.dir].names[c.name] = c.file
	case removed:
		delete(d.inodes[c.dir].names, c.name)
	case filled:
		d.inodes[c.file].data = c.data
	case modeSet:
		d.inodes[c.file].mode = c.mode
	}
}

// Crash is a state in which a crash may have left the directory.
type Crash struct {
	after string   // the last call before it
	lost  []string // what is not on the disk
	marks []string
	disk  *disk
}

// Marked reports whether the child had called Mark with that text before the crash.
func (c *Crash) Marked(text string) bool { return slices.Contains(c.marks, text) }

func (c *Crash) String() string {
	lost := "all that was written is there"
	if len(c.lost) > 0 {
		lost = "lost: " + strings.Join(c.lost, ", ")
	}
	return "crash after " + c.after + ", " + lost
}

// maxFailures is how many failures Replay shows: one fault shows in many states.
const maxFailures = 5

// Replay calls check for each state that a crash may leave, with the recorded directory in
// that state, and fails for each error. It returns the number of states.
func (l *Log) Replay(t testing.TB, check func(c *Crash) error) int {
	t.Helper()
	failures := 0
	states := l.crashes()
	for i := range states {
		c := &states[i]
		if err := c.disk.write(l.root); err != nil {
			t.Fatal(err)
		}
		if err := check(c); err != nil {
			t.Errorf("%v: %v", c, err)
			if failures++; failures == maxFailures {
				t.Fatalf("state %d of %d: no more of them are shown", i+1, len(states))
			}
		}
	}
	return len(states)
}

// crashes returns the different states.
func (l *Log) crashes() []Crash {
	var all []Crash
	seen := map[[sha256.Size]byte]bool{}
	var marks []string
	for n := range len(l.changes) + 1 {
		after := "nothing"
		if n > 0 {
			last := l.changes[n-1]
			after = last.String()
			if last.kind == marked {
				marks = append(slices.Clone(marks), last.name)
			}
		}
		pending, states := l.pending(n)
		for _, choice := range choices(states) {
			c := Crash{after: after, marks: marks, disk: l.begin.clone()}
			for i, change := range l.changes[:n] {
				p, open := pending[i]
				if !open {
					c.disk.apply(change)
					continue
				}
				what := choice[p.group]
				if data, there := p.choose(what, change); there {
					change.data = data
					c.disk.apply(change)
				}
				if lost := p.lost(what, change); lost != "" && !slices.Contains(c.lost, lost) {
					c.lost = append(c.lost, lost)
				}
			}
			if sum := c.disk.sum(marks); !seen[sum] {
				seen[sum] = true
				all = append(all, c)
			}
		}
	}
	return all
}

// open is a change that is not synced. Changes of the content of one file are one group: the
// file has one content.
type open struct {
	group int
	last  bool // of its group
	kept  int  // how much of the content no change of the group touched
}

// What may become of a group. The last ones are for content only.
const (
	lost = iota
	there
	half   // the first half of what is new in the content
	zeroes // its size
	outcomes
)

// choose returns whether a change is on the disk, and with which content.
func (p open) choose(what int, c change) (data []byte, ok bool) {
	if c.kind != filled {
		return nil, what == there
	}
	if !p.last {
		return nil, false
	}
	switch what {
	case there:
		return c.data, true
	case half:
		return c.data[:p.kept+(len(c.data)-p.kept)/2], true
	case zeroes:
		return append(slices.Clone(c.data[:p.kept]), make([]byte, len(c.data)-p.kept)...), true
	}
	return nil, false
}

func (p open) lost(what int, c change) string {
	switch {
	case what == there || c.kind == filled && !p.last:
		return ""
	case what == half:
		return "half of the " + c.String()
	case what == zeroes:
		return "the content of the " + c.String()
	}
	return c.String()
}

// pending returns the changes before n that were not synced, by their position, and what
// may become of each group.
func (l *Log) pending(n int) (all map[int]open, states []int) {
	all = map[int]open{}
	groups := map[int]int{} // file → group
	lastOf := map[int]int{}
	for i, c := range l.changes[:n] {
		switch c.kind {
		case made, synced, marked:
			continue
		}
		if slices.ContainsFunc(l.changes[i+1:n], func(s change) bool { return s.kind == synced && s.before > i && c.syncedBy(s) }) {
			continue
		}
		if c.kind == renamed && c.dir != c.fromDir && l.bothSynced(i, n) {
			continue
		}
		p := open{group: len(states), last: true, kept: c.kept}
		if c.kind == filled {
			if g, known := groups[c.file]; known {
				before := all[lastOf[g]]
				before.last = false
				all[lastOf[g]] = before
				p.group, p.kept = g, min(c.kept, before.kept)
			} else {
				groups[c.file] = p.group
				states = append(states, outcomes)
			}
			lastOf[p.group] = i
		} else {
			states = append(states, there+1)
		}
		all[i] = p
	}
	return all, states
}

// bothSynced reports whether both directories of a rename were synced after it.
func (l *Log) bothSynced(i, n int) bool {
	c := l.changes[i]
	var from, to bool
	for _, s := range l.changes[i+1 : n] {
		if s.kind == synced && s.before > i {
			from, to = from || s.file == c.fromDir, to || s.file == c.dir
		}
	}
	return from && to
}

// maxChoices is up to how many combinations all are tried.
const maxChoices = 256

// choices returns combinations of what becomes of each group: all of them, or, if they are too
// many, all lost, all there, and each one and each two different from these.
func choices(states []int) [][]int {
	total := 1
	for _, s := range states {
		if total *= s; total > maxChoices {
			return someChoices(states)
		}
	}
	all := make([][]int, 0, total)
	for n := range total {
		choice := make([]int, len(states))
		for i, s := range states {
			choice[i] = n % s
			n /= s
		}
		all = append(all, choice)
	}
	return all
}

func someChoices(states []int) [][]int {
	var all [][]int
	for _, base := range []int{lost, there} {
		rest := slices.Repeat([]int{base}, len(states))
		all = append(all, rest)
		for i, s := range states {
			for what := range s {
				choice := slices.Clone(rest)
				choice[i] = what
				all = append(all, choice)
				for k := range i {
					pair := slices.Clone(choice)
					pair[k] = there - base
					all = append(all, pair)
				}
			}
		}
		for i := range states { // all before one, or all after it
			choice := slices.Clone(rest)
			for k := range i {
				choice[k] = there - base
			}
			all = append(all, choice)
		}
	}
	return all
}

// sum tells states apart.
func (d *disk) sum(marks []string) (sum [sha256.Size]byte) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%q\n", marks)
	d.walk(d.root, "", func(path string, id int, n *inode) {
		fmt.Fprintf(&b, "%q %d %v %v %q\n", path, id, n.isDir, n.mode, n.data)
	})
	return sha256.Sum256(b.Bytes())
}

// walk visits what has a name, parents first.
func (d *disk) walk(id int, path string, visit func(path string, id int, n *inode)) {
	n := d.inodes[id]
	visit(path, id, n)
	for _, name := range slices.Sorted(maps.Keys(n.names)) {
		d.walk(n.names[name], filepath.Join(path, name), visit)
	}
}

// write makes a directory what the disk holds.
func (d *disk) write(root string) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(root, e.Name())); err != nil {
			return err
		}
	}
	links := map[int]string{}
	d.walk(d.root, root, func(path string, id int, n *inode) {
		switch first, linked := links[id]; {
		case err != nil || path == root:
		case n.isDir:
			if err = os.Mkdir(path, 0o700); err == nil {
				err = os.Chmod(path, n.mode|0o700)
			}
		case linked:
			err = os.Link(first, path)
		default:
			links[id] = path
			if err = os.WriteFile(path, n.data, 0o600); err == nil {
				err = os.Chmod(path, n.mode)
			}
		}
	})
	return err
}
