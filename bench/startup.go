package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
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
	floor := filepath.Join(dir, "startfloor")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=", "-o", floor, "github.com/jorc/jorc/bench/testdata/startfloor")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	var own, peer, ratio samples
	for n := range b.size.warmUp + b.size.samples {
		jorc, err := processorTime(ctx, b.programs.jorc, "version")
		if err != nil {
			return err
		}
		linked, err := processorTime(ctx, floor)
		if err != nil {
			return err
		}
		if n < b.size.warmUp {
			continue
		}
		own.addMillis(jorc)
		peer.addMillis(linked)
		ratio = append(ratio, float64(jorc)/float64(linked))
	}
	b.report.Rows = append(b.report.Rows,
		row{what: "CPU of `jorc version`", unit: "ms", jorc: own, peer: peer, limit: noTarget, note: startupNote},
		row{what: "CPU of `jorc version`, of that of its libraries", unit: "×", jorc: ratio, limit: 1.3, note: startupNote},
	)
	return nil
}

// processorTime runs a program to its end.
func processorTime(ctx context.Context, program string, args ...string) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	// Settings of Go's runtime would change what is measured.
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if !slices.Contains([]string{"GOGC", "GODEBUG", "GOMEMLIMIT", "GOMAXPROCS"}, name) {
			cmd.Env = append(cmd.Env, v)
		}
	}
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("%s: %w", filepath.Base(program), err)
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}
