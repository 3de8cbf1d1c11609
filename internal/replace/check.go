package replace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/durable"
)

// CheckArgs says whether a check command's arguments can be used: the only
// placeholders are {{.Staged}} and {{.Destination}}.
func CheckArgs(args []string) error {
	_, err := substitute(args, "", "")
	return err
}

// substitute puts paths into a check command's arguments. It is plain text
// replacement: no argument is split or joined.
func substitute(args []string, staged, destination string) ([]string, error) {
	out := make([]string, len(args))
	for i, arg := range args {
		var b strings.Builder
		for rest := arg; rest != ""; {
			before, after, found := strings.Cut(rest, "{{")
			b.WriteString(before)
			if !found {
				break
			}
			name, after, closed := strings.Cut(after, "}}")
			if !closed {
				return nil, fmt.Errorf("argument %q: {{ without }}", arg)
			}
			switch strings.TrimSpace(name) {
			case ".Staged":
				b.WriteString(staged)
			case ".Destination":
				b.WriteString(destination)
			default:
				return nil, fmt.Errorf("argument %q: unknown {{%s}}: only {{.Staged}} and {{.Destination}} are known", arg, name)
			}
			rest = after
		}
		out[i] = b.String()
	}
	return out, nil
}

// job is one command that several files may have asked for.
type job struct {
	File    string        `json:"file"` // the first that asked
	Args    []string      `json:"args"`
	Timeout time.Duration `json:"timeout_ns"` // the longest asked for
}

// jobs collects distinct commands in the order they were asked for.
type jobs []job

func (js *jobs) add(file string, args []string, timeout time.Duration) {
	if len(args) == 0 {
		return
	}
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	key := strings.Join(args, "\x00")
	for i := range *js {
		if strings.Join((*js)[i].Args, "\x00") == key {
			(*js)[i].Timeout = max((*js)[i].Timeout, timeout)
			return
		}
	}
	*js = append(*js, job{File: file, Args: args, Timeout: timeout})
}

func (r *Replacer) run(ctx context.Context, j job) (command.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(r.life, cancel)
	defer stop()
	return command.Run(ctx, command.Command{Args: j.Args, Env: r.env, Timeout: j.Timeout})
}

// check runs every distinct check command while all files are staged. private is of compare.
func (r *Replacer) check(ctx context.Context, items []*item, private bool) error {
	var checks jobs
	for _, it := range items {
		args, err := substitute(it.Check, it.stagedPath(), it.Destination)
		if err != nil {
			return fmt.Errorf("check of %s: %w", it.Name, err)
		}
		checks.add(it.Name, args, it.CheckTimeout)
	}
	for _, j := range checks {
		r.step("check")
		res, err := r.run(ctx, j)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil || !res.OK() {
			shown, kept := r.withhold("check", j.File, private, res)
			return &CheckError{File: j.File, Command: j.Args, Result: shown, Kept: kept, Err: err}
		}
		r.passed("check", j.File)
	}
	return nil
}

// A check or reload command may print any file of its unit, also one that does not
// change. Where one of them is not readable by every user, the output of a command
// that failed goes to a file below the state directory, which only jorc's user may
// read, and the error names that file.

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

// private reports whether the file, new or old, is not readable by every user.
func (it *item) private() bool {
	return it.attr.Mode&forAll == 0 || it.old != nil && it.old.Mode&forAll == 0
}

// private reports whether a file that a reload may read is not readable by every user.
func (j *journal) private() bool {
	return j.Private || slices.ContainsFunc(j.Files, func(f fileEntry) bool {
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
	return fmt.Sprintf("check of %s: %s", e.File, e.failure())
}

func (e *CheckError) failure() *failure { return &failure{e.Command, e.Result, e.Kept, e.Err} }

// WithoutOutput is Error without the command and its output.
func (e *CheckError) WithoutOutput() string {
	return fmt.Sprintf("check of %s: %s", e.File, e.failure().WithoutOutput())
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
	fmt.Fprintf(&b, "reload for %s: %s", e.File, e.failure())
	if e.RolledBack {
		b.WriteString("; the previous content is back")
	}
	if e.Rollback != nil {
		b.WriteString("; roll back: " + strings.ReplaceAll(e.Rollback.Error(), "\n", "; "))
	}
	return b.String()
}

func (e *ReloadError) failure() *failure { return &failure{e.Command, e.Result, e.Kept, e.Err} }

// WithoutOutput is Error without the command and its output.
func (e *ReloadError) WithoutOutput() string {
	text := fmt.Sprintf("reload for %s: %s", e.File, e.failure().WithoutOutput())
	if e.RolledBack {
		text += "; the previous content is back"
	}
	if e.Rollback != nil {
		text += "; roll back: " + strings.ReplaceAll(command.WithoutOutput(e.Rollback), "\n", "; ")
	}
	return text
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

// failure is a command that failed, in one line.
type failure struct {
	args   []string
	result command.Result
	kept   string // where its output is, if not every user may see it; see withhold
	err    error  // why it could not be started, or nil
}

func (f *failure) Error() string {
	text := strings.Join(f.args, " ") + ": " + f.WithoutOutput()
	out := strings.Join(strings.FieldsFunc(f.result.Output, func(c rune) bool { return c == '\n' || c == '\r' }), " | ")
	if f.kept != "" {
		out = f.kept
	}
	if f.err != nil || out == "" {
		return text
	}
	return text + ": " + out
}

// WithoutOutput returns how the command failed.
func (f *failure) WithoutOutput() string {
	switch {
	case f.err != nil:
		return f.err.Error()
	case f.result.TimedOut:
		return "timed out after " + f.result.Took.Round(1e6).String()
	}
	return fmt.Sprintf("exit code %d", f.result.ExitCode)
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
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return "free some space; the file is as it was"
	case errors.Is(err, syscall.EROFS):
		return "make it writable, under systemd with ReadWritePaths="
	case errors.Is(err, syscall.EBUSY):
		return "a single file that is a mount point cannot be replaced: mount its directory"
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("give user %d the right, or run jorc as root", os.Geteuid())
	default:
		return ""
	}
}
