package replace

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// setAside keeps a journal that cannot be read, but out of the way.
func (r *Replacer) setAside(path string, cause error) error {
	aside := strings.TrimSuffix(path, ".json") + ".unreadable"
	if err := os.Rename(path, aside); err != nil {
		return errors.Join(cause, err)
	}
	return fmt.Errorf("%w: kept as %s; check the files it names, then remove it", cause, aside)
}

// sweep removes what crashes left beside destinations, except what a journal
// still needs.
func (r *Replacer) sweep(destinations, journals []string) error {
	needed := make(map[string]bool)
	for _, path := range journals {
		j, err := load(path)
		if err != nil {
			continue // done, or set aside
		}
		for _, f := range j.Files {
			needed[f.Target] = true
		}
	}
	var errs []error
	for _, d := range destinations {
		path, err := follow(d)
		if err != nil || needed[path] {
			continue // a broken symlink is told when it is replaced
		}
		errs = append(errs, unlink(stagedPath(path)), unlink(backupPath(path)))
	}
	return errors.Join(errs...)
}
