package config

import (
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// checkPaths checks that every destination has one owner: one template, and
// neither the static configuration nor jorc itself.
func (d *decoder) checkPaths(c *Config) {
	if len(d.destinations) == 0 {
		return
	}
	r := newResolver()
	ids := make([][]string, len(d.destinations))
	owner := map[string]place{}
	for i, dest := range d.destinations {
		ids[i] = r.identities(dest.value)
		for _, id := range ids[i] {
			if other, taken := owner[id]; taken {
				d.errorf(dest.rng, "Destination used twice", "%s writes %s, as %s at %s does%s.", dest.owner, dest.value, other.owner, position(other.rng), alias(other, dest))
				break
			}
		}
		for _, id := range ids[i] {
			if _, taken := owner[id]; !taken {
				owner[id] = dest
			}
		}
	}
	for i, dest := range d.destinations {
		d.checkParents(dest, ids[i], owner)
	}
	d.checkOwnFiles(r, c, ids)
	d.checkStatic(r, ids)
}

// alias is the name under which another template writes the same file.
func alias(other, dest place) string {
	if other.value == dest.value {
		return ""
	}
	return " under the name " + other.value
}

// checkParents refuses a file where another template needs a directory.
func (d *decoder) checkParents(dest place, ids []string, owner map[string]place) {
	for _, id := range ids {
		for dir := filepath.Dir(id); dir != "/"; dir = filepath.Dir(dir) {
			if other, taken := owner[dir]; taken {
				d.errorf(dest.rng, "Destination below a file", "%s writes below %s, which is the file that %s at %s writes.", dest.owner, other.value, other.owner, position(other.rng))
				return
			}
		}
	}
}

// checkOwnFiles refuses the files that jorc itself uses: its configuration, its
// state, its credentials, and a template's own source.
func (d *decoder) checkOwnFiles(r *resolver, c *Config, ids [][]string) {
	own := d.inputs
	for name := range d.files {
		own = append(own, place{value: name, owner: "a file of this configuration"})
	}
	for _, f := range []place{
		{value: c.StateDir, owner: "jorc's state directory"},
		{value: c.VersionFile, owner: "the version file"},
		{value: c.Consul.TokenFile, owner: "the file of Consul's token"},
		{value: c.Consul.AuthFile, owner: "the file of Consul's HTTP basic authentication"},
		{value: c.Consul.CAFile, owner: "Consul's CA file"},
		{value: c.Consul.ClientCert, owner: "the client certificate"},
		{value: c.Consul.ClientKey, owner: "the client certificate's key"},
		{value: c.Vault.TokenFile, owner: "the file of Vault's token"},
		{value: c.Vault.CAFile, owner: "Vault's CA file"},
	} {
		if f.value != "" {
			own = append(own, f)
		}
	}
	for _, f := range own {
		file, err := filepath.Abs(f.value)
		if err != nil {
			d.errorf(f.rng, "Invalid path", "%v.", err)
			continue
		}
		of := r.identities(file)
		for i, dest := range d.destinations {
			if !anyBelow(of, ids[i]) {
				continue
			}
			if f.owner == dest.owner {
				d.errorf(dest.rng, "Destination is the source", "%s would overwrite its own source.", dest.owner)
			} else if !strings.HasPrefix(f.owner, "template ") { // a template may write the source of another
				d.errorf(dest.rng, "Destination belongs to jorc", "%s would overwrite %s, %s.", dest.owner, f.owner, f.value)
			}
		}
	}
}

// anyBelow reports whether one of the paths is one of the files, or below it.
func anyBelow(files, paths []string) bool {
	for _, file := range files {
		for _, p := range paths {
			if _, ok := below(file, p); ok {
				return true
			}
		}
	}
	return false
}

func (d *decoder) checkStatic(r *resolver, ids [][]string) {
	budget := maxWalk
	for _, at := range d.staticPaths {
		s := newStaticPath(r, at, &budget)
		for i, dest := range d.destinations {
			for _, id := range ids[i] {
				if s.owns(id) {
					d.errorf(dest.rng, "Destination is a static path", "%s writes %s, which the static path %q at %s owns%s. Static and dynamic configuration never share a file.", dest.owner, dest.value, at.value, position(at.rng), resolved(dest.value, at.value, id))
					break
				}
			}
		}
	}
}

// resolved names the file that a path with symlinks leads to.
func resolved(written, static, id string) string {
	if written == id || static == id {
		return ""
	}
	return " (it is " + id + ")"
}

// maxLinks limits the symlinks of one path; the kernel follows fewer.
const maxLinks = 64

// resolver resolves paths as the kernel does, and caches what it has read.
type resolver struct {
	links map[string]string // path without symlinks before its last part → the link's target, or ""
}

func newResolver() *resolver { return &resolver{links: map[string]string{}} }

// resolve returns an absolute path without symlinks and "..". Parts that do not
// exist yet are taken as written, below their parents' targets.
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
			done = filepath.Dir(done) // done contains no symlink
			continue
		}
		next := filepath.Join(done, part)
		target := r.readlink(next)
		if target == "" || followed == maxLinks {
			done = next
			continue
		}
		followed++
		if absolute(target) {
			done = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return done
}

