package replace

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/command"
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

// check runs every distinct check command while all files are staged.
func (r *Replacer) check(ctx context.Context, items []*item) error {
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
			shown, kept := r.withhold("check", j.File, private(items), res)
			return &CheckError{File: j.File, Command: j.Args, Result: shown, Kept: kept, Err: err}
		}
		r.passed("check", j.File)
	}
	return nil
}
