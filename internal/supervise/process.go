package supervise

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"syscall"
	"time"

	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/durable"
)

const (
	// Pauses before a process that ended is started again.
	firstRestart = time.Second
	lastRestart  = time.Minute

	// settle is how long the changes of one moment are collected: templates are
	// replaced one after the other.
	settle = 200 * time.Millisecond

	// Pauses between attempts to take the lock of a process, which the guard of an
	// earlier agent may hold until it has ended its process.
	firstTry = 20 * time.Millisecond
	lastTry  = time.Second
)

// process is one supervised program. One goroutine runs it; the others change its
// input.
type process struct {
	o       *Options
	name    string
	changed concurrency.Signal // the input has changed
	removed chan struct{}      // closed when the configuration no longer has it

	pauses  *concurrency.Backoff // between restarts
	release func()               // the slot that a restart or reload holds; nil: none

	mu     sync.Mutex
	in     input
	status Status
}

func newProcess(o *Options, conf config.Process) *process {
	p := &process{
		o: o, name: conf.Name, changed: concurrency.NewSignal(), removed: make(chan struct{}),
		pauses: concurrency.NewBackoff(firstRestart, lastRestart),
		status: Status{Name: conf.Name, State: StateWaiting, Since: time.Now()},
	}
	p.configure(conf)
	return p
}

// configure gives the process the present configuration.
func (p *process) configure(conf config.Process) {
	p.update(func(in *input) bool {
		if reflect.DeepEqual(in.conf, conf) {
			return false
		}
		sources := len(conf.Env.Prefixes)+len(conf.Env.Secrets) > 0
		*in = input{conf: conf, rendered: map[string]bool{}, changes: in.changes, known: !sources}
		return true
	})
}

func (p *process) remove() {
	p.update(func(in *input) bool {
		if !in.removed {
			close(p.removed)
		}
		in.removed = true
		return true
	})
}

// update changes the input and, if change returns true, wakes the process.
func (p *process) update(change func(*input) bool) {
	p.mu.Lock()
	differs := change(&p.in)
	p.mu.Unlock()
	if differs {
		p.changed.Notify()
	}
}

func (p *process) input() input {
	p.mu.Lock()
	defer p.mu.Unlock()
	in := p.in
	in.rendered = maps.Clone(in.rendered)
	return in
}

// run runs the process until ctx ends or it is removed.
func (p *process) run(ctx context.Context) {
	ctx, stop := p.untilRemoved(ctx)
	defer stop()
	defer p.releaseSlot()
	for {
		in, err := p.ready(ctx)
		if err != nil {
			return
		}
		switch err := p.runUntilChange(ctx, &in); {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errChanged):
		default:
			p.pause(ctx, &in, err)
		}
	}
}

// untilRemoved returns a context that ends when the process is removed, too.
func (p *process) untilRemoved(ctx context.Context) (context.Context, func()) {
	return until(ctx, p.removed)
}

// until returns a context that ends with done, too. The caller must call stop.
func until(ctx context.Context, done <-chan struct{}) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-done:
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		cancel()
		watching.Wait()
	}
}

// ready waits until the process can be started.
func (p *process) ready(ctx context.Context) (input, error) {
	for {
		if in := p.input(); in.ready() {
			return in, nil
		}
		if err := p.changed.Wait(ctx); err != nil {
			return input{}, err
		}
	}
}

// errChanged: the process was stopped because its input has changed.
var errChanged = errors.New("changed")

// runUntilChange starts the process and returns why it ended: errChanged, or how. When
// ctx ends it stops the process.
func (p *process) runUntilChange(ctx context.Context, in *input) error {
	child, err := p.start(ctx, in)
	if err != nil {
		return err
	}
	healthy := time.NewTimer(in.conf.MinHealthyTime)
	defer healthy.Stop()
	for {
		select {
		case <-ctx.Done():
			p.stop(child)
			return ctx.Err()
		case <-child.Done():
			return ended(child.Result())
		case <-healthy.C:
			p.pauses.Reset()
			p.releaseSlot()
			p.set(func(s *Status) { s.State, s.Error = StateRunning, "" })
		case <-p.changed.C():
			next := p.input()
			if !next.ready() || !in.restarts(&next) && !in.reloads(&next) {
				continue
			}
			had := p.release != nil
			if !p.permit(ctx, child, &next) {
				continue // ctx or the process has ended
			}
			next = p.input() // it may have changed meanwhile
			switch {
			case !next.ready():
				p.releaseSlot()
			case in.restarts(&next):
				p.o.Log.Info("restarting a process: its files, environment or configuration have changed", "process", p.name)
				p.stop(child)
				return errChanged
			case in.reloads(&next):
				p.o.Log.Info("reloading a process: its files have changed", "process", p.name, "signal", in.conf.ReloadSignal)
				if err := child.Signal(command.SignalNumber(in.conf.ReloadSignal)); err != nil {
					p.o.Log.Error("cannot signal a process", "process", p.name, "error", err)
				}
				*in = next
				healthy.Reset(in.conf.MinHealthyTime)
			case !had: // all is as before the change
				p.releaseSlot()
			}
		}
	}
}

// start starts the program once no earlier process of that name runs.
func (p *process) start(ctx context.Context, in *input) (*command.Process, error) {
	lock, err := p.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer lock.Close() // the guard has its own copy
	env, err := environment(p.o.Environ(), in.conf, in.vars)
	if err != nil {
		return nil, err
	}
	child, err := command.Start(ctx, command.Command{
		Args: in.conf.Command, Dir: in.conf.Dir, Env: env, User: in.conf.User,
		StopSignal: command.SignalNumber(in.conf.KillSignal), Grace: in.conf.KillTimeout,
		Guard: p.o.Guard, Lock: lock, Stdout: p.o.Stdout, Stderr: p.o.Stderr,
	})
	if err != nil {
		return nil, err
	}
	p.o.Log.Info("started a process", "process", p.name, "pid", child.Pid())
	p.set(func(s *Status) {
		s.State, s.PID, s.Pending, s.Next = StateStarting, child.Pid(), "", time.Time{}
		s.Starts++
	})
	return child, nil
}

