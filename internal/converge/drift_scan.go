package converge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/durable"
)

const (
	maxFiles = 10_000 // whose content is watched
	maxDirs  = 10_000 // that are looked through
)

// print is what a file is like. While size, time and inode stay its content
// is not read again.
type print struct {
	Size   int64  `json:"size"`
	Time   int64  `json:"time"` // of the last change of content or inode, whichever is later, in ns
	Inode  uint64 `json:"inode"`
	Sum    string `json:"sum"`              // SHA-256 of the content; or what else it is
	Access string `json:"access,omitempty"` // mode, owner and group: "0640 0:33"; empty: not known
}

// unread reports whether the content need not be read again to know that it is
// that of old.
func (p print) unread(old print) bool {
	return p.Size == old.Size && p.Time == old.Time && p.Inode == old.Inode
}

// is reports whether a file that was as p is as q now.
func (p print) is(q print) bool { return p.Sum == q.Sum && p.allows(q) }

// allows reports whether the same ones may do the same with both.
func (p print) allows(q print) bool { return p.Access == q.Access || p.Access == "" || q.Access == "" }

// access is who owns a file and what they may do with it.
func access(info fs.FileInfo) string {
	i := durable.InfoOf(info)
	return fmt.Sprintf("%04o %d:%d", i.Mode, i.UID, i.GID)
}

// pattern is one static path: what is below base and matches rest.
type pattern struct {
	base string
	rest string // empty: base itself, and everything below it
}

func newPattern(p string) pattern {
	if !strings.ContainsAny(p, `*?[{\`) {
		return pattern{base: path.Clean(p)}
	}
	base, rest := doublestar.SplitPattern(p)
	if rest = path.Clean(rest); strings.HasSuffix(p, "/") {
		rest += "/**"
	}
	return pattern{base: path.Clean(base), rest: rest}
}

// owns reports whether the file name, relative to base, is one of the pattern's.
func (p pattern) owns(name string) bool {
	return p.rest == "" || doublestar.MatchUnvalidated(p.rest, name)
}

// enters reports whether files of the pattern can be below a directory that is
// depth levels below base.
func (p pattern) enters(depth int) bool {
	return p.rest == "" || strings.Contains(p.rest, "**") || strings.Contains(p.rest, "{") || depth < strings.Count(p.rest, "/")+1
}

// scanner reads all files of all patterns.
type scanner struct {
	ctx    context.Context
	known  map[string]print // whose content need not be read again
	files  map[string]print
	dirs   map[string]bool
	capped string
}

// scan returns what the files are like now, and what was left out. Its error is
// ctx's.
func scan(ctx context.Context, patterns []pattern, known map[string]print) (map[string]print, string, error) {
	s := &scanner{ctx: ctx, known: known, files: map[string]print{}, dirs: map[string]bool{}}
	for _, p := range patterns {
		if err := s.pattern(p); err != nil {
			return nil, "", err
		}
	}
	return s.files, s.capped, nil
}

func (s *scanner) pattern(p pattern) error {
	info, err := os.Stat(p.base)
	switch {
	case err != nil:
		return s.ctx.Err() // it is not there
	case !info.IsDir():
		if p.rest == "" {
			s.add(p.base)
		}
		return s.ctx.Err()
	}
	return s.dir(p, p.base, "", 0)
}

// dir reads a directory, in the order of names, and below it. Symlinks to
// directories are files here.
func (s *scanner) dir(p pattern, dir, name string, depth int) error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	if len(s.dirs) >= maxDirs {
		s.capped = fmt.Sprintf("only %d directories of static paths are looked through", maxDirs)
		return nil
	}
	s.dirs[dir] = true
	entries, _ := os.ReadDir(dir) // what it could read
	for _, e := range entries {
		full, rel := filepath.Join(dir, e.Name()), path.Join(name, e.Name())
		if e.IsDir() {
			if p.enters(depth + 1) {
				if err := s.dir(p, full, rel, depth+1); err != nil {
					return err
				}
			}
			continue
		}
		if p.owns(rel) && !strings.Contains(e.Name(), durable.TempMark) {
			s.add(full)
		}
		if s.ctx.Err() != nil {
			return s.ctx.Err()
		}
	}
	return nil
}

func (s *scanner) add(file string) {
	if _, ok := s.files[file]; ok {
		return
	}
	if len(s.files) >= maxFiles {
		s.capped = fmt.Sprintf("only the first %d files of static paths are watched for drift", maxFiles)
		return
	}
	if p, ok := s.look(file); ok {
		s.files[file] = p
	}
}

// look reads what a file is like; ok is false if it does not exist.
func (s *scanner) look(file string) (p print, ok bool) {
	link := ""
	info, err := os.Lstat(file)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		link, err = os.Readlink(file)
		if err != nil {
			return p, false
		}
		link = "link to " + link
		if info, err = os.Stat(file); err != nil || !info.Mode().IsRegular() {
			return print{Sum: link}, true
		}
		link += ", "
	}
	if err != nil {
		return p, false
	}
	if !info.Mode().IsRegular() {
		return print{Sum: "no regular file: " + info.Mode().Type().String(), Access: access(info)}, true
	}
	p = print{Size: info.Size(), Time: info.ModTime().UnixNano(), Access: access(info)}
	is := durable.InfoOf(info)
	p.Inode, p.Time = is.Inode, max(p.Time, is.Changed)
	old, ok := s.known[file]
	if p.Sum = old.Sum; ok && p.unread(old) && strings.HasPrefix(p.Sum, link) {
		return p, true
	}
	sum, err := hash(s.ctx, file)
	if errors.Is(err, fs.ErrNotExist) {
		return p, false
	}
	if p.Sum = link + sum; err != nil {
		p.Sum = link + "cannot be read"
	}
	return p, true
}

// hash is the SHA-256 of a file's content, read piece by piece.
func hash(ctx context.Context, file string) (string, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may have become a pipe
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, concurrency.Reader(ctx, f)); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
