// Package migrate converts the configuration of consul-template and envconsul into
// jorc's. It reads HCL 1 and JSON with their positions and comments, and names each setting
// that it does not convert.
package migrate

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// Options are the inputs of a conversion besides the files and flags.
type Options struct {
	// Dir is the working directory of consul-template: jorc resolves relative
	// paths elsewhere, so that they are written as absolute ones. Empty: that of
	// this process.
	Dir string

	// ReadFile reads the sources of templates; nil: os.ReadFile.
	ReadFile func(name string) ([]byte, error)
}

// Result is a converted configuration.
type Result struct {
	Config    []byte    // HCL for jorc
	Templates int       // template blocks in Config
	Processes int       // process blocks in Config
	Findings  []Finding // in the order of the files
}

// Lost reports whether a setting has no equivalent.
func (r *Result) Lost() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Kind == NoEquivalent })
}

// Kind is the class of a Finding.
type Kind string

// Classes of findings.
const (
	NoEquivalent Kind = "no equivalent" // what the setting did has to be done in another way
	NotNeeded    Kind = "not needed"    // jorc behaves like that without a setting, or a later setting wins
	Check        Kind = "check"         // converted; the value may mean something else than it seems to
)

// Finding is what an operator should know about one setting. It contains no
// secret.
type Finding struct {
	At      Position
	Setting string // such as "consul.auth.username"
	Kind    Kind
	Reason  string
}

// String is "file:line: setting: kind: reason".
func (f Finding) String() string {
	return fmt.Sprintf("%s: %s: %s: %s", f.At, f.Setting, f.Kind, f.Reason)
}

// Position is the place of a setting.
type Position struct {
	File  string // empty: the setting is a flag
	Line  int
	Flag  string // such as "-consul-addr"
	order int    // of the file or flag on the command line
}

func (p Position) String() string {
	if p.File == "" {
		return p.Flag
	}
	return p.File + ":" + strconv.Itoa(p.Line)
}

// ErrInput is wrapped by errors in the input: files that cannot be read or
// parsed, and unknown flags.
var ErrInput = errors.New("invalid configuration")

// ConsulTemplate converts the configuration that consul-template reads from files,
// directories and its own command line flags. Later files override earlier ones,
// and flags override files, as in consul-template.
func ConsulTemplate(paths, flags []string, o Options) (*Result, error) {
	line, err := parseFlags(flags)
	if err != nil {
		return nil, err
	}
	return convert(consulTemplate, paths, line, o)
}

func convert(t *tool, paths []string, line commandLine, o Options) (*Result, error) {
	if o.ReadFile == nil {
		o.ReadFile = os.ReadFile
	}
	if o.Dir == "" {
		dir, err := os.Getwd()
		if err != nil {
			return nil, fmt.Errorf("find the working directory: %w", err)
		}
		o.Dir = dir
	}
	c := newConverter(t, o)
	for _, path := range append(slices.Clone(paths), line.config...) {
		files, err := expand(path)
		if err != nil {
			return nil, err
		}
		for _, name := range files {
			if err := c.file(name); err != nil {
				return nil, err
			}
		}
	}
	c.addFlags(line.settings)
	return c.convert()
}

// file reads one file and adds its settings.
func (c *converter) file(name string) error {
	src, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInput, err)
	}
	nodes, err := parseFile(name, src)
	if err != nil {
		return err
	}
	c.addFile(nodes)
	return nil
}

// expand returns the files of a path: in a directory all of them, at any depth, in
// lexical order.
func expand(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	err = filepath.Walk(path, func(name string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			files = append(files, name)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	return files, nil
}

// sorted are findings in the order of their positions.
func sorted(all []Finding) []Finding {
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.At.order, b.At.order), cmp.Compare(a.At.Line, b.At.Line))
	})
	return slices.Compact(all)
}
