// Command platforms checks that packages compile for other systems, in seconds and without compiling them:
//
//	platforms GOOS/GOARCH… -- PACKAGE…
//
// It resolves the types of the packages, their tests and all that they import, from the source that go list names for the
// system. Bodies of functions are read in the packages alone. An error of a package is printed with its place, and the
// status is 1.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	split := slices.Index(os.Args, "--")
	if split < 2 || split == len(os.Args)-1 {
		fmt.Fprintln(os.Stderr, "usage: platforms GOOS/GOARCH… -- PACKAGE…")
		os.Exit(2)
	}
	failed := false
	for _, platform := range os.Args[1:split] {
		found, err := check(".", platform, os.Args[split+1:]...)
		if err != nil {
			fmt.Fprintf(os.Stderr, "platforms: %s: %v\n", platform, err)
			os.Exit(1)
		}
		for _, e := range found {
			failed = true
			fmt.Fprintf(os.Stderr, "%s: %v\n", platform, e)
		}
	}
	if failed {
		os.Exit(1)
	}
}

// check returns what keeps the packages that patterns name in dir from compiling for the platform, GOOS/GOARCH. The error is
// one of go list.
func check(dir, platform string, patterns ...string) ([]packages.Error, error) {
	system, architecture, _ := strings.Cut(platform, "/")
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	loaded, err := packages.Load(&packages.Config{
		Dir:   dir,
		Mode:  packages.LoadAllSyntax,
		Tests: true,
		Env:   append(os.Environ(), "GOOS="+system, "GOARCH="+architecture, "CGO_ENABLED=0"),
		ParseFile: func(files *token.FileSet, name string, source []byte) (*ast.File, error) {
			file, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
			if err == nil && !strings.HasPrefix(name, root+string(filepath.Separator)) {
				dropBodies(file)
			}
			return file, err
		},
	}, patterns...)
	if err != nil {
		return nil, err
	}
	var found []packages.Error
	for _, p := range loaded {
		// go test writes it.
		if strings.HasSuffix(p.PkgPath, ".test") {
			continue
		}
		for _, e := range p.Errors {
			// A file of a package is part of the package with its tests, too.
			if !slices.Contains(found, e) {
				found = append(found, e)
			}
		}
	}
	return found, nil
}

// dropBodies makes file declare its functions only, which is all that importers need.
func dropBodies(file *ast.File) {
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			f.Body = nil
		}
	}
}
