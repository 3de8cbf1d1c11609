package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// module is a repository whose fuzzer reaches one of two branches by its seed, and the other by the input "b".
var module = map[string]string{
	"go.mod": "module example.com/fuzz/m\n\ngo 1.24\n",
	"m/m.go": `package m

// Parse has a branch for b.
func Parse(s string) int {
	if s == "b" {
		return 2
	}
	return 1
}

// Other is not called by the fuzzer.
func Other() int {
	a := 1
	a++
	return a
}
`,
	"m/m_test.go": `package m

import "testing"

func FuzzParse(f *testing.F) {
	f.Add("a")
	f.Fuzz(func(t *testing.T, s string) {
		if Parse(s) == 0 {
			t.Error("0")
		}
	})
}
`,
	"docs/fuzzing.md": "| m | FuzzParse |",
}

// input is a file of a corpus.
func input(s string) string { return "go test fuzz v1\nstring(\"" + s + "\")\n" }

// repository makes a repository of the module and of other files.
func repository(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for _, all := range []map[string]string{module, files} {
		for name, text := range all {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if output, err := exec.Command("git", "-C", root, "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("git init: %v: %s", err, output)
	}
	return root
}

const corpus = "m/testdata/fuzz/FuzzParse/"

func TestCheck(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for i := range maxInputs + 1 {
		many[corpus+strings.Repeat("x", i+1)] = input("x")
	}
	for _, test := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"good", map[string]string{corpus + "b": input("b")}, ""},
		{"no corpus", nil, "m FuzzParse has no corpus"},
		{"too many", many, "m FuzzParse has 25 inputs, want at most 24"},
		{"too long", map[string]string{corpus + "b": input(strings.Repeat("b", maxInput))}, "the input b has 4123 bytes"},
		{"no fuzzer", map[string]string{corpus + "b": input("b"), "m/testdata/fuzz/FuzzGone/b": input("b")}, "m/testdata/fuzz/FuzzGone is the corpus of a fuzzer that does not exist"},
		{"no row", map[string]string{corpus + "b": input("b"), "docs/fuzzing.md": "| m | FuzzOther |"}, "docs/fuzzing.md has no row of m FuzzParse"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			err := run(t.Context(), []string{"-root", repository(t, test.files), "-check"}, nil)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// TestGrow: inputs that add nothing go, unless git knows them.
func TestGrow(t *testing.T) {
	t.Parallel()
	root := repository(t, map[string]string{
		corpus + "b": input("b"), corpus + "like-a": input("c"), corpus + "known": input("known"), corpus + "long": input(strings.Repeat("b", maxInput)),
	})
	if output, err := exec.Command("git", "-C", root, "add", corpus+"known").CombinedOutput(); err != nil {
		t.Fatalf("git add: %v: %s", err, output)
	}
	var out strings.Builder
	if err := run(t.Context(), []string{"-root", root, "-grow", "1x", "FuzzParse"}, &out); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"b": true, "known": true, "like-a": false, "long": false} {
		if _, err := os.Stat(filepath.Join(root, corpus, name)); (err == nil) != want {
			t.Errorf("the input %s: %v, want it kept: %v\n%s", name, err, want, &out)
		}
	}
}

// TestWrite: the document has the share of the functions that the fuzzer calls, and of the package.
func TestWrite(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, input, want string }{
		{"seed alone", "c", "| m | FuzzParse | 1 | 28 | 67 % | 33 % |"},
		{"with the other branch", "b", "| m | FuzzParse | 1 | 28 | 100 % | 50 % |"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			root := repository(t, map[string]string{corpus + "x": input(test.input)})
			file := filepath.Join(root, "out.md")
			var out strings.Builder
			if err := run(t.Context(), []string{"-root", root, "-write", file}, &out); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(file)
			if err != nil || !strings.Contains(string(text), test.want) || !strings.Contains(string(text), "1 fuzzers, 1 inputs") {
				t.Errorf("%v, want %q:\n%s", err, test.want, text)
			}
		})
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	root := repository(t, nil)
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"-check", "FuzzNothing"}, "there is no fuzzer FuzzNothing"},
		{[]string{"-write", "x", "FuzzParse"}, "names to -grow alone"},
		{nil, "give one of"},
	} {
		if err := run(t.Context(), append([]string{"-root", root}, test.args...), nil); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: error %v, want %q", test.args, err, test.want)
		}
	}
}
