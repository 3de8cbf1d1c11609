package main

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// check reports what is wrong with the faults without running a test.
func check(ctx context.Context, root string, faults []fault) error {
	var errs []error
	for _, f := range faults {
		if err := apply(ctx, root, f, "--check"); err != nil {
			errs = append(errs, err)
		}
		if err := exists(root, f.test); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.name, err))
		}
	}
	return errors.Join(errs...)
}

// apply applies the diff of the fault to the tree.
func apply(ctx context.Context, root string, f fault, args ...string) error {
	cmd := exec.CommandContext(ctx, "git", append([]string{"apply", "--whitespace=nowarn"}, args...)...)
	cmd.Dir = root
	// Within a repository git leaves out, without a word, what is outside of the current directory.
	abs, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(abs))
	cmd.Stdin = strings.NewReader(f.diff)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s does not apply: %w: %s", f.name, err, strings.TrimSpace(string(output)))
	}
	return nil
}

// exists returns an error unless the package has the test under the test's build tags.
func exists(root string, t test) error {
	name, _, _ := strings.Cut(t.name, "/")
	dir := filepath.Join(root, t.pkg)
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no package %s", t.pkg)
	} else if err != nil {
		return err
	}
	constraints := build.Default
	constraints.BuildTags = t.tags()
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		if built, err := constraints.MatchFile(dir, file.Name()); err != nil {
			return err
		} else if !built {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, file.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range parsed.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == name {
				return nil
			}
		}
	}
	return fmt.Errorf("%s has no test %s with the flags %q", t.pkg, name, t.flags)
}
