package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// timeout is how long a test may take without the fault: the longest of the tests that patches name takes half a
// minute with an idle machine. With the fault a test may wait for what never comes: it may take mostSlower times
// as long as before, and patience.
const (
	timeout    = 5 * time.Minute
	mostSlower = 5
	patience   = 30 * time.Second
)

// outcome is how a test ended.
type outcome string

const (
	passed   outcome = "passes"
	failed   outcome = "fails"
	panicked outcome = "panics"
	hung     outcome = "hangs"
	raced    outcome = "fails with a data race"
	absent   outcome = "does not run"
	unbuilt  outcome = "does not build"
)

// result is what became of a fault's test without and with the fault.
type result struct {
	fault         fault
	without, with outcome
	said          string // the first line by which the test says what is wrong, or the builder's
}

// proven reports whether the test notices the fault, and nothing else.
func (r result) proven() bool {
	return r.without == passed && (r.with == failed || r.with == panicked || r.with == hung || r.with == raced)
}

// prove runs the test of each fault without and with the fault, in a copy of the tree.
func prove(ctx context.Context, root string, faults []fault, out io.Writer) ([]result, error) {
	tmp, err := os.MkdirTemp("", "jorc-regressions-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	// One copy for all faults: what a fault does not change is compiled once.
	tree := filepath.Join(tmp, "tree")
	if err := copyTree(ctx, root, tree); err != nil {
		return nil, err
	}
	names, tests := 0, 0
	for _, f := range faults {
		names, tests = max(names, len(f.name)), max(tests, len(f.test.String()))
	}
	row := func(cells ...any) { // written at once: the whole table takes minutes
		line := fmt.Sprintf("%-*s  %-*s  %-8s  %-8s  %7v  %s", slices.Concat([]any{names, cells[0], tests}, cells[1:])...)
		fmt.Fprintln(out, strings.TrimRight(line, " "))
	}
	row("FAULT", "TEST", "WITHOUT", "WITH", "SECONDS", "")
	var results []result
	built, unbuiltFor := "", "" // the package and flags of the tests without a fault, and why they do not build
	for _, f := range faults {
		began := time.Now()
		r := result{fault: f}
		// Names begin with that of a package, so that patches of one follow one another.
		if key := fmt.Sprint(f.test.pkg, f.test.flags); key != built {
			if unbuiltFor, err = compile(ctx, tree, f.test, filepath.Join(tmp, "without.test")); err != nil {
				return nil, err
			}
			built = key
		}
		without := trial{outcome: unbuilt, said: unbuiltFor}
		if unbuiltFor == "" {
			if without, err = runTest(ctx, tree, f.test, filepath.Join(tmp, "without.test"), timeout); err != nil {
				return nil, err
			}
		}
		if err := apply(ctx, tree, f); err != nil {
			return nil, err
		}
		said, err := compile(ctx, tree, f.test, filepath.Join(tmp, "with.test"))
		if err != nil {
			return nil, err
		}
		with := trial{outcome: unbuilt, said: said}
		if said == "" {
			if with, err = runTest(ctx, tree, f.test, filepath.Join(tmp, "with.test"), mostSlower*without.took+patience); err != nil {
				return nil, err
			}
		}
		if err := apply(ctx, tree, f, "--reverse"); err != nil {
			return nil, err
		}
		r.without, r.with, r.said = without.outcome, with.outcome, with.said
		if without.outcome != passed {
			r.said = without.said
		}
		results = append(results, r)
		row(f.name, f.test, r.without, r.with, int(time.Since(began).Seconds()), notProven(r))
	}
	return results, nil
}

func notProven(r result) string {
	if r.proven() {
		return ""
	}
	return "NOT PROVEN: " + r.said
}

// copyTree copies the files that git knows, or would add.
func copyTree(ctx context.Context, from, to string) error {
	cmd := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = from
	list, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(list), "\x00"), "\x00") {
		source, target := filepath.Join(from, name), filepath.Join(to, name)
		info, err := os.Lstat(source)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed, and not committed yet
		} else if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			link, err := os.Readlink(source)
			if err == nil {
				err = os.Symlink(link, target)
			}
			if err != nil {
				return err
			}
		case info.Mode().IsRegular():
			content, err := os.ReadFile(source)
			if err == nil {
				err = os.WriteFile(target, content, info.Mode().Perm())
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// trial is how one run of a test ended.
type trial struct {
	outcome outcome
	said    string // the first line that says what is wrong
	took    time.Duration
}

// compile builds the package's tests. It returns what the compiler says if they do not build. Its error says that
// they could not be tried.
func compile(ctx context.Context, tree string, t test, binary string) (said string, err error) {
	cmd := exec.CommandContext(ctx, goCommand(), append([]string{"test", "-c", "-vet=off", "-ldflags=-w", "-o", binary}, append(t.flags, t.pkg)...)...)
	cmd.Dir = tree
	if slices.Contains(t.flags, "-race") {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1") // which the Makefile sets to 0
	}
	output, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case errors.As(err, &exit):
		return cmp.Or(first(output, regexp.MustCompile(`(?m)^.*\.go:\d+:.*$`)), err.Error()), nil
	}
	return "", err
}

// runTest runs one of a package's tests. Its error says that the test could not be tried; that is not an outcome.
func runTest(ctx context.Context, tree string, t test, binary string, timeout time.Duration) (trial, error) {
	pattern := "^" + strings.ReplaceAll(t.name, "/", "$/^") + "$"
	cmd := exec.CommandContext(ctx, binary, "-test.run="+pattern, "-test.v", "-test.count=1", "-test.timeout="+timeout.String())
	cmd.Dir = filepath.Join(tree, t.pkg)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second // a child of the test that outlives it may keep its output open
	began := time.Now()
	output, err := cmd.CombinedOutput()
	ended := func(o outcome, said string) (trial, error) { return trial{o, said, time.Since(began)}, nil }
	if ctx.Err() != nil {
		return trial{}, ctx.Err()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		return trial{}, err
	}
	failure := regexp.MustCompile(`(?m)^\s+\S+_test\.go:\d+: .*$`)
	switch {
	case !bytes.Contains(output, []byte("=== RUN   "+t.name+"\n")):
		return ended(absent, first(output, regexp.MustCompile(`(?m)^.+$`)))
	case bytes.Contains(output, []byte("panic: test timed out")):
		return ended(hung, "no end within "+timeout.String())
	case bytes.Contains(output, []byte("WARNING: DATA RACE")):
		return ended(raced, "a data race")
	case bytes.Contains(output, []byte("--- FAIL: "+t.name+" ")) && !regexp.MustCompile(`(?m)^(panic|fatal error): `).Match(output):
		return ended(failed, first(output, failure))
	case exit != nil:
		return ended(panicked, first(output, regexp.MustCompile(`(?m)^(panic|fatal error): .*$`)))
	case bytes.Contains(output, []byte("--- PASS: "+t.name+" ")):
		return ended(passed, "the test passes")
	default:
		return ended(absent, "the test is skipped")
	}
}

func goCommand() string {
	if name := os.Getenv("GO"); name != "" {
		return name
	}
	return "go"
}

// first returns the first match in the output, shortened.
func first(output []byte, pattern *regexp.Regexp) string {
	line := strings.TrimSpace(string(pattern.Find(output)))
	if runes := []rune(line); len(runes) > 200 {
		line = string(runes[:200]) + "…"
	}
	return line
}
