package replace

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/jorc/jorc/internal/durable"
)

const (
	permBits   = 0o7777
	stagedMark = ".jorc-new"
	backupMark = ".jorc-old"
)

// item is one File of a unit with the place where it really goes. It keeps the
// directory open: a directory that is renamed meanwhile leads nowhere else.
type item struct {
	File
	at   durable.Place
	path string        // of the place, without symbolic links
	old  *durable.Info // nil when there is no file yet
	same bool          // the file has the content

	edited bool // another program changed the file, and it is to be left alone
	attr   durable.Attributes
	lost   []string // of the old file's attributes, what cannot be kept

	made   []string     // parents that were created, outermost first
	staged durable.Info // the staged file
}

// stagedName and backupName are dot-files beside the target: no include glob
// matches them, and renaming them stays on one file system.
func stagedName(name string) string { return "." + name + stagedMark }
func backupName(name string) string { return "." + name + backupMark }

// stagedPath is what check commands get.
func (it *item) stagedPath() string { return it.at.Dir.Join(stagedName(it.at.Name)) }

// locate finds f's place and refuses what cannot be one, or is another's. The caller
// closes the item's directory.
func (r *Replacer) locate(f File) (it *item, err error) {
	if !filepath.IsAbs(f.Destination) {
		return nil, fmt.Errorf("destination %q is not an absolute path", f.Destination)
	}
	isDir := fmt.Errorf("destination %s is a directory: name a file in it", f.Destination)
	if strings.HasSuffix(f.Destination, "/") {
		return nil, isDir
	}
	place, err := durable.Locate(f.Destination)
	if errors.Is(err, syscall.ENOTDIR) {
		return nil, fmt.Errorf("destination %s: a parent of it is not a directory: %w", f.Destination, err)
	}
	if err != nil {
		return nil, ioError("look at", f.Destination, err)
	}
	it = &item{File: f, at: place, path: place.Path()}
	switch {
	case len(it.at.Missing) > 0 && !f.CreateDirs:
		err = fmt.Errorf("destination directory %s does not exist: create it or set create_dirs = true: %w", filepath.Dir(it.path), fs.ErrNotExist)
	case it.at.Name == "":
		err = isDir
	case r.Owners != nil:
		err = r.allowed(it)
	}
	if err != nil {
		_ = it.at.Dir.Close()
		return nil, err
	}
	return it, nil
}

// allowed returns why the template must not write the place that its destination leads to.
func (r *Replacer) allowed(it *item) error {
	paths := []string{it.path}
	if it.Backup {
		paths = append(paths, it.path+BackupSuffix)
	}
	for _, path := range paths {
		if err := r.Owners.Check(it.Name, path); err != nil {
			return fmt.Errorf("destination %s: %w", it.Destination, err)
		}
	}
	return nil
}

// open opens the file that is there now; nil when it does not exist. One that may
// not be read is opened with O_PATH.
func (it *item) open() (*os.File, error) {
	if len(it.at.Missing) > 0 {
		return nil, nil
	}
	info, err := it.at.Dir.Stat(it.at.Name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, ioError("look at", it.Destination, err)
	case info.Type == fs.ModeDir:
		return nil, fmt.Errorf("destination %s is a directory: name a file in it", it.Destination)
	}
	f, err := it.at.Dir.OpenRegular(it.at.Name, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrPermission) {
		f, err = it.at.Dir.OpenRegular(it.at.Name, durable.OpenName, 0)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.Is(err, durable.ErrNotRegular):
		return nil, fmt.Errorf("destination %s is not a regular file", it.Destination)
	case err != nil:
		return nil, ioError("look at", it.Destination, err)
	}
	return f, nil
}

