package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jorc/jorc/internal/config"
)

// made returns a chapter of the reference that a test makes from the code, and
// fails when the file differs; with -update it is written.
func wantChapter(t *testing.T, name, want string) {
	t.Helper()
	file := filepath.Join("..", "..", "docs", "reference", name)
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s differs from the code: run 'make reference'", file)
	}
}

// cell is a text in a table of Markdown.
func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }

// code is a literal of the configuration, or words.
func code(s string) string {
	if s == "" || strings.Contains(s, " ") && !strings.ContainsAny(s[:1], "\"[{") || strings.Contains(s, "`") {
		return cell(s)
	}
	return "`" + cell(s) + "`"
}

// TestConfigurationChapter: docs/reference/configuration.md lists all settings.
func TestConfigurationChapter(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("# Configuration\n\nAll blocks and settings of `/etc/jorc/*.hcl` (or `*.json`), made from the code by `make reference`.\n" +
		"`jorc config explain NAME` prints the same on a host. A *duration* is a string such as `\"30s\"` or\n`\"1h30m\"`. " +
		"A relative path is relative to the directory of its file. Every setting exists since 0.1.0\nunless its row says otherwise.\n")
	for _, block := range config.Reference() {
		title := "The top of the files"
		if block.Name != "" {
			title = "`" + block.Name + after(" ", strings.ToUpper(quoteLabel(block.Label))) + "`"
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s", title, block.Doc)
		if in := places(block.In); in != "" {
			fmt.Fprintf(&b, " It stands %s.", in)
		}
		b.WriteString("\n")
		if len(block.Settings) == 0 {
			continue
		}
		b.WriteString("\n| setting | type | default | | example |\n|---|---|---|---|---|\n")
		for _, s := range block.Settings {
			doc := s.Doc
			if s.Since != "0.1.0" {
				doc += " Since " + s.Since + "."
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", s.Name, cell(s.Type), code(s.Default), cell(doc), code(s.Example))
		}
	}
	wantChapter(t, "configuration.md", b.String())
}

func quoteLabel(label string) string {
	if label == "" {
		return ""
	}
	return `"` + label + `"`
}

// places names the blocks around a block; nothing when it stands at the top only.
func places(in []string) string {
	if len(in) == 0 || len(in) == 1 && in[0] == "" {
		return ""
	}
	var all []string
	for _, name := range in {
		if name == "" {
			all = append(all, "at the top")
			continue
		}
		all = append(all, "in `"+name+"`")
	}
	return strings.Join(all, ", ")
}

// TestConfigExplain: what is printed for nothing, a block, a setting, and a name
// that does not exist.
func TestConfigExplain(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		line string
		code int
		want string
	}{
		{"config explain", 0, "template_options"},
		{"config explain template", 0, "on_edit"},
		{"config explain template.wait", 0, `wait = "50ms:2s"`},
		{"config explain cluster", 0, `"default"`},
		{"config explain template.wiat", 2, "template.wait"},
	} {
		got := jorc(t, nil, strings.Fields(test.line)...)
		if got.code != test.code || !strings.Contains(got.stdout+got.stderr, test.want) {
			t.Errorf("jorc %s: %+v, want exit %d and %q", test.line, got, test.code, test.want)
		}
	}
	got := jorc(t, nil, "config", "explain", "template.wait", "-o", "json")
	if got.code != 0 || !strings.Contains(got.stdout, `"name": "template.wait"`) {
		t.Errorf("as JSON: %+v", got)
	}
}

// rows returns the first cells of the tables of a chapter, without marks of code.
func rows(t *testing.T, name string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", name))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(string(data), -1) {
		all = append(all, m[1])
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// literals returns what pattern finds in the product's source files, each once.
func literals(t *testing.T, pattern string, dirs ...string) []string {
	t.Helper()
	var all []string
	expr := regexp.MustCompile(pattern)
	for _, dir := range dirs {
		err := filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") ||
				strings.Contains(path, "consultest") || strings.Contains(path, "fleettest") {
				return err
			}
			data, err := os.ReadFile(path)
			for _, m := range expr.FindAllStringSubmatch(string(data), -1) {
				all = append(all, m[1])
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// TestChaptersAreComplete: each chapter that is written by hand names exactly what
// the code has.
func TestChaptersAreComplete(t *testing.T) {
	t.Parallel()
	codes := []string{"128 + N"}
	for _, code := range literals(t, `(?m)^\texit\w+ += (\d+)`, "cmd/jorc") {
		if code != "128" {
			codes = append(codes, code)
		}
	}
	slices.Sort(codes)
	for _, test := range []struct {
		chapter string
		want    []string
	}{
		{"environment.md", slices.DeleteFunc(literals(t, `"((?:JORC|CONSUL|VAULT|AWS|NO)_[A-Z_]+[A-Z])=?"`, "cmd", "internal"), func(name string) bool {
			return name == "CONSUL_BIN" || // in a sentence, for jorc dev
				strings.HasPrefix(name, "JORC_TEST_") // of tests that run themselves as a child
		})},
		{"exit-codes.md", codes},
		{"http.md", slices.DeleteFunc(literals(t, `mux\.Handle(?:Func)?\("([^"]+)"`, "internal/web"), func(path string) bool {
			return path == "/{$}" // the page; "/" is what does not exist
		})},
	} {
		want := slices.Clone(test.want)
		slices.Sort(want)
		if diff := cmp.Diff(want, rows(t, test.chapter)); diff != "" {
			t.Errorf("docs/reference/%s (-code +chapter):\n%s", test.chapter, diff)
		}
	}
}
