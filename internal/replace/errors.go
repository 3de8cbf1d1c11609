package replace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/jorc/jorc/internal/command"
)

// CheckError says that a check command did not accept a staged file. Nothing
// was changed.
type CheckError struct {
	File    string   // the File's name
	Command []string // as it was run
	Result  command.Result
	Kept    string // where its output is, if not every user may see it; see withhold
	Err     error  // why it could not be started, or nil
}

func (e *CheckError) Error() string {
	return fmt.Sprintf("check of %s: %s", e.File, failure(e.Command, e.Result, e.Kept, e.Err))
}

func (e *CheckError) Unwrap() error { return e.Err }

// ReloadError says that a reload command failed with the new content.
type ReloadError struct {
	File       string // the name of the first File that asked for this command
	Command    []string
	Result     command.Result
	Kept       string // where its output is, if not every user may see it; see withhold
	Err        error  // why it could not be started, or nil
	RolledBack bool   // all files hold their previous content again
	Rollback   error  // what failed while putting back and reloading the previous content, or nil
}

func (e *ReloadError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "reload for %s: %s", e.File, failure(e.Command, e.Result, e.Kept, e.Err))
	if e.RolledBack {
		b.WriteString("; the previous content is back")
	}
	if e.Rollback != nil {
		b.WriteString("; roll back: " + strings.ReplaceAll(e.Rollback.Error(), "\n", "; "))
	}
	return b.String()
}

func (e *ReloadError) Unwrap() []error {
	var errs []error
	for _, err := range []error{e.Err, e.Rollback} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// failure is one line about a command that failed.
func failure(args []string, res command.Result, kept string, err error) string {
	name := strings.Join(args, " ")
	if err != nil {
		return fmt.Sprintf("%s: %v", name, err)
	}
	how := fmt.Sprintf("exit code %d", res.ExitCode)
	if res.TimedOut {
		how = "timed out after " + res.Took.Round(1e6).String()
	}
	out := strings.Join(strings.FieldsFunc(res.Output, func(c rune) bool { return c == '\n' || c == '\r' }), " | ")
	if kept != "" {
		out = kept
	}
	if out == "" {
		return fmt.Sprintf("%s: %s", name, how)
	}
	return fmt.Sprintf("%s: %s: %s", name, how, out)
}

// ioError names what was done to which destination, and what helps.
func ioError(op, destination string, err error) error {
	if h := hint(err); h != "" {
		return fmt.Errorf("%s %s: %w: %s", op, destination, err, h)
	}
	return fmt.Errorf("%s %s: %w", op, destination, err)
}

func hint(err error) string {
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG):
		return "free some space; the file is as it was"
	case errors.Is(err, unix.EROFS):
		return "make it writable, under systemd with ReadWritePaths="
	case errors.Is(err, unix.EBUSY):
		return "a single file that is a mount point cannot be replaced: mount its directory"
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("give user %d the right, or run jorc as root", os.Geteuid())
	default:
		return ""
	}
}
