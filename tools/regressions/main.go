// Command regressions puts faults of the past back, one after the other, and demands that a test notices each.
//
//	regressions -check [NAME…]                  each patch applies, its header is complete, its test exists
//	regressions [-write FILE] [NAME…]           the test of each patch passes without it and fails with it
//
// The file is docs/regressions.md, in which patches that are not named keep their rows.
// A fault is a file regressions/NAME.patch: a header in plain words (header.go), and a diff that puts the fault
// back. Without names all are meant. The exit code is 1 if a patch is wrong or a test stays green.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "regressions:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("regressions", flag.ContinueOnError)
	root := flags.String("root", ".", "the root of the repository")
	onlyCheck := flags.Bool("check", false, "look at the patches and run no test")
	write := flags.String("write", "", "write the results as Markdown into this file; what is not named keeps its row")
	if err := flags.Parse(args); err != nil {
		return err
	}
	faults, err := load(filepath.Join(*root, "regressions"), flags.Args())
	if err != nil {
		return err
	}
	if err := check(ctx, *root, faults); err != nil || *onlyCheck {
		return err
	}
	results, err := prove(ctx, *root, faults, out)
	if err != nil {
		return err
	}
	if *write != "" {
		if err := writeDocument(*write, *root, results); err != nil {
			return err
		}
	}
	var green []string
	for _, r := range results {
		if !r.proven() {
			green = append(green, r.fault.name)
		}
	}
	if len(green) > 0 {
		return fmt.Errorf("%d of %d patches are not proven: %s", len(green), len(results), strings.Join(green, ", "))
	}
	return nil
}

// writeDocument writes the results into a file that may have the rows of other patches.
func writeDocument(path, root string, results []result) error {
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	all, err := load(filepath.Join(root, "regressions"), nil)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(document(all, results, string(before))), 0o644)
}

// load reads the patches of the directory with these names, or all of them.
func load(dir string, names []string) ([]fault, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s has no patch", dir)
	}
	var (
		faults  []fault
		errs    []error
		unknown = slices.Clone(names)
	)
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".patch")
		if len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		unknown = slices.DeleteFunc(unknown, func(n string) bool { return n == name })
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		f, err := parse(name, string(text))
		if err != nil {
			errs = append(errs, err)
		}
		faults = append(faults, f)
	}
	if len(unknown) > 0 {
		errs = append(errs, fmt.Errorf("%s has no patch %s", dir, strings.Join(unknown, ", ")))
	}
	return faults, errors.Join(errs...)
}
