package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is how many symbolic links one path may have, as in the kernel.
const maxLinks = 40

// LinkError is the error for a symbolic link that is not followed, because a
// user other than root and jorc's own controls where it leads.
type LinkError struct {
	Path   string // of the link
	UID    uint32 // its owner
	DirUID uint32 // the owner of its directory
}

func (e *LinkError) Error() string {
	why := fmt.Sprintf("a link of user %d in a directory of user %d", e.UID, e.DirUID)
	if trusted(e.UID) && trusted(e.DirUID) {
		why = "in a directory that every user may write to"
	}
	return fmt.Sprintf("symbolic link %s is not followed: it is %s; remove it, or name the path that it points to", e.Path, why)
}

// OwnerError is the error for a directory that another user controls.
type OwnerError struct {
	Path string
	UID  uint32 // its owner
}

func (e *OwnerError) Error() string {
	if trusted(e.UID) {
		return fmt.Sprintf("directory %s may be written to by every user: remove that right (chmod o-w), or use another directory", e.Path)
	}
	return fmt.Sprintf("directory %s belongs to user %d, and that user could replace what is in it: give it to root (chown), or use another directory", e.Path, e.UID)
}

// trusted reports whether jorc relies on what a user has made.
func trusted(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// Place is where a path leads: a name in an open directory. What is there under
// that name is not a symbolic link that was followed, and may not exist.
type Place struct {
	Dir     *Dir
	Name    string   // empty: the directory itself
	Missing []string // the names after Name, when there is no directory Name
}

// Path returns the place's path, without symbolic links.
func (p Place) Path() string {
	return filepath.Join(append([]string{p.Dir.path, p.Name}, p.Missing...)...)
}

// Locate finds the place of path, through symbolic links that root or jorc's
// own user made in directories of theirs. Other links are a *LinkError. The
// caller closes the place's Dir.
func Locate(path string) (Place, error) { return (&walk{follow: true}).to(path) }

// OpenDir opens a directory; its links are followed as by Locate.
func OpenDir(path string) (*Dir, error) { return (&walk{follow: true}).dir(path) }

// CheckOwner returns an *OwnerError unless only root and jorc's own user control
// what is found under path, which is a directory, and a *LinkError as Locate does.
func CheckOwner(path string) error {
	d, err := (&walk{follow: true, strict: true}).dir(path)
	if err != nil {
		return err
	}
	return d.Close()
}

// MkdirAll makes a directory and its missing parents, with exactly the mode
// perm, and makes their names durable. Links are followed as by Locate.
func MkdirAll(path string, perm fs.FileMode) error {
	p, err := Locate(path)
	if err != nil {
		return err
	}
	defer func() { p.Dir.Close() }() // which MakeParents changes
	if p.Name == "" {
		return nil
	}
	p.Missing = append(p.Missing, "")
	_, err = p.MakeParents(perm)
	return err
}

// MakeParents makes the missing directories of a place and moves the place to
// the last of them. It returns their paths, outermost first, also beside an error.
func (p *Place) MakeParents(perm fs.FileMode) (made []string, err error) {
	for len(p.Missing) > 0 {
		err := p.Dir.Mkdir(p.Name, perm)
		switch {
		case err == nil:
			made = append(made, p.Dir.Join(p.Name))
		case !errors.Is(err, fs.ErrExist): // another process may have been faster
			return made, err
		}
		next, err := p.Dir.openDir(p.Name)
		if err != nil {
			return made, err
		}
		if len(made) > 0 && next.stat.Uid == uint32(os.Geteuid()) && made[len(made)-1] == next.path {
			err = errors.Join(next.chmod(perm), p.Dir.Sync())
		}
		p.Dir.Close()
		p.Dir, p.Name, p.Missing = next, p.Missing[0], p.Missing[1:]
		if err != nil {
			return made, err
		}
	}
	return made, nil
}

// walk resolves one path, from the root directory and from one open directory to
// the next: a directory that is renamed meanwhile leads nowhere else.
type walk struct {
	follow bool // a link at the end of the path, too
	strict bool // every directory must be trusted
	links  int
}

func (w *walk) dir(path string) (*Dir, error) {
	p, err := w.to(path)
	if err != nil {
		return nil, err
	}
	d := p.Dir
	if p.Name != "" {
		defer p.Dir.Close()
		if len(p.Missing) > 0 {
			return nil, &fs.PathError{Op: "open", Path: path, Err: unix.ENOENT}
		}
		if d, err = p.Dir.openDir(p.Name); err != nil {
			return nil, err
		}
	}
	if w.strict && d.Foreign() {
		defer d.Close()
		return nil, &OwnerError{Path: d.path, UID: d.stat.Uid}
	}
	return d, nil
}

func (w *walk) to(path string) (Place, error) {
	if path == "" {
		return Place{}, &fs.PathError{Op: "open", Path: path, Err: unix.ENOENT}
	}
	rest := names(path)
	if !filepath.IsAbs(path) {
		here, err := os.Getwd()
		if err != nil {
			return Place{}, err
		}
		rest = append(names(here), rest...)
	}
	dir, err := openRoot()
	if err != nil {
		return Place{}, err
	}
	if !w.strict {
		dir, rest = dir.skip(rest)
	}
	for len(rest) > 0 {
		if w.strict && dir.Foreign() {
			defer dir.Close()
			return Place{}, &OwnerError{Path: dir.path, UID: dir.stat.Uid}
		}
		name := rest[0]
		last := len(rest) == 1
		if last && !w.follow && name != ".." {
			break
		}
		rest = rest[1:]
		next, link, err := dir.enter(name, last)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return Place{Dir: dir, Name: name, Missing: rest}, nil
		case err != nil:
			dir.Close()
			return Place{}, err
		case link != "":
			if w.links++; w.links > maxLinks {
				defer dir.Close()
				return Place{}, &fs.PathError{Op: "open", Path: path, Err: unix.ELOOP}
			}
			rest = append(names(link), rest...)
			if !filepath.IsAbs(link) {
				continue
			}
			dir.Close()
			if dir, err = openRoot(); err != nil {
				return Place{}, err
			}
		case next == nil: // the last name, and no link
			return Place{Dir: dir, Name: name}, nil
		default:
			dir.Close()
			dir = next
		}
	}
	if len(rest) == 1 {
		return Place{Dir: dir, Name: rest[0]}, nil
	}
	return Place{Dir: dir}, nil
}

// skip enters all names but the last at once if there is no link among them, and
// returns what is left to resolve. That is the usual case, and one system call
// in the place of three for each name.
func (d *Dir) skip(rest []string) (*Dir, []string) {
	last := len(rest) - 1
	if last < 1 {
		return d, rest
	}
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := retry(func() (int, error) { return unix.Openat2(d.fd(), strings.Join(rest[:last], "/"), how) })
	next, err := newDir(fd, err)(filepath.Join(append([]string{d.path}, rest[:last]...)...))
	if err != nil {
		return d, rest // the walk finds out why, or follows the link
	}
	d.Close()
	return next, rest[last:]
}

// names splits a path.
func names(path string) []string {
	var list []string
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			list = append(list, name)
		}
	}
	return list
}
