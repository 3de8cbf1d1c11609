package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// demo tells what happens on the stage.
type demo struct {
	*stage
	out   io.Writer
	began time.Time
	now   string // the step under way

	waiting *process // jorc wait
	app     bytes.Buffer
}

// show plays the demo to its end and clears the stage, however it ended. The
// error names the step that did not happen.
func show(ctx context.Context, p programs, out io.Writer) (err error) {
	s, err := newStage(p)
	if err != nil {
		return err
	}
	d := &demo{stage: s, out: out, began: time.Now()}
	d.say("jorc's main job on this machine's own addresses (127.0.0.x). All files are in %s, which is removed in the end.\n", d.dir)
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
	d.say("Consul, jorc and the services have ended, and their files are gone.\n")
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

func (d *demo) start(ctx context.Context) error {
	d.command("jorc dev --config jorc.hcl")
	begin := time.Now()
	if err := d.startDev(ctx); err != nil {
		return err
	}
	d.say("up after %s, and jorc's three templates are rendered: an nginx upstream file, a hosts file and a hiera file", since(begin, time.Now()))
	d.say("  Consul's page  %s/ui", d.api())
	d.say("  jorc's page    %s", d.places.Status)
	d.command("export CONSUL_HTTP_ADDR=%s JORC_DNS_ADDR=%s JORC_STATE_DIR=…", d.places.HTTPAddr, d.places.DNSAddr)
	return nil
}

func (d *demo) wait(context.Context) (err error) {
	d.command("jorc wait web=3 -- app &")
	d.waiting, err = start("jorc wait", d.environment(), &d.app, nil, syscall.SIGKILL,
		d.jorc, "wait", "web=3", "--timeout", startWithin.String(), "--", d.self, "app", d.api())
	return err
}

func (d *demo) register(ctx context.Context) error {
	for _, i := range d.web {
		if err := d.startWeb(ctx, i); err != nil {
			return err
		}
		file, err := d.definition(i)
		if err != nil {
			return err
		}
		d.command("jorc service register %s.json    # http://%s, pid %d; Consul checks it every second", i.name, i.address, i.process.pid())
		if err := d.run(ctx, d.jorc, "service", "register", file); err != nil {
			return err
		}
	}
	g, waiting := errgroup.WithContext(ctx)
	var known time.Time
	var files map[string]time.Time
	g.Go(func() (err error) { known, err = healthy(waiting, d.api(), len(d.web)); return err })
	g.Go(func() (err error) { files, err = d.follow(waiting, "does not name all", names(d.web)); return err })
	if err := g.Wait(); err != nil {
		return err
	}
	if err := d.appStarted(ctx, known); err != nil {
		return err
	}
	d.followed(known, files)
	now, err := d.read()
	if err != nil {
		return err
	}
	for _, name := range rendered {
		d.say("  --- %s", name)
		for line := range strings.Lines(now[name]) {
			d.say("  %s", strings.TrimRight(line, "\n"))
		}
	}
	return nil
}

// appStarted waits for what `jorc wait` has become.
func (d *demo) appStarted(ctx context.Context, known time.Time) error {
	select {
	case <-d.waiting.done:
	case <-ctx.Done():
		return fmt.Errorf("jorc wait did not see them: %w", ctx.Err())
	}
	if !d.waiting.cmd.ProcessState.Success() {
		return d.waiting.ended()
	}
	var r report
	if err := json.Unmarshal(d.app.Bytes(), &r); err != nil {
		return fmt.Errorf("app said %q: %w", d.app.String(), err)
	}
	if len(r.Answers) != len(d.web) {
		return fmt.Errorf("app got the answers %q", r.Answers)
	}
	d.say("all three are healthy; app started %s later, and they told it: %s", since(known, r.Started), strings.Join(r.Answers, ", "))
	return nil
}

func (d *demo) kill(ctx context.Context) error {
	victim, left := d.web[1], []*instance{d.web[0], d.web[2]}
	return d.change(ctx, len(left), names(left, victim), "still names "+victim.host, func() error {
		d.command("kill -9 %d    # %s at %s", victim.process.pid(), victim.name, victim.address)
		victim.process.kill()
		return nil
	})
}

func (d *demo) revive(ctx context.Context) error {
	return d.change(ctx, len(d.web), names(d.web), "does not name all", func() error {
		if err := d.startWeb(ctx, d.web[1]); err != nil {
			return err
		}
		d.say("%s is back at %s, pid %d", d.web[1].name, d.web[1].address, d.web[1].process.pid())
		return nil
	})
}

// change does what changes the number of healthy services to n, and shows how
// the files follow.
func (d *demo) change(ctx context.Context, n int, holds func(string) bool, otherwise string, do func() error) error {
	before, err := d.read()
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := do(); err != nil {
		return err
	}
	g, waiting := errgroup.WithContext(ctx)
	var known time.Time
	var files map[string]time.Time
	g.Go(func() (err error) { known, err = healthy(waiting, d.api(), n); return err })
	g.Go(func() (err error) { files, err = d.follow(waiting, otherwise, holds); return err })
	if err := g.Wait(); err != nil {
		return err
	}
	d.say("after %s Consul's check has noticed", since(begin, known))
	d.followed(begin, files)
	after, err := d.read()
	if err != nil {
		return err
	}
	text, err := diff(before, after)
	for line := range strings.Lines(text) {
		d.say("  %s", strings.TrimRight(line, "\n"))
	}
	return err
}

// followed tells when each file was new.
func (d *demo) followed(begin time.Time, files map[string]time.Time) {
	var parts []string
	for _, name := range rendered {
		parts = append(parts, name+" after "+since(begin, files[name]))
	}
	d.say("the files have followed: %s", strings.Join(parts, ", "))
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
	d.say("\n[%4.1f s] %s", time.Since(d.began).Seconds(), name)
}

func (d *demo) command(format string, args ...any) { d.say("  $ "+format, args...) }

// say prints a line. Whoever stopped reading misses the rest.
func (d *demo) say(format string, args ...any) { _, _ = fmt.Fprintf(d.out, format+"\n", args...) }

// since is a time between two moments, in milliseconds.
func since(begin, end time.Time) string {
	return fmt.Sprintf("%.1f ms", float64(max(end.Sub(begin), 0).Microseconds())/1000)
}