// compare finds out what there is to do: whether the content is the same, and
// which attributes the file is to have. It gives a file that only lacks the
// configured mode or owner these, and reports so.
func (it *item) compare() (fixed bool, err error) {
	it.attr = durable.Attributes{Mode: 0o644, UID: -1, GID: -1}
	f, err := it.open()
	if err != nil {
		return false, err
	}
	keep := it.Written != nil && *it.Written == sha256.Sum256(it.Data)
	if f == nil {
		if it.edited = keep; it.Stamp != nil && it.Stamp.known() {
			it.attr = durable.Attributes{Mode: it.Stamp.mode, UID: int(it.Stamp.uid), GID: int(it.Stamp.gid)}
		}
		it.stamp(durable.Info{})
		return false, it.configure()
	}
	defer f.Close() // only read
	info, err := durable.FileInfo(f)
	if err != nil {
		return false, ioError("look at", it.Destination, err)
	}
	it.old = &info
	it.stamp(info)
	if it.old.Size == int64(len(it.Data)) {
		content, err := io.ReadAll(f)
		if err != nil {
			return false, ioError("read", it.Destination, err)
		}
		it.same = string(content) == string(it.Data)
	}
	if it.same {
		it.attr = durable.Attributes{Mode: it.old.Mode, UID: int(it.old.UID), GID: int(it.old.GID)}
		if err := it.configure(); err != nil || it.hasAttributes() {
			return false, err
		}
		if it.edited = keep; keep {
			return false, nil
		}
		if it.old.Links == 1 || !it.at.Dir.Shared() {
			err := it.fix(f)
			if err == nil {
				info, err = durable.FileInfo(f)
			}
			if err != nil {
				return false, ioError("set mode and owner of", it.Destination, err)
			}
			it.stamp(info)
			return true, nil
		}
		it.same = false // its other names may be those of any file of the host: they keep theirs
	}
	if it.edited = keep; keep {
		return false, nil
	}
	if it.attr, it.lost, err = durable.ReadAttributes(f, it.at.Dir.Shared()); err != nil {
		return false, ioError("read the attributes of", it.Destination, err)
	}
	return false, it.configure()
}

// configure puts what is configured in place of what the file has.
func (it *item) configure() (err error) {
	if it.Perms != 0 {
		it.attr.Mode = uint32(it.Perms) & permBits
	}
	if it.User != "" {
		if it.attr.UID, err = lookup(it.User, "user", userID); err != nil {
			return fmt.Errorf("destination %s: %w", it.Destination, err)
		}
	}
	if it.Group != "" {
		if it.attr.GID, err = lookup(it.Group, "group", groupID); err != nil {
			return fmt.Errorf("destination %s: %w", it.Destination, err)
		}
	}
	return nil
}

// hasAttributes reports whether the old file has the mode and the owner.
func (it *item) hasAttributes() bool { return it.old.Mode == it.attr.Mode && it.hasOwner() }

func (it *item) hasOwner() bool {
	return it.attr.UID == int(it.old.UID) && it.attr.GID == int(it.old.GID)
}

// fix gives a file with the right content the right attributes.
func (it *item) fix(f *os.File) error {
	if !it.hasOwner() {
		if err := f.Chown(it.attr.UID, it.attr.GID); err != nil {
			return err
		}
	}
	if err := durable.Chmod(f, it.attr.Mode); err != nil { // last: a change of owner clears set-id bits
		return err
	}
	return f.Sync()
}

// Stamp is what a file is, apart from its content: which file it is, its size,
// the time of its last change, its mode and owner. The zero Stamp is that of no
// file. Stamps can be compared.
type Stamp struct {
	dev, ino uint64
	size     int64
	changed  int64 // the content, in ns
	kind     fs.FileMode
	mode     uint32
	uid, gid uint32
}

func stampOf(i durable.Info) Stamp {
	return Stamp{dev: i.Dev, ino: i.Inode, size: i.Size, changed: i.Modified, kind: i.Type, mode: i.Mode, uid: i.UID, gid: i.GID}
}

func (s *Stamp) known() bool { return s.ino != 0 }

// ReadStamp returns the present stamp of a destination.
func ReadStamp(destination string) (Stamp, error) {
	at, err := durable.Locate(destination)
	if err != nil {
		return Stamp{}, ioError("look at", destination, err)
	}
	defer at.Dir.Close()
	if len(at.Missing) > 0 || at.Name == "" {
		return Stamp{}, nil
	}
	info, err := at.Dir.Stat(at.Name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Stamp{}, nil
	case err != nil:
		return Stamp{}, ioError("look at", destination, err)
	}
	return stampOf(info), nil
}

// stamp records what the destination is now.
func (it *item) stamp(info durable.Info) {
	if it.Stamp != nil {
		*it.Stamp = stampOf(info)
	}
}

func lookup(name, kind string, id func(string) (string, error)) (int, error) {
	s, err := id(name)
	if err != nil {
		s = name // a number without an entry is as good
	}
	n, convErr := strconv.ParseUint(s, 10, 31)
	if convErr != nil {
		return -1, fmt.Errorf("%s %s: %w", kind, name, errors.Join(err, convErr))
	}
	return int(n), nil
}

func userID(name string) (string, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return "", err
	}
	return u.Uid, nil
}

func groupID(name string) (string, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return "", err
	}
	return g.Gid, nil
}
