package replace

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/durable"
)

// A check or reload command may print the file that it was given. Where a file of
// the unit is not readable by every user, the output of a command that failed
// goes to a file below the state directory, which only jorc's user may read, and
// the error names that file.

// withhold takes the output out of res, unless every user may read all targets.
// kept says where the output is.
func (r *Replacer) withhold(kind, name string, targets []string, res command.Result) (shown command.Result, kept string) {
	if res.Output == "" || !private(targets) {
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
	if err := unlink(r.outputPath(kind, name)); err != nil {
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

// private reports whether a target, its staged file or its backup is not
// readable by every user.
func private(targets []string) bool {
	for _, target := range targets {
		for _, path := range []string{target, stagedPath(target), backupPath(target)} {
			if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o004 == 0 {
				return true
			}
		}
	}
	return false
}

func paths(items []*item) []string {
	all := make([]string, len(items))
	for i, it := range items {
		all[i] = it.path
	}
	return all
}

func (j *journal) targets() []string {
	all := make([]string, len(j.Files))
	for i, f := range j.Files {
		all[i] = f.Target
	}
	return all
}
