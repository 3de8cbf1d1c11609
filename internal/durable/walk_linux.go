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

// walk resolves one path, from the root directory and from one open directory to
// the next: a directory that is renamed meanwhile leads nowhere else.
type walk struct {
	follow bool // a link at the end of the path, too
	strict bool // every directory must be trusted
	links  int
	first  string // the path of the first link that was followed

	through string // the path is known to lead through this link: see OpenRead
}

// look refuses a directory that a walk must not pass.
func (w *walk) look(d *Dir) error {
	switch {
	case w.strict && d.Foreign():
		return &OwnerError{Path: d.path, UID: d.info.UID}
	case w.through == "" || !d.loose():
		return nil
	case !trusted(d.info.UID):
		return &LinkError{w.through, fmt.Sprintf("directory %s on the way belongs to user %d", d.path, d.info.UID)}
	}
	return &LinkError{w.through, fmt.Sprintf("other users may write to directory %s on the way", d.path)}
}

// OpenRead opens the regular file at path for reading. Links are followed as by
// Locate, but only on a way that no other user controls: the links, the file and
// all directories belong to root or jorc's own user, and no other user may replace
// what is in these. Otherwise the error is a *LinkError. Without a link it does not
// matter whose the file is, unless it has several names (hard links).
func OpenRead(path string) (*os.File, error) {
	w := &walk{follow: true}
	p, err := w.to(path)
	if err == nil && w.links > 0 {
		p.Dir.Close()
		w = &walk{follow: true, through: w.first}
		p, err = w.to(path)
	}
	if err != nil {
		return nil, err
	}
	defer p.Dir.Close()
	if err := w.look(p.Dir); err != nil {
		return nil, err
	}
	switch {
	case len(p.Missing) > 0:
		return nil, &fs.PathError{Op: "open", Path: path, Err: unix.ENOENT}
	case p.Name == "":
		return nil, &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	}
	f, err := p.Dir.OpenRegular(p.Name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	i, err := FileInfo(f)
	switch {
	case err != nil:
	case w.through != "" && !trusted(i.UID):
		err = &LinkError{w.through, fmt.Sprintf("%s, to which it leads, belongs to user %d", p.Path(), i.UID)}
	case i.Links > 1 && p.Dir.Shared() && (i.UID != p.Dir.info.UID || p.Dir.info.Mode&unix.S_IWOTH != 0):
		err = &fs.PathError{Op: "open", Path: path, Err: errHardLink(i.Links)}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
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
	if err := w.look(d); err != nil {
		d.Close()
		return nil, err
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
	if !w.strict && w.through == "" {
		dir, rest = dir.skip(rest)
	}
	for len(rest) > 0 {
		if err := w.look(dir); err != nil {
			dir.Close()
			return Place{}, err
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
			if w.links++; w.links == 1 {
				w.first = dir.Join(name)
			}
			if w.links > maxLinks {
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
