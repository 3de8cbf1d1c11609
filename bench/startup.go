package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const startupNote = "User and system time of the process, as wait4 reports it; both programs take turns. The peer is bench/testdata/startfloor, built in this run: " +
	"it links consul/api, consul-template's template and dependency, and cli/v2, and does nothing."

// startUp measures what the shortest command costs beside a program that only links
// the same libraries.
func startUp(ctx context.Context, b *bench) error {
	dir, err := b.place("startfloor")
	if err != nil {
		return err
	}
	floor, err := buildFloor(ctx, dir, "startfloor")
	if err != nil {
		return err
	}
	var own, peer, ratio, faults, peerFaults samples
	for n := range b.size.warmUp + b.size.samples {
		jorc, err := runShort(ctx, b.programs.jorc, "version")
		if err != nil {
			return err
		}
		linked, err := runShort(ctx, floor)
		if err != nil {
			return err
		}
		if n < b.size.warmUp {
			continue
		}
		own.addMillis(jorc.processor)
		peer.addMillis(linked.processor)
		ratio = append(ratio, float64(jorc.processor)/float64(linked.processor))
		faults, peerFaults = append(faults, float64(jorc.faults)), append(peerFaults, float64(linked.faults))
	}
	b.report.Rows = append(b.report.Rows,
		row{what: "CPU of `jorc version`", unit: "ms", jorc: own, peer: peer, limit: noTarget, note: startupNote},
		row{what: "CPU of `jorc version`, of that of its libraries", unit: "×", jorc: ratio, limit: 1.3, note: startupNote},
		row{what: "page faults of `jorc version`", jorc: faults, peer: peerFaults, limit: noTarget, note: startupNote},
	)
	return nil
}

// buildFloor builds a program of bench/testdata as the Makefile builds jorc.
func buildFloor(ctx context.Context, dir, name string) (path string, err error) {
	path = filepath.Join(dir, name)
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=", "-o", path, "github.com/jorc/jorc/bench/testdata/"+name)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
}

// shortRun is what a process took from its start to its end.
type shortRun struct {
	processor time.Duration // user and system time
	faults    int64         // page faults
}

// runShort runs a program to its end.
func runShort(ctx context.Context, program string, args ...string) (shortRun, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	// Settings of Go's runtime would change what is measured.
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if !slices.Contains([]string{"GOGC", "GODEBUG", "GOMEMLIMIT", "GOMAXPROCS"}, name) {
			cmd.Env = append(cmd.Env, v)
		}
	}
	if err := cmd.Run(); err != nil {
		return shortRun{}, fmt.Errorf("%s: %w", filepath.Base(program), err)
	}
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return shortRun{cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), usage.Minflt + usage.Majflt}, nil
}
