package catalog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/text"
)

const (
	// maxOutput limits a script's output, in bytes; agents truncate at 4096.
	maxOutput = 4000
	// scriptGrace is the time between SIGTERM and SIGKILL.
	scriptGrace = time.Second
	// beatTimeout limits a heartbeat, so that a frozen agent does not delay the
	// checks for long. It is above Consul's rpc_hold_timeout (7 s), for which an
	// agent whose servers have no leader keeps its state locked.
	beatTimeout = 8 * time.Second
)

// runCheck runs c's command now and then every interval, and sends a heartbeat
// after each run, until ctx ends. after is closed when the previous runner of the
// check has ended.
func (r *Registrar) runCheck(ctx context.Context, c *checkState, spec checkSpec, after <-chan struct{}) {
	if after != nil {
		<-after
	}
	// Spreads the first runs of many checks.
	if r.starts.Wait(ctx) != nil {
		return
	}
	due := time.Now()
	for first := true; ; first = false {
		begin := time.Now()
		result, output, err := r.result(ctx, spec)
		if err != nil {
			return
		}
		c.observe(result, output, time.Now(), time.Since(begin))
		r.beat(ctx, c)
		if first {
			due = due.Add(spec.interval/2 + rand.N(spec.interval/2+1))
		} else {
			due = due.Add(spec.interval)
		}
		due = nextDue(due, time.Now(), spec.interval)
		if concurrency.Sleep(ctx, time.Until(due)) != nil {
			return
		}
	}
}

// nextDue returns the first of due, due+interval, … that is not past: runs that
// a slow run missed are not repeated.
func nextDue(due, now time.Time, interval time.Duration) time.Time {
	if late := now.Sub(due); late > 0 {
		due = due.Add(late.Truncate(interval))
		if due.Before(now) {
			due = due.Add(interval)
		}
	}
	return due
}

// result runs a check once. The error is ctx's.
func (r *Registrar) result(ctx context.Context, spec checkSpec) (state, output string, err error) {
	if spec.kind == kindPresence {
		return consul.HealthPassing, presenceOutput, ctx.Err()
	}
	res, err := command.Run(ctx, command.Command{
		Args: spec.command, Env: command.Environ(r.o.Env...),
		Timeout: spec.timeout, Grace: scriptGrace, MaxOutput: maxOutput,
	})
	if ctx.Err() != nil {
		return "", "", ctx.Err()
	}
	state, output = classify(res, err, spec.timeout)
	return state, output, nil
}

// classify returns the status and the output of a check for a script's result.
func classify(res command.Result, err error, timeout time.Duration) (state, output string) {
	output = strings.TrimSpace(res.Output)
	switch {
	case err != nil:
		return consul.HealthCritical, text.Truncate(err.Error(), maxOutput)
	case res.TimedOut:
		return consul.HealthCritical, text.Truncate(strings.TrimSpace(fmt.Sprintf("timed out after %s\n%s", timeout, output)), maxOutput)
	case res.ExitCode == 0:
		return consul.HealthPassing, text.Truncate(output, maxOutput)
	case output == "":
		output = fmt.Sprintf("exit code %d", res.ExitCode)
	}
	if res.ExitCode == 1 {
		return consul.HealthWarning, text.Truncate(output, maxOutput)
	}
	return consul.HealthCritical, text.Truncate(output, maxOutput)
}

// beat sends c's current status. If the agent does not have the check, it wakes
// reconcile, which registers the check again.
func (r *Registrar) beat(ctx context.Context, c *checkState) {
	c.sending.Lock()
	defer c.sending.Unlock()
	id, status, output, ok := c.heartbeat()
	if !ok {
		return
	}
	send, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	err := r.client.UpdateTTL(send, id, output, status)
	if ctx.Err() != nil {
		return
	}
	c.sent(err)
	if errors.Is(err, consul.ErrNotFound) {
		c.setLive(false)
		r.wake.Notify()
	}
}

// expiredOutput is the prefix of the output that an agent sets when a check's
// TTL expires.
const expiredOutput = "TTL expired"

// checkState is the current state of one check. It survives changes of the
// check's definition, so that a reload does not change the status.
type checkState struct {
	// sending is held while a heartbeat is sent, so that heartbeats reach the
	// agent in order.
	sending sync.Mutex

	mu      sync.Mutex
	spec    checkSpec
	live    bool   // the agent has the check and accepts heartbeats
	beaten  bool   // at least one heartbeat was accepted since jorc's start
	status  string // "" until the first result
	held    string // output at the last change of status: the output of heartbeats
	fresh   string // output of the last run
	streak  streak
	since   time.Time // of status
	lastRun time.Time
	took    time.Duration
	runs    uint64
	beats   uint64
	err     error // of the last heartbeat
}