// lock takes the lock of the process, which its guard holds until it has ended.
func (p *process) lock(ctx context.Context) (*os.File, error) {
	dir := filepath.Join(p.o.StateDir, "processes")
	if err := durable.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("lock of process %q: %w", p.name, err)
	}
	tries := concurrency.NewBackoff(firstTry, lastTry)
	for {
		lock, err := durable.TryLock(filepath.Join(dir, p.name+".lock"))
		if err == nil {
			return lock.HandOver(), nil
		}
		if !errors.Is(err, durable.ErrLocked) {
			return nil, fmt.Errorf("lock of process %q: %w", p.name, err)
		}
		// A lock of a file cannot be waited for together with ctx.
		p.set(func(s *Status) { s.Pending = "an earlier process of this name is ending: " + err.Error() })
		if err := tries.Wait(ctx); err != nil {
			return nil, err
		}
	}
}

// permit waits until a restart or reload may begin: changes have settled, the splay
// has passed, and a slot is free. It reports false if ctx or the process ends first.
func (p *process) permit(ctx context.Context, child *command.Process, next *input) bool {
	defer p.set(func(s *Status) { s.Pending = "" })
	waiting, stop := until(ctx, child.Done())
	defer stop()
	pause := settle
	if next.conf.Splay > 0 {
		pause += rand.N(next.conf.Splay)
		p.set(func(s *Status) { s.Pending = "its splay" })
	}
	if concurrency.Sleep(waiting, pause) != nil {
		return false
	}
	if next.conf.Slot == "" || p.release != nil {
		return true
	}
	p.set(func(s *Status) { s.Pending = fmt.Sprintf("a slot of %q", next.conf.Slot) })
	return p.takeSlot(ctx, waiting, next.conf)
}

// takeSlot takes a slot, unless waiting ends first. The slot lasts until
// releaseSlot, or ctx's end.
func (p *process) takeSlot(ctx, waiting context.Context, conf config.Process) bool {
	held, cancel := context.WithCancel(ctx)
	detach := context.AfterFunc(waiting, cancel)
	release := func() {}
	err := concurrency.Retry(held, concurrency.NewBackoff(firstRestart, lastRestart), func(context.Context) error {
		end, err := p.o.Slot(held, conf.Slot, conf.MaxParallel, "restart of process "+p.name)
		if err == nil {
			release = end
		}
		return err
	}, func(err error, pause time.Duration) {
		p.o.Log.Warn("cannot take a slot, will retry", "process", p.name, "group", conf.Slot, "error", err, "retry", pause)
	})
	if !detach() || err != nil {
		cancel()
		release()
		return false
	}
	p.release = func() {
		release()
		cancel()
	}
	return true
}

func (p *process) releaseSlot() {
	if p.release != nil {
		p.release()
		p.release = nil
	}
}

// stop ends the program.
func (p *process) stop(child *command.Process) {
	p.set(func(s *Status) { s.State = StateStopping })
	child.Stop()
	p.set(func(s *Status) { s.State, s.PID = StateWaiting, 0 })
}

// ended describes the end of a program that was not asked to end.
func ended(r command.Result) error {
	if n := r.ExitCode - 128; n > 0 {
		if name := command.SignalName(syscall.Signal(n)); name != "" {
			return fmt.Errorf("it ended with exit code %d (%s)", r.ExitCode, name)
		}
	}
	return fmt.Errorf("it ended with exit code %d", r.ExitCode)
}

// pause waits before the next start of a process that failed with why. A change of
// its input ends the pause.
func (p *process) pause(ctx context.Context, in *input, why error) {
	pause := p.pauses.Next()
	p.set(func(s *Status) {
		s.State, s.PID, s.Error, s.Next = StateFailed, 0, why.Error(), time.Now().Add(pause)
	})
	p.o.Log.Error("a process failed; it is started again", "process", p.name, "error", why, "retry", pause.Round(time.Millisecond))
	ctx, cancel := context.WithTimeout(ctx, pause)
	defer cancel()
	for {
		if p.changed.Wait(ctx) != nil {
			return
		}
		if next := p.input(); next.ready() && (in.restarts(&next) || in.reloads(&next)) {
			return
		}
	}
}

// runOnce starts the process once and returns how it ended.
func (p *process) runOnce(ctx context.Context) error {
	in := p.input()
	if list := in.waiting(); len(list) > 0 {
		return fmt.Errorf("process %q cannot be started: %s is missing", p.name, list[0])
	}
	child, err := p.start(ctx, &in)
	if err != nil {
		return fmt.Errorf("process %q: %w", p.name, err)
	}
	select {
	case <-ctx.Done():
		p.stop(child)
		return ctx.Err()
	case <-child.Done():
	}
	if code := child.Result().ExitCode; code != 0 {
		return &ExitError{Process: p.name, Code: code}
	}
	return nil
}

// set changes the status.
func (p *process) set(change func(*Status)) {
	p.mu.Lock()
	before := p.status
	change(&p.status)
	moved := before.State != p.status.State
	if moved {
		p.status.Since = time.Now()
	}
	p.mu.Unlock()
	if moved {
		p.o.Changed()
	}
}

// current returns the status.
func (p *process) current() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.status
	if s.State == StateWaiting {
		s.Waiting = p.in.waiting()
	}
	return s
}
