package replace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/durable"
)

// setAside keeps a journal that cannot be read, but out of the way.
func (r *Replacer) setAside(path string, cause error) error {
	aside := strings.TrimSuffix(path, ".json") + ".unreadable"
	d, err := durable.OpenDir(r.journals)
	if err != nil {
		return errors.Join(cause, err)
	}
	defer d.Close()
	if err := d.Rename(filepath.Base(path), filepath.Base(aside)); err != nil {
		return errors.Join(cause, err)
	}
	return fmt.Errorf("%w: kept as %s; check the files it names, then remove it", cause, aside)
}

// sweep removes what crashes left beside destinations, except what a journal
// still needs. Destinations that were configured when jorc last started count,
// too: a template may have been removed since the crash.
func (r *Replacer) sweep(destinations, journals []string) error {
	needed := make(map[string]bool)
	for _, path := range journals {
		j, err := load(path)
		if err != nil {
			continue // done, or set aside
		}
		for i := range j.Files {
			needed[j.Files[i].Target] = true
		}
	}
	before, err := r.readTargets()
	errs := []error{err}
	var now []string
	for i, d := range slices.Concat(destinations, before) {
		p, err := durable.Locate(d)
		if err != nil {
			continue // it is reported when it is replaced
		}
		path := p.Path()
		if len(p.Missing) == 0 && p.Name != "" && !needed[path] {
			errs = append(errs, unlink(p.Dir, stagedName(p.Name)), unlink(p.Dir, backupName(p.Name)))
		}
		_ = p.Dir.Close()
		if i < len(destinations) || needed[path] {
			now = append(now, path)
		}
	}
	return errors.Join(append(errs, r.writeTargets(before, now))...)
}

// targetsFile holds the paths of the files that were configured last.
func (r *Replacer) targetsFile() string {
	return filepath.Join(filepath.Dir(r.journals), "targets.json")
}

func (r *Replacer) readTargets() ([]string, error) {
	doc, err := os.ReadFile(r.targetsFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("destinations of the last start: %w", err)
	}
	var list []string
	if json.Unmarshal(doc, &list) != nil {
		return nil, nil // it is written anew
	}
	return slices.DeleteFunc(list, func(path string) bool { return !filepath.IsAbs(path) }), nil
}

func (r *Replacer) writeTargets(before, now []string) error {
	slices.Sort(now)
	now = slices.Compact(now)
	if slices.Equal(before, now) {
		return nil
	}
	doc, err := json.Marshal(now)
	if err != nil {
		return err
	}
	if err := durable.MkdirAll(filepath.Dir(r.journals), 0o750); err != nil {
		return fmt.Errorf("destinations of this start: %w", err)
	}
	if err := durable.WriteFile(r.targetsFile(), doc, 0o600); err != nil {
		return fmt.Errorf("destinations of this start: %w", err)
	}
	return nil
}
