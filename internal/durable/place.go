package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// LinkError is the error for a symbolic link that is not followed, because a
// user other than root and jorc's own controls where it leads.
type LinkError struct {
	Path string // of the link
	why  string
}

func (e *LinkError) Error() string {
	return fmt.Sprintf("symbolic link %s is not followed: %s; remove it, or name the path that it points to", e.Path, e.why)
}

// foreignLink is the error for a link of a user in a directory of another.
func foreignLink(path string, uid, dirUID uint32) error {
	if trusted(uid) && trusted(dirUID) {
		return &LinkError{path, "it is in a directory that every user may write to"}
	}
	return &LinkError{path, fmt.Sprintf("it is a link of user %d in a directory of user %d", uid, dirUID)}
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
		if len(made) > 0 && next.info.UID == uint32(os.Geteuid()) && made[len(made)-1] == next.path {
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
