package config

import (
	"os"
	"path/filepath"
	"strings"
)

// maxLinks is how many symlinks one path may go through, more than the
// kernel follows.
const maxLinks = 64

// resolver follows paths as the kernel does, and remembers what it has read.
type resolver struct {
	links map[string]string // path without symlinks before its last part → what it links to, or ""
}

func newResolver() *resolver { return &resolver{links: map[string]string{}} }

// resolve gives an absolute path without symlinks and "..". What does not
// exist yet is taken as it is written, below whatever its parents link to.
func (r *resolver) resolve(path string) string {
	done, rest := "/", strings.Split(path, "/")
	followed := 0
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			done = filepath.Dir(done) // done holds no symlink any more
			continue
		}
		next := filepath.Join(done, part)
		target := r.readlink(next)
		if target == "" || followed == maxLinks {
			done = next
			continue
		}
		followed++
		if filepath.IsAbs(target) {
			done = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return done
}

func (r *resolver) readlink(path string) string {
	target, known := r.links[path]
	if !known {
		target, _ = os.Readlink(path) // "" for what is no symlink or not there
		r.links[path] = target
	}
	return target
}

// identities are the names under which writing to path may change a file: the
// file itself behind a symlink, and the symlink's own place.
func (r *resolver) identities(path string) []string {
	cut := strings.LastIndexByte(path, '/')
	whole := r.resolve(path)
	place := filepath.Join(r.resolve(path[:cut+1]), path[cut+1:])
	if place == whole {
		return []string{whole}
	}
	return []string{whole, place}
}

// below gives what remains of path under dir: "" for dir itself.
func below(dir, path string) (string, bool) {
	if path == dir {
		return "", true
	}
	if dir != "/" {
		dir += "/"
	}
	return strings.CutPrefix(path, dir)
}
