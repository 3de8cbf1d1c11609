package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// scaleRun bounds a run of what -scale measures.
const scaleRun = 40 * time.Minute

// scaleReport is what such a run found.
type scaleReport struct {
	Machine machine
	Fleets  []fleetResult
	Stored  *storedResult
	// Dashboard is that of the largest fleet.
	Dashboard *dashboardResult
	Took      time.Duration
	Quick     bool

	scale scaleSize // that was asked for
}

// runScale measures simulated fleets and writes the report to stdout and, if
// all went well, to the file out.
func (b *bench) runScale(ctx context.Context, quick bool, fleets string, look scaleLook, stdout io.Writer, out string) error {
	defer os.RemoveAll(b.dir)
	ctx, cancel := context.WithTimeoutCause(ctx, scaleRun, fmt.Errorf("not done within %s", scaleRun))
	defer cancel()
	b.scale = fullScale()
	if quick {
		b.scale = quickScale()
	}
	if fleets != "" {
		b.scale.fleets, b.scale.stored = nil, 0
		for text := range strings.SplitSeq(fleets, ",") {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 {
				return fmt.Errorf("-fleets: %q is no number of agents", text)
			}
			b.scale.fleets = append(b.scale.fleets, n)
		}
	}
	if err := look.check(); err != nil {
		return err
	}
	b.scale.look = look
	if !look.has("stored") {
		b.scale.stored = 0
	}
	if look.parts == "stored" {
		b.scale.fleets = nil
	}
	if err := b.enoughFiles(); err != nil {
		return err
	}
	r, err := b.measureScale(ctx)
	r.Quick = quick
	text := r.markdown()
	if _, err := io.WriteString(stdout, text); err != nil {
		return err
	}
	if err != nil || out == "" {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	return os.WriteFile(out, []byte(text), 0o644)
}

// measureScale carries out what b.scale says. The error gathers what failed.
func (b *bench) measureScale(ctx context.Context) (scaleReport, error) {
	r := scaleReport{Machine: describe(ctx, b.programs, b.dir), scale: b.scale}
	begin := time.Now()
	var errs []error
	for _, size := range b.scale.fleets {
		fmt.Fprintf(b.log, "%6.1fs  %d agents\n", time.Since(begin).Seconds(), size)
		if err := b.measureFleet(ctx, size, &r, size == slices.Max(b.scale.fleets)); err != nil {
			errs = append(errs, err)
		}
	}
	if b.scale.stored > 0 {
		fmt.Fprintf(b.log, "%6.1fs  the orchestrator alone, %d nodes\n", time.Since(begin).Seconds(), b.scale.stored)
		s, err := b.measureStored(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("the orchestrator alone: %w", err))
		} else {
			r.Stored = &s
		}
	}
	r.Took = time.Since(begin)
	return r, errors.Join(errs...)
}

// filesPerAgent is how many connections of a simulated agent may be open.
const filesPerAgent = 18

// enoughFiles raises the limit of open files as far as it goes, for the processes of the
// agents and for Consul, too, which inherit it.
func (b *bench) enoughFiles() error {
	limit, err := raiseFileLimit()
	if err != nil {
		return err
	}
	for _, size := range b.scale.fleets {
		most := min(size, b.scale.perAgent)
		if want := uint64(most*filesPerAgent + 200); limit < want {
			return fmt.Errorf("%d agents behind a Consul agent take %d open files, the limit is %d: raise it with 'ulimit -n %d'", most, want, limit, want)
		}
	}
	return nil
}

// raiseFileLimit raises this process's limit of open files as far as it goes, and
// returns it.
func raiseFileLimit() (uint64, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, err
	}
	limit.Cur = limit.Max
	return limit.Max, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
}
