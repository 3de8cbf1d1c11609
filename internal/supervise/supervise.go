// Package supervise runs the programs of process blocks: it starts them when their
// templates are rendered and their environment is known, restarts or reloads them
// when either changes, and restarts them when they end.
package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
)

// Options are what a Supervisor needs.
type Options struct {
	// StateDir keeps the lock files, which prevent that a process runs twice.
	StateDir string
	// Guard is a program that calls command.GuardedProcess. Without it processes
	// outlive a jorc that is killed.
	Guard []string
	// Environ returns the variables that processes inherit.
	Environ func() []string
	// Slot waits for a slot of a group and takes it, until ctx ends or it is
	// released. Needed by processes with a slot only.
	Slot func(ctx context.Context, group string, limit int, reason string) (release func(), err error)
	// Changed is called after the state of a process has changed. Optional; it must
	// not block.
	Changed func()
	// Stdout and Stderr get the output of the processes.
	Stdout, Stderr io.Writer
	Log            hclog.Logger
}

// Supervisor runs processes. Its methods may be called at the same time.
type Supervisor struct {
	o     Options
	added concurrency.Signal

	mu        sync.Mutex
	processes []*process // in the order of the configuration
	waiting   []*process // that Run has not started yet
}

// New returns a Supervisor without processes. New does no I/O.
func New(o Options) *Supervisor {
	if o.Changed == nil {
		o.Changed = func() {}
	}
	return &Supervisor{o: o, added: concurrency.NewSignal()}
}

// Configure makes processes those of a configuration with these templates. A process
// whose block is unchanged continues. One whose block has changed is restarted once
// its templates are rendered again.
func (s *Supervisor) Configure(processes []config.Process, templates []config.Template) {
	var all []string
	for i := range templates {
		all = append(all, templates[i].Name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var next []*process
	for _, conf := range processes {
		conf.Pos = ""
		if conf.Templates == nil {
			conf.Templates = all
		}
		i := slices.IndexFunc(s.processes, func(p *process) bool { return p.name == conf.Name })
		if i < 0 {
			p := newProcess(&s.o, conf)
			s.waiting = append(s.waiting, p)
			next = append(next, p)
			continue
		}
		s.processes[i].configure(conf)
		next = append(next, s.processes[i])
	}
	for _, p := range s.processes {
		if !slices.Contains(next, p) {
			p.remove()
		}
	}
	s.processes = next
	s.added.Notify()
}

// Run runs the processes until ctx ends, and stops them. It returns nil.
func (s *Supervisor) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		s.mu.Lock()
		waiting := s.waiting
		s.waiting = nil
		s.mu.Unlock()
		for _, p := range waiting {
			running.Go(func() { p.run(ctx) })
		}
		if s.added.Wait(ctx) != nil {
			return nil
		}
	}
}

// ExitError reports that a process ended with another exit code than 0.
type ExitError struct {
	Process string
	Code    int
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("process %q ended with exit code %d", e.Process, e.Code)
}

// Once starts each process once and returns when all have ended; when ctx ends it
// stops them. The error is ctx's, or it names the processes that could not be
// started or ended with another exit code than 0, which is an *ExitError.
func (s *Supervisor) Once(ctx context.Context) error {
	all := s.list()
	errs := make([]error, len(all))
	var running sync.WaitGroup
	for i, p := range all {
		running.Go(func() { errs[i] = p.runOnce(ctx) })
	}
	running.Wait()
	if ctx.Err() != nil && len(all) > 0 {
		return ctx.Err()
	}
	return errors.Join(errs...)
}

func (s *Supervisor) list() []*process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.processes)
}

// State is where a process stands.
type State string

// The states of a process.
const (
	StateWaiting  State = "waiting"  // for its templates or its environment
	StateStarting State = "starting" // it runs, for less than min_healthy_time
	StateRunning  State = "running"
	StateStopping State = "stopping" // it was asked to end, for a restart
	StateFailed   State = "failed"   // it could not be started, or ended; it is started again
)

// Status is the state of one process.
type Status struct {
	Name    string
	State   State
	Since   time.Time
	PID     int      // of its process group; 0: it does not run
	Waiting []string // templates that are not rendered yet, and the environment
	Pending string   // what a restart or reload waits for; empty: none is due
	Starts  uint64   // by this agent
	Error   string   // how it ended last, or why it cannot be started; empty once it runs again
	Next    time.Time
}

// Status returns the state of all processes, in the order of the configuration.
func (s *Supervisor) Status() []Status {
	var list []Status
	for _, p := range s.list() {
		list = append(list, p.current())
	}
	return list
}

// input is what a process depends on.
type input struct {
	conf     config.Process
	rendered map[string]bool // templates whose files are as their data says
	changes  uint64          // of these files
	known    bool            // variables is known, or not needed
	vars     []string        // from KV and Vault
	removed  bool            // the configuration no longer has the process
}

// waiting lists what the first start waits for.
func (in *input) waiting() []string {
	var list []string
	for _, name := range in.conf.Templates {
		if !in.rendered[name] {
			list = append(list, fmt.Sprintf("template %q", name))
		}
	}
	if !in.known {
		list = append(list, "its environment")
	}
	return list
}

func (in *input) ready() bool { return len(in.waiting()) == 0 }

// restarts reports whether a process that runs with in needs a restart for next.
func (in *input) restarts(next *input) bool {
	return !reflect.DeepEqual(in.conf, next.conf) || !slices.Equal(in.vars, next.vars) ||
		in.changes != next.changes && in.conf.ReloadSignal == ""
}

// reloads reports whether it only needs a reload signal.
func (in *input) reloads(next *input) bool {
	return !in.restarts(next) && in.changes != next.changes
}
