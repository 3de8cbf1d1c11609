// Command licenses writes NOTICE, which lists the modules that the jorc program contains
// with the texts of their licenses, and the compressed copy that the program prints:
//
//	licenses [-check] ROOT
//
// The modules are those of all platforms that jorc is built for, from `go list`; the texts come
// from the module cache, and licensecheck names them. A module without a license, or with one that is not in
// allowed, is an error. With -check nothing is written, and files that differ are an error.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// platforms are those for which jorc is built.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "freebsd/amd64"}

// allowed are the licenses, by SPDX identifier, whose terms a program under Apache-2.0 meets with
// NOTICE: texts and copyright lines, and for MPL-2.0 where the source is.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", "Unicode-DFS-2016"}

// chosen are the licenses of modules that offer more than one, or whose file has another
// name, with the copyright lines of their source.
var chosen = map[string]struct {
	file      string
	copyright []string
}{
	"github.com/hashicorp/cronexpr": {"APLv2", []string{"Copyright 2013 Raymond Hill", "Modifications 2020 - HashiCorp"}},
}

// The files below the repository's root.
const (
	noticeFile   = "NOTICE"
	embeddedFile = "internal/licenses/NOTICE.gz"
)

func main() {
	check := flag.Bool("check", false, "write nothing; fail if a file differs")
	tags := flag.String("tags", "", "build `TAGS` of the program")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: licenses [-check] [-tags TAGS] ROOT")
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *tags, *check); err != nil {
		fmt.Fprintf(os.Stderr, "licenses: %v\n", err)
		os.Exit(1)
	}
}