// observe records the result of one run.
func (c *checkState) observe(result, output string, now time.Time, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs++
	c.lastRun, c.took, c.fresh = now, took, output
	status := c.spec.threshold.next(&c.streak, result)
	if status == "" || status == c.status {
		return
	}
	c.status, c.held, c.since = status, output, now
}

// adopt takes over the agent's state of the check. For a check that Consul runs
// it is authoritative. For a check that jorc runs it is the state before jorc's
// restart: while the status is the same, heartbeats continue with its output.
func (c *checkState) adopt(at *consul.AgentCheck, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.spec.runByJorc() {
		c.fresh = at.Output
		if c.status != at.Status {
			c.status, c.since = at.Status, now
		}
		return
	}
	if c.beaten || at.Output == "" || strings.HasPrefix(at.Output, expiredOutput) {
		return
	}
	switch c.status {
	case "":
		c.status, c.held, c.since = at.Status, at.Output, now
	case at.Status:
		c.held = at.Output
	}
}

// setLive sets whether the agent has the check.
func (c *checkState) setLive(live bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live = live
}

// heartbeat returns the next heartbeat; ok is false if there is nothing to send.
func (c *checkState) heartbeat() (id, status, output string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spec.id, c.status, c.held, c.live && c.status != ""
}

// sent records the result of a heartbeat.
func (c *checkState) sent(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	if err == nil {
		c.beaten = true
		c.beats++
	}
}

// current returns the status to register the check with; "" if it is unknown.
func (c *checkState) current() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

func (c *checkState) report() CheckStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := CheckStatus{
		ID: c.spec.id, Name: c.spec.name, Kind: c.spec.kind,
		State: c.status, Output: c.fresh, Since: c.since,
		LastRun: c.lastRun, Took: c.took, Runs: c.runs, Heartbeats: c.beats,
	}
	if c.err != nil {
		s.Error = c.err.Error()
	}
	return s
}

// thresholds are the numbers of equal results in a row that change a check's
// status. Zero means the first one. failuresBeforeWarning defaults to
// failuresBeforeCritical.
type thresholds struct {
	successBeforePassing   int
	failuresBeforeWarning  int
	failuresBeforeCritical int
}

// streak counts equal results in a row. With the zero value the first result
// sets the status, as for checks that Consul runs.
type streak struct {
	started             bool
	successes, failures int
}

// next adds one result and returns the new status, or "" if it does not change.
// The rules are those of Consul's agent/checks StatusHandler.
func (t thresholds) next(s *streak, result string) string {
	if !s.started {
		*s = streak{started: true, successes: t.successBeforePassing, failures: t.failuresBeforeCritical}
	}
	if result != consul.HealthCritical {
		s.successes++
		s.failures = 0
		if s.successes >= t.successBeforePassing {
			return result
		}
		return ""
	}
	s.failures++
	s.successes = 0
	warning := t.failuresBeforeWarning
	if warning == 0 {
		warning = t.failuresBeforeCritical
	}
	switch {
	case s.failures >= t.failuresBeforeCritical:
		return consul.HealthCritical
	case s.failures >= warning:
		return consul.HealthWarning
	default:
		return ""
	}
}

// runner runs one check until its definition changes.
type runner struct {
	spec   checkSpec
	state  *checkState
	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended
}

// syncRunners starts and stops runners so that each wanted check that jorc runs
// has one. A check with an unchanged definition keeps its runner.
func (r *Registrar) syncRunners(ctx context.Context) {
	type wanted struct {
		spec  checkSpec
		state *checkState
	}
	want := map[string]wanted{}
	r.mu.Lock()
	for _, w := range r.wanted {
		for _, spec := range w.checks {
			if spec.runByJorc() {
				want[spec.id] = wanted{spec, r.checks[spec.id]}
			}
		}
	}
	r.mu.Unlock()
	for id, old := range r.runners {
		if _, ok := want[id]; !ok {
			old.cancel()
			delete(r.runners, id)
		}
	}
	for id, w := range want {
		old, ok := r.runners[id]
		if ok && old.state == w.state && reflect.DeepEqual(old.spec, w.spec) {
			continue
		}
		var after <-chan struct{}
		if ok {
			old.cancel()
			after = old.done
		}
		r.runners[id] = r.startRunner(ctx, w.spec, w.state, after)
	}
}

func (r *Registrar) startRunner(ctx context.Context, spec checkSpec, state *checkState, after <-chan struct{}) *runner {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	r.wg.Go(func() {
		defer close(done)
		defer cancel()
		r.runCheck(ctx, state, spec, after)
	})
	return &runner{spec: spec, state: state, cancel: cancel, done: done}
}
