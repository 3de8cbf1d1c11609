// Package workflow runs the workflows that are defined on this node: one at a
// time, task after task, as jobs that survive a restart and a reboot. A
// finished task is never run again, an interrupted one only when it says that
// it may be.
package workflow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/blocker"
	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/text"
)

// Exit codes with which a task says more than success or failure, unless its
// ok_exit_codes name them. They are above the codes of signals (128 to 192),
// below ssh's 255, and none of Puppet's, sysexits' or timeout's. Tasks find
// them in JORC_EXIT_REBOOT, JORC_EXIT_STOP and JORC_EXIT_NOT_YET.
const (
	ExitReboot = 194 // the task is done; the host must reboot before the next one
	ExitStop   = 195 // the task is done, and the tasks after it are not to be run
	ExitNotYet = 196 // something is still missing: the task is to be run again later
)

// Errors of a Runner; compare with errors.Is.
var (
	ErrBusy    = errors.New("another workflow runs on this host")
	ErrUnknown = errors.New("no such workflow on this node")
	ErrNoJob   = errors.New("no such job")
	ErrNoTask  = errors.New("no such task")
	ErrInvalid = errors.New("invalid")
	ErrDamaged = errors.New("damaged")
)

// Requirements reports whether services that a task requires are available.
// FromBlocker makes one.
type Requirements interface {
	// Missing says in one line what is not there now: "waiting for mysql: 0 of 1
	// functional"; empty when all is. Errors are wrong requirements and ctx's.
	Missing(ctx context.Context, r []config.Requires) (string, error)
	// Wait returns nil once all is there.
	Wait(ctx context.Context, r []config.Requires) error
}

// Options are what a Runner needs.
type Options struct {
	StateDir  string // jobs are kept in its directory "jobs"
	Workflows []config.Workflow
	Node      string   // this node's name
	Environ   []string // "NAME=value" for all tasks, beside jorc's own environment without tokens; see Environ

	// Params are the effective params of this member, below those of jobs. Asked
	// at most once for each job, when it is created and a template needs one that
	// the job has not. Optional: without it jobs have their own only. See ParamsOf.
	Params func(ctx context.Context) (profile.Params, error)
	// Tokens makes an ACL token that may write the profile of a cluster, of this
	// one when the name is empty, and lives for ttl; an empty one where
	// none is needed. Optional. See TokensOf.
	Tokens func(ctx context.Context, profile string, ttl time.Duration) (secret string, err error)

	Requirements Requirements                    // nil: tasks that require something stay pending
	Store        Store                           // where logs of failed tasks go; nil: nowhere
	Held         func() string                   // the reason for which no further task may start, asked before each; optional
	Free         func(ctx context.Context) error // returns when Held has no reason; nil: Held is asked again after a pause
	Reboot       func(ctx context.Context) error // asks the system for a reboot of this host; nil: an operator reboots it
	Changed      func(Result)                    // called with every transition once it is on disk; optional
	Output       io.Writer                       // gets what tasks print as it comes; must not block; optional
	// Command replaces the processes of tasks, in a simulated host; nil: command.Run.
	Command func(context.Context, command.Command) (command.Result, error)
	Log     hclog.Logger
	MaxLog  int64     // bytes of log kept of one task, the last ones; default 16 MiB
	Keep    Retention // of finished jobs
}

// Runner runs workflows. It is safe for concurrent use.
type Runner struct {
	o    Options
	log  hclog.Logger
	jobs string        // directory of all jobs
	turn chan struct{} // held while a job runs in this process

	mu      sync.Mutex
	running int                 // calls of advance
	idle    chan struct{}       // closed while no job runs
	yield   string              // why no further task may start: another Runner takes over
	ended   map[string]finished // jobs that have ended, as prune last saw them

	now   func() time.Time
	sleep func(ctx context.Context, d time.Duration) error // ctx's error when that ended first
	boot  func() boot
	retry time.Duration     // the first pause after trouble
	hook  func(step string) // tests die here
}

// New returns a Runner. Runners of other processes with the same state
// directory are kept out while one of them runs a job.
func New(o Options) *Runner {
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	if o.MaxLog <= 0 {
		o.MaxLog = defaultMaxLog
	}
	o.Keep = o.Keep.withDefaults()
	idle := make(chan struct{})
	close(idle)
	return &Runner{
		o: o, idle: idle, retry: time.Second, log: o.Log, jobs: filepath.Join(o.StateDir, "jobs"), turn: make(chan struct{}, 1),
		now: time.Now, sleep: concurrency.Sleep, boot: currentBoot, hook: func(string) {},
	}
}

// Workflows are the names of the workflows that can be run, sorted.
func (r *Runner) Workflows() []string {
	names := make([]string, 0, len(r.o.Workflows))
	for i := range r.o.Workflows {
		names = append(names, r.o.Workflows[i].Name)
	}
	slices.Sort(names)
	return names
}

func (r *Runner) find(name string) (*config.Workflow, error) {
	for i := range r.o.Workflows {
		if r.o.Workflows[i].Name == name {
			return &r.o.Workflows[i], nil
		}
	}
	return nil, fmt.Errorf("workflow %q: %w%s", name, ErrUnknown, text.Unknown(name, "workflows", r.Workflows()))
}

// FromBlocker are Requirements that b checks.
func FromBlocker(b *blocker.Blocker) Requirements { return services{b} }

type services struct{ blocker *blocker.Blocker }

// Missing asks once.
func (s services) Missing(ctx context.Context, r []config.Requires) (string, error) {
	err := s.wait(ctx, r, blocker.Options{Tries: 1})
	var (
		late   *blocker.TimeoutError
		denied *blocker.DeniedError
	)
	switch {
	case errors.As(err, &late):
		return waitingFor(late.States), nil
	case errors.As(err, &denied):
		return waitingFor(denied.States), nil
	}
	return "", err
}

// Wait waits for ever. A token that may not read a service now may do so later.
func (s services) Wait(ctx context.Context, r []config.Requires) error {
	for {
		err := s.wait(ctx, r, blocker.Options{})
		if denied := new(blocker.DeniedError); !errors.As(err, &denied) {
			return err
		}
		if err := concurrency.Sleep(ctx, deniedPause); err != nil {
			return err
		}
	}
}

// deniedPause is how long it takes until a token's rights are checked again.
const deniedPause = 10 * time.Second

func (s services) wait(ctx context.Context, r []config.Requires, o blocker.Options) error {
	needs, err := blocker.NeedsOf(r)
	if err != nil {
		return err
	}
	return s.blocker.Wait(ctx, needs, o, nil)
}

// waitingFor is one line: "waiting for mysql: 0 of 1 functional (none
// registered); redis: 1 of 2 functional".
func waitingFor(states []blocker.State) string {
	var parts []string
	for _, s := range states {
		if s.Satisfied {
			continue
		}
		n := s.Need
		part := fmt.Sprintf("%s: %d of %d %s", n.Target.Ident(), s.Have, n.Target.Count, n.For)
		_, detail, ok := strings.Cut(s.Why, fmt.Sprintf("%d of %d: ", s.Have, n.Target.Count))
		if !ok && s.Denied {
			detail, ok = s.Why, true
		}
		if ok {
			part += " (" + detail + ")"
		}
		parts = append(parts, part)
	}
	return "waiting for " + strings.Join(parts, "; ")
}
