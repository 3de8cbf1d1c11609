package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"
)

// demo narrates what happens on the stage.
type demo struct {
	*stage
	out   io.Writer
	began time.Time
	now   string // the running step

	waiting *process // jorc wait
	app     bytes.Buffer
}

// show plays the demo and clears the stage afterwards, also after an error. The error
// names the step that failed.
func show(ctx context.Context, p programs, out io.Writer) (err error) {
	s, err := newStage(p)
	if err != nil {
		return err
	}
	d := &demo{stage: s, out: out, began: time.Now()}
	d.printf("jorc's main job on this machine's own addresses (127.0.0.x). All files are in %s, which is removed in the end.\n", d.dir)
	err = d.play(ctx)
	if err != nil {
		err = fmt.Errorf("FAILED: %s: %w", d.now, err)
		if ctx.Err() != nil {
			err = fmt.Errorf("interrupted: %s", d.now)
		} else if d.dev != nil {
			err = fmt.Errorf("%w\njorc dev said:\n%s", err, tail(d.log()))
		}
	}
	d.step("Everything is cleaned up")
	if d.waiting != nil {
		d.waiting.kill()
	}
	if cleared := d.clear(); cleared != nil {
		return errors.Join(err, fmt.Errorf("FAILED: %s: %w", d.now, cleared))
	}
	d.printf("Consul, jorc and the services have ended, and their files are gone.\n")
	return err
}

func (d *demo) play(ctx context.Context) error {
	for _, step := range []struct {
		name   string
		do     func(context.Context) error
		within time.Duration
	}{
		{"A Consul and a jorc agent start", d.start, startWithin},
		{"A program waits for three web services; there are none yet", d.wait, stepWithin},
		{"Three web services start, and register with a health check", d.register, stepWithin},
		{"One of them is killed", d.kill, stepWithin},
		{"It comes back", d.revive, stepWithin},
	} {
		d.step(step.name)
		bound, cancel := context.WithTimeout(ctx, step.within)
		err := step.do(bound)
		late := bound.Err() != nil
		cancel()
		if late && err != nil {
			return fmt.Errorf("not within %v: %w", step.within, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// run runs a command to its end.
func (d *demo) run(ctx context.Context, args ...string) error {
	name := "jorc " + strings.Join(args[1:], " ")
	p, err := start(name, d.environment(), io.Discard, nil, syscall.SIGKILL, args...)
	if err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		p.kill()
		return fmt.Errorf("%s: %w", name, ctx.Err())
	}
	if !p.cmd.ProcessState.Success() {
		return p.ended()
	}
	return nil
}

func (d *demo) step(name string) {
	d.now = name
	d.printf("\n[%4.1f s] %s", time.Since(d.began).Seconds(), name)
}

func (d *demo) command(format string, args ...any) { d.printf("  $ "+format, args...) }

// printf prints a line. It ignores errors of a closed output.
func (d *demo) printf(format string, args ...any) { _, _ = fmt.Fprintf(d.out, format+"\n", args...) }

// since is a time between two moments, in milliseconds.
func since(begin, end time.Time) string {
	return fmt.Sprintf("%.1f ms", float64(max(end.Sub(begin), 0).Microseconds())/1000)
}
