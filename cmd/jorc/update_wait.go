package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v2"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/jorc/jorc/internal/rollout"
)

func waitRolloutCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "wait", Usage: "wait until all members run the desired version",
		Description: "Exits 0 when they do, 1 when members failed, the version was rolled back or another one was triggered, " +
			"6 at once when the rollout or the cluster is paused or the rollout was aborted, 124 at the timeout. On a terminal it draws progress.",
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "timeout", Usage: "give up after `D`; 0: never", DefaultText: "never"},
		},
		Action: env.waitRollout,
	}
}

// waitedRollout is the answer of `update wait`.
type waitedRollout struct {
	Version string           `json:"version"`
	State   string           `json:"state"`
	Now     rollout.Counts   `json:"now"`
	Failed  []rollout.Failed `json:"failed"`
	Waits   []string         `json:"waits"`
}

func (e *environment) waitRollout(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	timeout := c.Duration("timeout")
	if timeout < 0 {
		return usagef(c, "--timeout is %v, but must be 0 or more", timeout)
	}
	format, err := e.format(c)
	if err != nil {
		return err
	}
	rollouts, closeClient, err := e.rollouts(c)
	if err != nil {
		return err
	}
	defer closeClient()
	ctx, cancel := withTimeout(c.Context, timeout)
	defer cancel()
	var last rollout.Status
	bar := e.rolloutBar()
	err = rollouts.Wait(ctx, func(s rollout.Status) { last = s; bar.draw(s) })
	bar.clear()
	if format == formatJSON && last.Version != "" {
		answer := waitedRollout{last.Version, last.State, last.Now, last.Failed, last.Waits}
		if err := e.writeJSON(c.App.Writer, answer); err != nil {
			return err
		}
	}
	switch {
	case errors.Is(err, rollout.ErrStopped):
		return &exitError{code: exitStopped, err: err}
	case errors.Is(err, context.DeadlineExceeded) && last.Version != "":
		return &exitError{code: exitTimeout, err: fmt.Errorf("timed out after %v: %d of %d members run %s; it waits for %s", timeout,
			last.Now.Done, last.Now.Members, last.Version, more(last.Waits, 0))}
	}
	return err
}

// rolloutBar is a progress bar on a terminal.
type rolloutBar struct {
	progress *mpb.Progress // nil: no terminal
	bar      *mpb.Bar
	phase    atomic.Pointer[string]
}

func (e *environment) rolloutBar() *rolloutBar {
	f, ok := terminalOf(e.stderr)
	if !ok || e.getenv("TERM") == "dumb" {
		return &rolloutBar{}
	}
	return &rolloutBar{progress: mpb.New(mpb.WithOutput(f), mpb.WithRefreshRate(100*time.Millisecond))}
}

// draw shows how far the rollout has come.
func (b *rolloutBar) draw(s rollout.Status) {
	if b.progress == nil {
		return
	}
	text := fmt.Sprintf("%s: %s, %d working, %d failed ", printable(s.Version), s.StateText(), s.Now.Working, s.Now.Failed)
	b.phase.Store(&text)
	if b.bar == nil {
		b.bar = b.progress.AddBar(0,
			mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return *b.phase.Load() })),
			mpb.AppendDecorators(decor.CountersNoUnit(" %d / %d")))
	}
	b.bar.SetTotal(int64(s.Now.Members), false)
	b.bar.SetCurrent(int64(s.Now.Done))
}

// clear leaves nothing of the bar.
func (b *rolloutBar) clear() {
	if b.progress == nil {
		return
	}
	if b.bar != nil {
		b.bar.Abort(true)
	}
	b.progress.Wait()
}
