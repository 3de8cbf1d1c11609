package replace

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/durable"
)

// A check or reload command may print the file that it was given. Where a file of
// the unit is not readable by every user, the output of a command that failed
// goes to a file below the state directory, which only jorc's user may read, and
// the error names that file.

// withhold takes the output out of res if a file of the unit is private.
// kept says where the output is.
func (r *Replacer) withhold(kind, name string, private bool, res command.Result) (shown command.Result, kept string) {
	if res.Output == "" || !private {
		return res, ""
	}
	path := r.outputPath(kind, name)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = durable.WriteFile(path, []byte(res.Output), 0o600)
	}
	res.Output, kept = "", "its output is in "+path
	if err != nil {
		kept = fmt.Sprintf("its output is withheld, and cannot be kept: %v", err)
	}
	return res, kept
}

// passed removes what withhold kept of an earlier failure.
func (r *Replacer) passed(kind, name string) {
	if err := os.Remove(r.outputPath(kind, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.log.Warn("the output of an earlier failure stays behind", "error", err)
	}
}

// outputPath is where the output of a file's check or reload is kept.
func (r *Replacer) outputPath(kind, name string) string {
	escaped := url.PathEscape(name)
	if len(escaped) > 100 {
		sum := sha256.Sum256([]byte(name))
		escaped = hex.EncodeToString(sum[:16])
	}
	return filepath.Join(r.outputs, escaped+"."+kind+".log")
}

// private reports whether a file that a check may read, new or old, is not
// readable by every user.
func private(items []*item) bool {
	return slices.ContainsFunc(items, func(it *item) bool {
		return it.attr.Mode&forAll == 0 || it.old != nil && it.old.Mode&forAll == 0
	})
}

// private reports whether a file that a reload may read is not readable by every user.
func (j *journal) private() bool {
	return slices.ContainsFunc(j.Files, func(f fileEntry) bool {
		if f.dir == nil {
			return true // its mode is not known
		}
		for _, name := range []string{f.name(), backupName(f.name())} {
			if st, err := f.dir.Stat(name); err == nil && st.Mode&forAll == 0 {
				return true
			}
		}
		return false
	})
}

// forAll is the right of every user to read a file.
const forAll = 0o004
