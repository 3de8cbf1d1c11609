package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"
)

// programs holds the paths of the measured programs and of Consul. An empty peer
// leaves consul-template out.
type programs struct{ jorc, peer, consul, chromium string }

// size is how much is measured.
type size struct {
	samples   int // of what is fast
	few       int // of what is slow
	warmUp    int // changes before measuring
	keys      []int
	services  int
	files     int           // templates of one service
	rest      time.Duration // after the start, before measuring
	idle      time.Duration // window of idle measurements
	raft      time.Duration // window of the Raft measurement
	starts    int           // of each program
	flips     int           // of checks of the large service
	instances int           // of the large service
	watchers  int           // of it, behind one agent
	absent    int           // keys that one template uses
	busy      time.Duration // window while others write
}

func fullSize() size {
	return size{
		samples: 300, few: 100, warmUp: 10, keys: []int{1, 100, 1000, 10000}, services: 1000, files: 100,
		rest: 3 * time.Second, idle: 20 * time.Second, raft: 65 * time.Second, starts: 3,
		flips: 40, instances: 2000, watchers: 64, absent: 1000, busy: 15 * time.Second,
	}
}

func quickSize() size {
	return size{
		samples: 15, few: 8, warmUp: 2, keys: []int{1, 100, 1000}, services: 300, files: 100,
		rest: time.Second, idle: 3 * time.Second, raft: 6 * time.Second, starts: 1,
		flips: 8, instances: 300, watchers: 8, absent: 300, busy: 3 * time.Second,
	}
}

// scenario is one piece of work that both programs do.
type scenario struct {
	name string
	run  func(ctx context.Context, b *bench) error
}

// bench runs scenarios and collects their results.
type bench struct {
	programs programs
	size     size
	scale    scaleSize
	dir      string // for all files; removed at the end
	log      io.Writer
	report   report
}

// scenarioTime bounds one scenario.
const scenarioTime = 4 * time.Minute

func newBench(p programs, s size, parent string, log io.Writer) (*bench, error) {
	for _, path := range []*string{&p.jorc, &p.peer, &p.consul} {
		if *path == "" {
			continue
		}
		found, err := exec.LookPath(*path)
		if err == nil {
			found, err = filepath.Abs(found)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: run `make bench`", err)
		}
		*path = found
	}
	dir, err := os.MkdirTemp(parent, "jorc-bench-")
	if err != nil {
		return nil, err
	}
	return &bench{programs: p, size: s, dir: dir, log: log}, nil
}

// run carries out the matching scenarios. The error joins the errors of the scenarios.
func (b *bench) run(ctx context.Context, all []scenario, match *regexp.Regexp) (report, error) {
	defer os.RemoveAll(b.dir)
	b.report.Machine = describe(ctx, b.programs, b.dir)
	begin := time.Now()
	var errs []error
	for _, s := range all {
		if !match.MatchString(s.name) {
			continue
		}
		fmt.Fprintf(b.log, "%6.1fs  %s\n", time.Since(begin).Seconds(), s.name)
		if err := b.one(ctx, s); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
			fmt.Fprintf(b.log, "         failed: %v\n", err)
		}
	}
	b.report.Took = time.Since(begin)
	return b.report, errors.Join(errs...)
}

func (b *bench) one(ctx context.Context, s scenario) error {
	ctx, cancel := context.WithTimeoutCause(ctx, scenarioTime, fmt.Errorf("not done within %s", scenarioTime))
	defer cancel()
	err := s.run(ctx, b)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// place makes a directory for a part of a scenario.
func (b *bench) place(name string) (string, error) {
	dir, err := os.MkdirTemp(b.dir, name+"-")
	if err != nil {
		return "", err
	}
	return dir, nil
}

// sleep returns after d or when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
