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
	"unicode/utf8"

	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
)

const (
	// maxOutput is how much of a script's output is kept, in bytes; agents cut at
	// 4096 themselves.
	maxOutput = 4000
	// scriptGrace is how long a script has between SIGTERM and SIGKILL.
	scriptGrace = time.Second
	// beatTimeout bounds a heartbeat: a frozen agent must not hold up the checks
	// for long. It is above Consul's rpc_hold_timeout (7 s), for which an agent
	// whose servers have no leader keeps its state locked.
	beatTimeout = 8 * time.Second
)

// runCheck runs c's command now and then every interval, and sends a heartbeat
// after each run, until ctx ends. after is the predecessor, whose last run must
// be over first.
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

// nextDue is the first of due, due+interval, … that is not past: runs that a
// slow one ate are left out, not made up for.
func nextDue(due, now time.Time, interval time.Duration) time.Time {
	if late := now.Sub(due); late > 0 {
		due = due.Add(late.Truncate(interval))
		if due.Before(now) {
			due = due.Add(interval)
		}
	}
	return due
}

// result runs a check once. The error says that ctx ended: then there is none.
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
	state, output = judge(res, err, spec.timeout)
	return state, output, nil
}

// judge maps how a script ended to a state and what to say about it.
func judge(res command.Result, err error, timeout time.Duration) (state, output string) {
	output = strings.TrimSpace(res.Output)
	switch {
	case err != nil:
		return consul.HealthCritical, limit(err.Error())
	case res.TimedOut:
		return consul.HealthCritical, limit(strings.TrimSpace(fmt.Sprintf("timed out after %s\n%s", timeout, output)))
	case res.ExitCode == 0:
		return consul.HealthPassing, limit(output)
	case output == "":
		output = fmt.Sprintf("exit code %d", res.ExitCode)
	}
	if res.ExitCode == 1 {
		return consul.HealthWarning, limit(output)
	}
	return consul.HealthCritical, limit(output)
}

// limit cuts s to maxOutput bytes, between characters.
func limit(s string) string {
	if len(s) <= maxOutput {
		return s
	}
	s = s[:maxOutput]
	for len(s) > 0 {
		if last, size := utf8.DecodeLastRuneInString(s); last != utf8.RuneError || size > 1 {
			break
		}
		s = s[:len(s)-1]
	}
	return s
}

// beat sends c's present state. An agent that does not know the check (any
// more) is put right at once.
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
		r.look()
	}
}

// expiredOutput begins the output that an agent gives a check whose heartbeats
// stopped.
const expiredOutput = "TTL expired"

// checkState is what is known of one check. It outlives changes of the check's
// definition, so that a reload makes no state jump.
type checkState struct {
	// sending is held while a heartbeat is under way, so that states reach the
	// agent in the order in which they came about.
	sending sync.Mutex

	mu      sync.Mutex
	spec    checkSpec
	live    bool   // the agent has the check: heartbeats make sense
	beaten  bool   // at least one heartbeat was taken since jorc's start
	status  string // "" while nothing is known
	held    string // output at the time of the last change of status: what heartbeats carry
	fresh   string // output of the last run
	streak  streak
	since   time.Time // of status
	lastRun time.Time
	took    time.Duration
	runs    uint64
	beats   uint64
	err     error // of the last heartbeat
}

// observe takes the result of one run.
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

// learn takes what the agent says of the check. For one that Consul runs this
// is the truth. Of one that jorc runs it is what jorc itself said before a
// restart: while the state is the same, the same output goes on being sent.
func (c *checkState) learn(at *consul.AgentCheck, now time.Time) {
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

// setLive says whether the agent has the check.
func (c *checkState) setLive(live bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live = live
}

// heartbeat is what is to be sent; ok is false when nothing is.
func (c *checkState) heartbeat() (id, status, output string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spec.id, c.status, c.held, c.live && c.status != ""
}

// sent takes how a heartbeat went.
func (c *checkState) sent(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	if err == nil {
		c.beaten = true
		c.beats++
	}
}

// present is the state to register the check with, "" when none is known.
func (c *checkState) present() string {
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

// thresholds say how many equal results in a row change a check's state. Zero
// means the first one does. failuresBeforeWarning defaults to
// failuresBeforeCritical.
type thresholds struct {
	successBeforePassing   int
	failuresBeforeWarning  int
	failuresBeforeCritical int
}

// streak counts equal results in a row. The zero value lets the first result
// decide, whatever it is, as Consul does for the checks that it runs.
type streak struct {
	started             bool
	successes, failures int
}

// next takes one result and returns the state to report, or "" when the
// present one stays. The rules are those of Consul's agent/checks StatusHandler.
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

// runner runs one check for as long as its definition stays.
type runner struct {
	spec   checkSpec
	state  *checkState
	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended
}

// syncRunners starts and ends runners so that each wanted check that jorc runs
// has one. A check whose definition is the same keeps its runner.
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
