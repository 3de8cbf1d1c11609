package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is how many symbolic links one path may have, as in the kernel.
const maxLinks = 40

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
		return nil, &OwnerError{Path: d.path, UID: d.info.UID}
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
			return Place{}, &OwnerError{Path: dir.path, UID: dir.info.UID}
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
