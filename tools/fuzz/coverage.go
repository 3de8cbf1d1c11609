package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// builder builds the tests of packages, and keeps those of the last one: fuzzers of one package follow one another.
type builder struct {
	tmp  string
	last string // the package and how its tests were built
}

func newBuilder() (*builder, error) {
	tmp, err := os.MkdirTemp("", "jorc-fuzz-")
	return &builder{tmp: tmp}, err
}

// close removes what was built.
func (b *builder) close() { _ = os.RemoveAll(b.tmp) }

func (b *builder) path(name string) string { return filepath.Join(b.tmp, name) }

// build builds the tests of f's package with the flags into a file of that name.
func (b *builder) build(ctx context.Context, f fuzzer, name string, flags ...string) error {
	if b.last == f.pkg+" "+name {
		return nil
	}
	cmd := exec.CommandContext(ctx, goCommand(), append(append([]string{"test", "-c", "-vet=off", "-o", b.path(name)}, flags...), "./"+f.pkg)...)
	cmd.Dir = f.root
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w: %s", err, output)
	}
	b.last = f.pkg + " " + name
	return nil
}

// block is a block of statements, as go test -coverprofile writes it.
type block struct {
	place      string // the file and where it begins and ends
	file       string
	line       int
	statements int
	times      int
}

// coverage runs the inputs of f whose names match, or all without a pattern, and returns which statements of the package
// they execute.
func (b *builder) coverage(ctx context.Context, f fuzzer, inputs string) ([]block, error) {
	if err := b.build(ctx, f, "cover.test", "-covermode=count", "-coverpkg=./"+f.pkg); err != nil {
		return nil, err
	}
	pattern := "^" + f.name + "$"
	if inputs != "" {
		pattern += "/^" + inputs + "$"
	}
	cmd := exec.CommandContext(ctx, b.path("cover.test"), "-test.run="+pattern, "-test.coverprofile="+b.path("profile"))
	cmd.Dir = f.dir()
	if output, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", pattern, err, output)
	}
	text, err := os.ReadFile(b.path("profile"))
	if err != nil {
		return nil, err
	}
	return profile(text)
}

// profile reads a coverage profile.
func profile(text []byte) ([]block, error) {
	var all []block
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Scan() // mode: count
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 {
			return nil, fmt.Errorf("line %q of a coverage profile", lines.Text())
		}
		file, place, _ := strings.Cut(fields[0], ":")
		begin, _, _ := strings.Cut(place, ".")
		b := block{place: fields[0], file: filepath.Base(file)}
		var errs [3]error
		b.line, errs[0] = strconv.Atoi(begin)
		b.statements, errs[1] = strconv.Atoi(fields[1])
		b.times, errs[2] = strconv.Atoi(fields[2])
		for _, err := range errs {
			if err != nil {
				return nil, err
			}
		}
		all = append(all, b)
	}
	return all, lines.Err()
}

// share is how many of some statements were executed.
type share struct{ executed, all int }

func (s share) String() string {
	if s.all == 0 {
		return "–"
	}
	return fmt.Sprintf("%d %%", (100*s.executed+s.all/2)/s.all)
}

// shares returns how many statements of the package were executed, and of the functions that were called at all.
func shares(dir string, blocks []block) (pkg, called share, err error) {
	functions := map[string]func(line int) int{} // by file: the first line of the function around a line
	of := map[string]share{}
	for _, b := range blocks {
		if functions[b.file] == nil {
			if functions[b.file], err = functionsOf(filepath.Join(dir, b.file)); err != nil {
				return pkg, called, err
			}
		}
		key := fmt.Sprint(b.file, " ", functions[b.file](b.line))
		s := of[key]
		s.all += b.statements
		if b.times > 0 {
			s.executed += b.statements
		}
		of[key] = s
	}
	for _, s := range of {
		pkg.executed, pkg.all = pkg.executed+s.executed, pkg.all+s.all
		if s.executed > 0 {
			called.executed, called.all = called.executed+s.executed, called.all+s.all
		}
	}
	return pkg, called, nil
}

func functionsOf(path string) (func(line int) int, error) {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return func(line int) int {
		for _, decl := range parsed.Decls {
			d, ok := decl.(*ast.FuncDecl)
			if ok && fset.Position(d.Pos()).Line <= line && line <= fset.Position(d.End()).Line {
				return fset.Position(d.Pos()).Line
			}
		}
		return 0
	}, nil
}