func (r *resolver) readlink(path string) string {
	target, known := r.links[path]
	if !known {
		target, _ = os.Readlink(path) // "" for a path that is not a symlink
		r.links[path] = target
	}
	return target
}

// identities are the names under which a write to path may change a file: the
// file behind a symlink, and the symlink itself.
func (r *resolver) identities(path string) []string {
	cut := strings.LastIndexByte(path, '/')
	whole := r.resolve(path)
	link := filepath.Join(r.resolve(path[:cut+1]), path[cut+1:])
	if link == whole {
		return []string{whole}
	}
	return []string{whole, link}
}

// below returns the rest of path under dir: "" for dir itself.
func below(dir, path string) (string, bool) {
	if path == dir {
		return "", true
	}
	if dir != "/" {
		dir += "/"
	}
	return strings.CutPrefix(path, dir)
}

// maxWalk limits the directory entries that one Load reads in search of symlinks
// below static paths.
const maxWalk = 20000

// staticPath is one path that a workflow owns, prepared for comparison.
type staticPath struct {
	at    place
	exact []string // a path without wildcards: its identities
	base  string   // a pattern: its directory, resolved
	rest  string   // and the pattern below it
	alias aliases
}

// aliases are the symlinks below a pattern's base: their targets, without
// symlinks → their names relative to the base.
type aliases map[string][]string

// isGlob includes escaped characters, which need matching.
func isGlob(s string) bool { return strings.ContainsAny(s, `*?[{\`) }

// newStaticPath prepares a pattern that passed checkGlob. budget is the number of
// directory entries that it may still read.
func newStaticPath(r *resolver, at place, budget *int) staticPath {
	s := staticPath{at: at}
	if !isGlob(at.value) {
		s.exact = r.identities(strings.TrimRight(at.value, "/"))
		return s
	}
	base, rest := doublestar.SplitPattern(at.value)
	if rest = path.Clean(rest); strings.HasSuffix(at.value, "/") {
		rest += "/**"
	}
	s.base, s.rest = r.resolve(base), rest
	depth := strings.Count(rest, "/") + 1
	if strings.Contains(rest, "**") {
		depth = -1
	}
	s.alias = findAliases(r, s.base, depth, budget)
	return s
}

// owns reports whether id, without symlinks, belongs to the static path. A path
// without wildcards owns everything below it too.
func (s staticPath) owns(id string) bool {
	if s.base == "" {
		return anyBelow(s.exact, []string{id})
	}
	if rel, ok := below(s.base, id); ok && doublestar.MatchUnvalidated(s.rest, rel) {
		return true
	}
	for dir := id; len(s.alias) > 0; dir = filepath.Dir(dir) {
		for _, name := range s.alias[dir] {
			rel, _ := below(dir, id)
			if doublestar.MatchUnvalidated(s.rest, path.Join(name, rel)) {
				return true
			}
		}
		if dir == "/" {
			break
		}
	}
	return false
}

// findAliases finds the symlinks below base, nearest first, also in the
// directories that they lead to. depth limits the search; negative: unlimited.
func findAliases(r *resolver, base string, depth int, budget *int) aliases {
	type dir struct {
		name, real string
		depth      int
	}
	found := aliases{}
	seen := map[string]bool{base: true}
	for queue := []dir{{real: base, depth: depth}}; len(queue) > 0 && *budget > 0; queue = queue[1:] {
		at := queue[0]
		for _, e := range entries(at.real, budget) {
			name, real := path.Join(at.name, e.Name()), filepath.Join(at.real, e.Name())
			isDir := e.IsDir()
			if e.Type()&os.ModeSymlink != 0 {
				real = r.resolve(real)
				found[real] = append(found[real], name)
				info, err := os.Stat(real)
				isDir = err == nil && info.IsDir()
			}
			if isDir && at.depth != 1 && !seen[real] {
				seen[real] = true
				queue = append(queue, dir{name: name, real: real, depth: at.depth - 1})
			}
		}
	}
	return found
}

// entries reads a directory within the budget.
func entries(dir string, budget *int) []os.DirEntry {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	list, err := f.ReadDir(*budget)
	if err != nil && err != io.EOF {
		return nil
	}
	*budget -= len(list)
	return list
}
