package converge

import (
	"context"
	"os"
	"path/filepath"
	"slices"
)

// watched are the directories in which something has to happen before files of
// the patterns change: those that were looked through, and for what is not
// there its nearest ancestor.
func watched(ctx context.Context, patterns []pattern) []string {
	s := &scanner{ctx: ctx, dirs: map[string]bool{}}
	var dirs []string
	for _, p := range patterns {
		dir := p.base
		info, err := os.Stat(dir)
		for ; (err != nil || !info.IsDir()) && dir != "/"; info, err = os.Stat(dir) {
			dir = filepath.Dir(dir)
		}
		dirs = append(dirs, dir, filepath.Dir(p.base))
		if dir == p.base {
			s.walk(p, dir, 0)
		}
	}
	for dir := range s.dirs {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// walk finds the directories below one.
func (s *scanner) walk(p pattern, dir string, depth int) {
	if len(s.dirs) >= maxDirs || s.ctx.Err() != nil {
		return
	}
	s.dirs[dir] = true
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() && p.enters(depth+1) {
			s.walk(p, filepath.Join(dir, e.Name()), depth+1)
		}
	}
}
