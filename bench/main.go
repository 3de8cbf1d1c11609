// Command bench measures jorc beside consul-template: both run as real
// processes on the same work against real Consul servers, and their changes
// alternate within one run, so that the machine's noise hits both. It prints a
// table and writes it to docs/benchmarks.md. `make bench` builds all it needs.
// With -scale it measures fleets of simulated agents, which run in processes of their
// own (-scale-host), and writes docs/scale.md: `make bench-scale`. With -ui it measures the dashboard of a
// stored fleet with Chromium and writes docs/ui-scale.md: `make bench-ui`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if slices.Equal(os.Args[1:], []string{hostFlag}) {
		err = runHost(ctx)
	} else {
		err = command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

// command parses args, runs the scenarios and reports them.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	jorc := f.String("jorc", "bin/jorc", "the jorc `PROGRAM`")
	peer := f.String("peer", "bin/consul-template", "the consul-template `PROGRAM`; empty: jorc alone")
	consul := f.String("consul", envOr("CONSUL_BIN", "bin/consul"), "the Consul `PROGRAM`")
	only := f.String("only", "", "run the scenarios whose names match `REGEX`")
	quick := f.Bool("quick", false, "a minute instead of ten: few samples, nothing to quote")
	scale := f.Bool("scale", false, "measure simulated fleets in place of all that, and write docs/scale.md")
	screen := f.Bool("ui", false, "measure the dashboard in place of all that, and write docs/ui-scale.md")
	memory := f.Duration("memory", 0, "measure the memory of agents for a `DURATION` in place of all that, and write docs/memory.md")
	fleets := f.String("fleets", "", "with -scale: how many agents, `N,N…`, and nothing else")
	var look scaleLook
	f.StringVar(&look.parts, "parts", "", "with -scale: `PARTS` of it, of "+strings.Join(scaleParts, ", ")+", with commas between them, and nothing else")
	f.BoolVar(&look.requests, "requests", false, "with -scale: print each part's requests by kind")
	f.DurationVar(&look.task, "task", 0, "with -scale: each node's task takes `DURATION` and no processor, so that the nodes do not wait for one another's")
	f.StringVar(&look.profiles, "profiles", "", "with -scale: write the profiles of each part to `DIR`, Consul's too")
	list := f.Bool("list", false, "list the scenarios")
	dir := f.String("dir", "", "put files below `DIR`, whose disk is measured (default: the system's temporary directory; with -scale: memory)")
	out := f.String("o", "", "write the report to `FILE` (default: docs/benchmarks.md, but only after a full run)")
	if err := f.Parse(args); err != nil {
		return err
	}
	match, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	size := fullSize()
	if *quick {
		size = quickSize()
	}
	all := scenarios(size)
	if *list {
		for _, s := range all {
			fmt.Fprintln(stdout, s.name)
		}
		return nil
	}
	if *out == "" && *only == "" && *fleets == "" && look.parts == "" && !*quick {
		*out = "docs/benchmarks.md"
		if *scale {
			*out = "docs/scale.md"
		}
		if *screen {
			*out = "docs/ui-scale.md"
		}
		if *memory > 0 {
			*out = "docs/memory.md"
		}
	}
	if *scale || *screen || *memory > 0 {
		*peer = ""
		if *dir == "" {
			*dir = memoryDir()
		}
	}
	b, err := newBench(programs{jorc: *jorc, peer: *peer, consul: *consul}, size, *dir, stderr)
	if err != nil {
		return err
	}
	if *scale {
		return b.runScale(ctx, *quick, *fleets, look, stdout, *out)
	}
	if *memory > 0 {
		return b.runMemory(ctx, *memory, stdout, *out)
	}
	if *screen {
		return b.runUI(ctx, *quick, stdout, *out)
	}
	ctx, cancel := context.WithTimeout(ctx, wholeRun)
	defer cancel()
	r, failed := b.run(ctx, all, match)
	r.Quick = *quick
	text := r.markdown()
	if _, err := io.WriteString(stdout, text); err != nil {
		return err
	}
	if *out != "" && failed == nil {
		if err := os.MkdirAll(filepath.Dir(*out), 0o755); err != nil {
			return err
		}
		failed = os.WriteFile(*out, []byte(text), 0o644)
	}
	return failed
}

// wholeRun bounds a run, whatever hangs.
const wholeRun = 20 * time.Minute

// memoryDir is where files are in memory; empty: nowhere.
func memoryDir() string {
	const dir = "/dev/shm"
	var fs syscall.Statfs_t
	if syscall.Statfs(dir, &fs) != nil || fs.Type != tmpfs {
		return ""
	}
	return dir
}

// tmpfs is the type of a file system in memory; see statfs(2).
const tmpfs = 0x01021994

func envOr(name, standard string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return standard
}
