package catalog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
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
