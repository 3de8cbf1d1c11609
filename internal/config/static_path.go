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
	alias []alias
}

// alias is a symlink below a pattern's base: what lies below target can also
// be written to below name.
type alias struct {
	name   string // relative to the base
	target string // resolved
}

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
	s.alias = aliases(r, s.base, depth, budget)
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
	for _, a := range s.alias {
		if rel, ok := below(a.target, id); ok && doublestar.MatchUnvalidated(s.rest, path.Join(a.name, rel)) {
			return true
		}
	}
	return false
}

// aliases finds the symlinks below base, nearest first, also in the
// directories that they lead to. depth limits how deep; negative is no limit.
func aliases(r *resolver, base string, depth int, budget *int) []alias {
	type dir struct {
		name, real string
		depth      int
	}
	var found []alias
	seen := map[string]bool{base: true}
	for queue := []dir{{real: base, depth: depth}}; len(queue) > 0 && *budget > 0; queue = queue[1:] {
		at := queue[0]
		for _, e := range entries(at.real, budget) {
			name, real := path.Join(at.name, e.Name()), filepath.Join(at.real, e.Name())
			isDir := e.IsDir()
			if e.Type()&os.ModeSymlink != 0 {
				real = r.resolve(real)
				found = append(found, alias{name: name, target: real})
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
