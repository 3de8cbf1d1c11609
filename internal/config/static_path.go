package config

import (
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// maxWalk is how many directory entries one Load looks at in search of
// symlinks below static paths.
const maxWalk = 20000

// staticPath is one of the paths that a workflow owns, ready to be compared.
type staticPath struct {
	at    place
	exact []string // a path without wildcards: its identities
	base  string   // a pattern: its directory, resolved
	rest  string   // and what is below it
	alias aliases
}

// aliases are the symlinks below a pattern's base: where they lead to, without
// symlinks → their names relative to the base. What lies below the one can be
// written to below the other.
type aliases map[string][]string

// isGlob also takes an escaped character for a pattern: it has to be matched.
func isGlob(s string) bool { return strings.ContainsAny(s, `*?[{\`) }

// newStaticPath prepares a pattern that passed globOK. budget is how many
// directory entries it may still look at.
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

// owns reports whether id, without symlinks, belongs to the static path. A
// path without wildcards owns what is below it too.
func (s staticPath) owns(id string) bool {
	if s.base == "" {
		for _, exact := range s.exact {
			if _, ok := below(exact, id); ok {
				return true
			}
		}
		return false
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
// directories that they lead to. depth limits how deep; negative is no limit.
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

// entries reads a directory as far as the budget goes.
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