func run(root, tags string, check bool) error {
	modules, err := linked(root, tags)
	if err != nil {
		return err
	}
	var problems []error
	for _, m := range modules {
		if err := m.read(); err != nil {
			problems = append(problems, err)
		}
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	text := notice(modules)
	if check {
		return compare(root, text)
	}
	packed, err := compressed(text)
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{noticeFile: text, embeddedFile: packed} {
		if err := os.WriteFile(filepath.Join(root, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// compare reports whether the files below root are made from text. The compressed
// bytes may differ between versions of Go.
func compare(root string, text []byte) error {
	got, err := os.ReadFile(filepath.Join(root, noticeFile))
	if err != nil {
		return err
	}
	if !bytes.Equal(got, text) {
		return fmt.Errorf("%s is not that of the modules which the program contains: run make notice", noticeFile)
	}
	packed, err := os.ReadFile(filepath.Join(root, embeddedFile))
	if err != nil {
		return err
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return fmt.Errorf("read %s: %w", embeddedFile, err)
	}
	if got, err = io.ReadAll(r); err != nil {
		return fmt.Errorf("read %s: %w", embeddedFile, err)
	}
	if !bytes.Equal(got, text) {
		return fmt.Errorf("%s differs from %s: run make notice", embeddedFile, noticeFile)
	}
	return nil
}

func compressed(text []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// module is something that the program contains, with its licenses.
type module struct {
	path, version string
	own           bool     // jorc itself, whose NOTICE is made here
	root          string   // where its files are
	dirs          []string // of the packages that the program contains
	names         []string // SPDX identifiers
	texts         []text
}

// text is one license, notice or grant of patents.
type text struct {
	copyright []string // its lines that name who holds the copyright
	body      string
}

// linked returns the modules of the program on all platforms, with jorc itself and Go first.
func linked(root, tags string) ([]*module, error) {
	found := map[string]*module{}
	var main *module
	for _, platform := range platforms {
		goos, goarch, _ := strings.Cut(platform, "/")
		cmd := exec.Command("go", "list", "-deps", "-tags", tags, "-json=Dir,Standard,Module", "./cmd/jorc")
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0", "GOWORK=off")
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("list the packages of the program for %s: %w", platform, err)
		}
		for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
			var p struct {
				Dir      string
				Standard bool
				Module   *struct {
					Path, Version, Dir string
					Main               bool
					Replace            *struct{ Path, Version string }
				}
			}
			if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("read the packages of the program for %s: %w", platform, err)
			}
			switch {
			case p.Standard:
				continue
			case p.Module == nil:
				return nil, fmt.Errorf("the package in %s belongs to no module", p.Dir)
			case p.Module.Main:
				main = &module{path: p.Module.Path, own: true, root: p.Module.Dir, dirs: []string{p.Module.Dir}}
				continue
			case p.Module.Replace != nil:
				p.Module.Path, p.Module.Version = p.Module.Replace.Path, p.Module.Replace.Version
			}
			m := found[p.Module.Path]
			if m == nil {
				m = &module{path: p.Module.Path, version: p.Module.Version, root: p.Module.Dir}
				found[m.path] = m
			}
			m.dirs = append(m.dirs, p.Dir)
		}
	}
	if main == nil {
		return nil, errors.New("the program contains no package of the main module")
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	dir := strings.TrimSpace(string(goroot))
	all := []*module{main, {path: "std (Go's standard library and runtime)", root: dir, dirs: []string{dir}}}
	var rest []*module
	for _, m := range found {
		rest = append(rest, m)
	}
	slices.SortFunc(rest, func(a, b *module) int { return strings.Compare(a.path, b.path) })
	return append(all, rest...), nil
}

var (
	licenseName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense)([.-].*)?$`)
	besideName  = regexp.MustCompile(`(?i)^(notice|patents|copyright)(\.(md|txt))?$`)
	goFile      = regexp.MustCompile(`\.go$`)
	holder      = regexp.MustCompile(`^\s*(Copyright|COPYRIGHT)(ed)? +(\(c\)|\(C\)|©|[0-9]{4}|by |IBM Corp)`)
)

// read finds the texts of m: in the directories of its packages, and from there up to its root.
func (m *module) read() error {
	dirs := map[string]bool{}
	for _, dir := range m.dirs {
		for ; ; dir = filepath.Dir(dir) {
			dirs[dir] = true
			if dir == m.root || len(dir) <= len(m.root) {
				break
			}
		}
	}
	var paths []string
	for dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("%s: %w", m.path, err)
		}
		for _, e := range entries {
			if name := e.Name(); !e.IsDir() && !goFile.MatchString(name) && (licenseName.MatchString(name) || !m.own && besideName.MatchString(name)) {
				paths = append(paths, filepath.Join(dir, name))
			}
		}
	}
	choice, isChosen := chosen[m.path]
	if isChosen {
		paths = []string{filepath.Join(m.root, choice.file)}
	}
	slices.Sort(paths)
	seen := map[string]bool{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("%s: %w", m.path, err)
		}
		names := 0
		if isChosen || licenseName.MatchString(filepath.Base(path)) {
			found, err := m.identify(path, data)
			if err != nil {
				return err
			}
			m.names, names = append(m.names, found...), len(found)
		}
		if t := split(string(data), names == 1); !seen[string(data)] {
			seen[string(data)] = true
			t.copyright = append(t.copyright, choice.copyright...)
			m.texts = append(m.texts, t)
		}
	}
	if len(m.names) == 0 {
		return fmt.Errorf("%s: no license in %s: %w", m.path, m.root, fs.ErrNotExist)
	}
	slices.Sort(m.names)
	m.names = slices.Compact(m.names)
	return nil
}

// identify returns what licensecheck calls the licenses in data.
func (m *module) identify(path string, data []byte) ([]string, error) {
	coverage := licensecheck.Scan(data)
	if len(coverage.Match) == 0 || coverage.Percent < 75 {
		return nil, fmt.Errorf("%s: %s is no license that is known (%.0f %% of it matches)", m.path, path, coverage.Percent)
	}
	var names []string
	for _, match := range coverage.Match {
		switch {
		case match.IsURL || slices.Contains(names, match.ID):
		case !slices.Contains(allowed, match.ID):
			return nil, fmt.Errorf("%s: %s is under %s, which tools/licenses does not allow: see what it asks for first", m.path, path, match.ID)
		default:
			names = append(names, match.ID)
		}
	}
	return names, nil
}

// split makes a text of a file. The copyright lines of a file that is one license stand apart, so that the body
// of a license that many modules have is written once.
func split(data string, apart bool) text {
	var t text
	var body []string
	for line := range strings.Lines(strings.ReplaceAll(data, "\r\n", "\n")) {
		line = strings.TrimRight(line, " \t\n\f")
		if apart && holder.MatchString(line) {
			t.copyright = append(t.copyright, strings.TrimSpace(line))
			continue
		}
		if line != "" || len(body) > 0 && body[len(body)-1] != "" {
			body = append(body, line)
		}
	}
	t.body = strings.Trim(strings.Join(body, "\n"), "\n")
	return t
}

// notice makes the text of NOTICE.
func notice(modules []*module) []byte {
	type group struct {
		body string
		of   []string
	}
	var groups []*group
	numbers := map[string]int{} // body with single spaces: its group, counted from 1
	rows := [][]string{{"MODULE", "VERSION", "LICENSE", "TEXTS"}}
	for _, m := range modules {
		var refs []string
		for _, t := range m.texts {
			key := strings.Join(strings.Fields(t.body), " ")
			if numbers[key] == 0 {
				groups = append(groups, &group{body: t.body})
				numbers[key] = len(groups)
			}
			g := groups[numbers[key]-1]
			g.of = append(g.of, m.path)
			for _, line := range t.copyright {
				g.of = append(g.of, "    "+line)
			}
			refs = append(refs, fmt.Sprint(numbers[key]))
		}
		version := m.version
		if version == "" {
			version = "-"
		}
		rows = append(rows, []string{m.path, version, strings.Join(m.names, " AND "), strings.Join(refs, ", ")})
	}
	var b bytes.Buffer
	b.WriteString(`jorc
Copyright 2026 The jorc authors

jorc is licensed under the Apache License, Version 2.0 (text 1 below). The program contains the modules of
this table, as their authors published them, each under its own license. The source code of a module
is at https://proxy.golang.org/MODULE/@v/VERSION.zip, with "!" and the small letter for each capital one.

`)
	widths := make([]int, 3)
	for _, row := range rows {
		for i := range widths {
			widths[i] = max(widths[i], len(row[i]))
		}
	}
	for _, row := range rows {
		fmt.Fprintf(&b, "%-*s  %-*s  %-*s  %s\n", widths[0], row[0], widths[1], row[1], widths[2], row[2], row[3])
	}
	for i, g := range groups {
		fmt.Fprintf(&b, "\n%s\nText %d, of:\n\n", strings.Repeat("=", 80), i+1)
		for _, line := range g.of {
			b.WriteString("  " + line + "\n")
		}
		b.WriteString("\n" + g.body + "\n")
	}
	return b.Bytes()
}
