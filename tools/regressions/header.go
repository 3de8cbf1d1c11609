package main

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// fault is a patch that puts a fault back. Its header has these fields, each with a text that may continue on
// indented lines:
//
//	Wrong:    what was wrong
//	Seen:     what an operator saw
//	Found:    the attack, acceptance or test that shows it; where the history does not say so, what its test does
//	Repaired: the subject of the commit that repaired it
//	Test:     ./PACKAGE TestName [-race] [-tags=TAGS]
type fault struct {
	name                         string
	wrong, seen, found, repaired string
	test                         test
	diff                         string
}

// test names a test, and the flags of go test that it is built with.
type test struct {
	pkg, name string
	flags     []string
}

func (t test) String() string { return strings.Join(append([]string{t.pkg, t.name}, t.flags...), " ") }

// tags are the build tags of the test.
func (t test) tags() []string {
	for _, f := range t.flags {
		if tags, ok := strings.CutPrefix(f, "-tags="); ok {
			return strings.Split(tags, ",")
		}
	}
	return nil
}

func parse(name, text string) (fault, error) {
	f := fault{name: name}
	header, diff, ok := strings.Cut("\n"+text, "\n--- a/")
	if !ok {
		return f, fmt.Errorf("%s: no diff: a line '--- a/FILE' begins it", name)
	}
	f.diff = "--- a/" + diff
	var wanted string
	fields := map[string]*string{
		"Wrong": &f.wrong, "Seen": &f.seen, "Found": &f.found, "Repaired": &f.repaired, "Test": &wanted,
	}
	var (
		last *string
		errs []error
	)
	for line := range strings.Lines(header) {
		line = strings.TrimRight(line, "\n")
		key, value, isField := strings.Cut(line, ":")
		field := fields[key]
		switch {
		case strings.TrimSpace(line) == "":
			last = nil
		case isField && field != nil && *field == "":
			*field, last = strings.TrimSpace(value), field
		case strings.HasPrefix(line, " ") && last != nil:
			*last += " " + strings.TrimSpace(line)
		default:
			errs = append(errs, fmt.Errorf("%s: line of the header is no field: %q", name, line))
		}
	}
	for _, key := range []string{"Wrong", "Seen", "Found", "Repaired", "Test"} {
		if *fields[key] == "" {
			errs = append(errs, fmt.Errorf("%s: the header has no field %s", name, key))
		}
	}
	if wanted != "" {
		words := strings.Fields(wanted)
		if len(words) < 2 || !strings.HasPrefix(words[0], "./") || path.Clean(words[0]) != words[0][2:] || !strings.HasPrefix(words[1], "Test") {
			errs = append(errs, fmt.Errorf("%s: the field Test is %q, want ./PACKAGE TestName", name, wanted))
		} else {
			f.test = test{words[0], words[1], words[2:]}
		}
		for _, flag := range f.test.flags {
			if flag != "-race" && !strings.HasPrefix(flag, "-tags=") {
				errs = append(errs, fmt.Errorf("%s: the field Test has the flag %s, want -race or -tags=TAGS", name, flag))
			}
		}
		slices.Sort(f.test.flags)
	}
	return f, errors.Join(errs...)
}
