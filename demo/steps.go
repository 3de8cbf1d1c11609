package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

func (d *demo) start(ctx context.Context) error {
	d.command("jorc dev --config jorc.hcl")
	begin := time.Now()
	if err := d.startDev(ctx); err != nil {
		return err
	}
	d.printf("up after %s, and jorc's three templates are rendered: an nginx upstream file, a hosts file and a hiera file", since(begin, time.Now()))
	d.printf("  Consul's page  %s/ui", d.api())
	d.printf("  jorc's page    %s", d.places.Status)
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
		d.printf("  --- %s", name)
		for line := range strings.Lines(now[name]) {
			d.printf("  %s", strings.TrimRight(line, "\n"))
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
	d.printf("all three are healthy; app started %s later, and they told it: %s", since(known, r.Started), strings.Join(r.Answers, ", "))
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
		d.printf("%s is back at %s, pid %d", d.web[1].name, d.web[1].address, d.web[1].process.pid())
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
	d.printf("after %s Consul's check has noticed", since(begin, known))
	d.followed(begin, files)
	after, err := d.read()
	if err != nil {
		return err
	}
	text, err := diff(before, after)
	for line := range strings.Lines(text) {
		d.printf("  %s", strings.TrimRight(line, "\n"))
	}
	return err
}

// followed tells when each file was new.
func (d *demo) followed(begin time.Time, files map[string]time.Time) {
	var parts []string
	for _, name := range rendered {
		parts = append(parts, name+" after "+since(begin, files[name]))
	}
	d.printf("the files have followed: %s", strings.Join(parts, ", "))
}
