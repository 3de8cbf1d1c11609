// Command fuzz keeps the corpora of the fuzzers, and says how much they cover.
//
//	fuzz -check                     each fuzzer has a corpus that is not too large, and a row in docs/fuzzing.md
//	fuzz -grow TIME [FuzzName…]     fuzz for that time (5s, or 1000x), and keep the inputs that add something
//	fuzz -write FILE                measure the coverage of all corpora, and write it as Markdown
//
// A corpus is in testdata/fuzz/FuzzName of the fuzzer's package, where go test reads it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path"
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
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("fuzz", flag.ContinueOnError)
	root := flags.String("root", ".", "the root of the repository")
	onlyCheck := flags.Bool("check", false, "look at the corpora and run nothing")
	grow := flags.String("grow", "", "fuzz for that time, and keep the inputs that add something")
	write := flags.String("write", "", "write the coverage as Markdown into this file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	all, err := fuzzers(ctx, *root, flags.Args())
	if err != nil {
		return err
	}
	switch {
	case *onlyCheck && flags.NArg() == 0:
		return errors.Join(check(*root, all), abandoned(ctx, *root, all))
	case *grow != "":
		return growAll(ctx, all, *grow, out)
	case *write != "" && flags.NArg() == 0:
		return writeDocument(ctx, *write, all, out)
	}
	return errors.New("give one of -check, -grow TIME and -write FILE, and names to -grow alone")
}

// fuzzer is one fuzz target.
type fuzzer struct {
	root, pkg, name string // pkg is relative to root, with slashes
}

func (f fuzzer) String() string { return f.pkg + " " + f.name }

// dir is the directory of the package.
func (f fuzzer) dir() string { return filepath.Join(f.root, f.pkg) }

// corpus is the directory of the corpus.
func (f fuzzer) corpus() string { return filepath.Join(f.dir(), "testdata", "fuzz", f.name) }

// inputs are the files of the corpus.
func (f fuzzer) inputs() ([]string, error) {
	return filepath.Glob(filepath.Join(f.corpus(), "*"))
}

// fuzzers finds the fuzz targets of the repository with these names, or all of them.
func fuzzers(ctx context.Context, root string, names []string) ([]fuzzer, error) {
	files, err := listed(ctx, root, "--cached", "--others", "--exclude-standard", "*_test.go")
	if err != nil {
		return nil, err
	}
	var all []fuzzer
	unknown := slices.Clone(names)
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, decl := range parsed.Decls {
			d, ok := decl.(*ast.FuncDecl)
			if !ok || d.Recv != nil || !strings.HasPrefix(d.Name.Name, "Fuzz") || len(names) > 0 && !slices.Contains(names, d.Name.Name) {
				continue
			}
			all = append(all, fuzzer{root, path.Dir(file), d.Name.Name})
			unknown = slices.DeleteFunc(unknown, func(n string) bool { return n == d.Name.Name })
		}
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("there is no fuzzer %s", strings.Join(unknown, ", "))
	}
	if len(all) == 0 {
		return nil, errors.New("there are no fuzzers")
	}
	slices.SortFunc(all, func(a, b fuzzer) int { return strings.Compare(a.String(), b.String()) })
	return all, nil
}

// Bounds of a corpus: it is read in each run of the tests, and by readers of the repository.
const (
	maxInputs = 24
	maxInput  = 4 << 10 // bytes
)

// check reports what is wrong with the corpora and the document.
func check(root string, all []fuzzer) error {
	text, err := os.ReadFile(filepath.Join(root, "docs", "fuzzing.md"))
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range all {
		inputs, err := f.inputs()
		if err != nil {
			return err
		}
		switch {
		case len(inputs) == 0:
			errs = append(errs, fmt.Errorf("%s has no corpus: make fuzz NAMES=%s", f, f.name))
		case len(inputs) > maxInputs:
			errs = append(errs, fmt.Errorf("%s has %d inputs, want at most %d", f, len(inputs), maxInputs))
		}
		for _, name := range inputs {
			info, err := os.Stat(name)
			if err != nil {
				return err
			}
			if info.Size() > maxInput {
				errs = append(errs, fmt.Errorf("%s: the input %s has %d bytes, want at most %d", f, filepath.Base(name), info.Size(), maxInput))
			}
		}
		if !strings.Contains(string(text), "| "+f.pkg+" | "+f.name+" |") {
			errs = append(errs, fmt.Errorf("docs/fuzzing.md has no row of %s: make fuzz-coverage", f))
		}
	}
	return errors.Join(errs...)
}

// abandoned names the corpora whose fuzzers were moved or removed.
func abandoned(ctx context.Context, root string, all []fuzzer) error {
	files, err := listed(ctx, root, "--cached", "--others", "--exclude-standard", "*/testdata/fuzz/*")
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, f := range all {
		known[filepath.ToSlash(filepath.Join(f.pkg, "testdata", "fuzz", f.name))] = true
	}
	var errs []error
	for _, file := range files {
		dir := path.Dir(file)
		if _, err := os.Stat(filepath.Join(root, file)); err == nil && !known[dir] {
			known[dir] = true
			errs = append(errs, fmt.Errorf("%s is the corpus of a fuzzer that does not exist: move or remove it", dir))
		}
	}
	return errors.Join(errs...)
}

// listed are the files that git ls-files names in dir with these arguments.
func listed(ctx context.Context, dir string, args ...string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"ls-files", "-z"}, args...)...)
	cmd.Dir = dir
	list, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	return strings.FieldsFunc(string(list), func(c rune) bool { return c == 0 }), nil
}

func goCommand() string {
	if name := os.Getenv("GO"); name != "" {
		return name
	}
	return "go"
}
