package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// module is a repository with one package, a test that notices a wrong sum, and one that notices nothing.
var module = map[string]string{
	"go.mod": "module example.com/m\n\ngo 1.24\n",
	"m/m.go": "package m\n\n// Sum adds.\nfunc Sum(a, b int) int {\n\treturn a + b\n}\n",
	"m/m_test.go": `package m

import "testing"

func TestSum(t *testing.T) {
	if got := Sum(1, 2); got != 3 {
		t.Errorf("1 + 2 is %d", got)
	}
}

func TestNothing(t *testing.T) { Sum(1, 2) }

func TestSkipped(t *testing.T) { t.Skip("not here") }

func TestRed(t *testing.T) { t.Error("always") }

func TestSub(t *testing.T) {
	t.Run("of two", func(t *testing.T) { TestSum(t) })
	t.Run("of none", func(*testing.T) {})
}
`,
	"m/slow_test.go": "//go:build slow\n\npackage m\n\nimport \"testing\"\n\nfunc TestSlow(t *testing.T) { TestSum(t) }\n",
}

// Diffs of m/m.go.
const (
	wrongSum = "--- a/m/m.go\n+++ b/m/m.go\n@@ -5,1 +5,1 @@ func Sum\n-\treturn a + b\n+\treturn a - b\n"
	panics   = "--- a/m/m.go\n+++ b/m/m.go\n@@ -5,1 +5,1 @@ func Sum\n-\treturn a + b\n+\tpanic(\"no sum\")\n"
	noBuild  = "--- a/m/m.go\n+++ b/m/m.go\n@@ -5,1 +5,1 @@ func Sum\n-\treturn a + b\n+\treturn a + c\n"
	moved    = "--- a/m/m.go\n+++ b/m/m.go\n@@ -5,1 +5,1 @@ func Sum\n-\treturn a * b\n+\treturn a - b\n"
)

// repository makes a repository of the module and of patches, NAME → text.
func repository(t *testing.T, patches map[string]string) string {
	t.Helper()
	root := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range module {
		write(name, text)
	}
	for name, text := range patches {
		write("regressions/"+name+".patch", text)
	}
	if output, err := exec.Command("git", "-C", root, "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("git init: %v: %s", err, output)
	}
	return root
}

// patch is a complete patch with a field Test.
func patch(test, diff string) string {
	// Diffs of the repository have a line of context; those of the tests are shorter.
	return "Wrong: the sum is\n    a difference\nSeen: wrong sums\nFound: a review\nRepaired: m: sums\nTest: " + test + "\n\n" + withContext(diff)
}

// withContext adds the lines around the changed one.
func withContext(diff string) string {
	diff = strings.Replace(diff, "@@ -5,1 +5,1 @@", "@@ -4,3 +4,3 @@", 1)
	head, body, _ := strings.Cut(diff, "func Sum\n")
	return head + "func Sum\n func Sum(a, b int) int {\n" + body + " }\n"
}

// TestProve plants patches that no test notices, that do not build, and others.
func TestProve(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, patch  string
		proven       bool
		want, reason string // in the row of the table
	}{
		{"red", patch("./m TestSum", wrongSum), true, "passes    fails", ""},
		{"red-subtest", patch("./m TestSub/of_two", wrongSum), true, "passes    fails", ""},
		{"red-with-tags", patch("./m TestSlow -tags=slow", wrongSum), true, "passes    fails", ""},
		{"panic", patch("./m TestSum", panics), true, "passes    panics", ""},
		{"green", patch("./m TestNothing", wrongSum), false, "passes    passes", "NOT PROVEN: the test passes"},
		{"green-subtest", patch("./m TestSub/of_none", wrongSum), false, "passes    passes", "NOT PROVEN: the test passes"},
		{"skipped", patch("./m TestSkipped", wrongSum), false, "does not run", "NOT PROVEN: the test is skipped"},
		{"always-red", patch("./m TestRed", wrongSum), false, "fails     fails", "NOT PROVEN: m_test.go:"},
		{"does-not-build", patch("./m TestSum", noBuild), false, "does not build", "undefined: c"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			root := repository(t, map[string]string{test.name: test.patch})
			var out strings.Builder
			err := run(t.Context(), []string{"-root", root, "-write", filepath.Join(root, "result.md")}, &out)
			if (err == nil) != test.proven || err != nil && !strings.Contains(err.Error(), "1 of 1 patches are not proven: "+test.name) {
				t.Errorf("error %v, want proven %v\n%s", err, test.proven, &out)
			}
			if text := out.String(); !strings.Contains(text, test.want) || !strings.Contains(text, test.reason) {
				t.Errorf("output without %q and %q:\n%s", test.want, test.reason, text)
			}
			written, err := os.ReadFile(filepath.Join(root, "result.md"))
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(written), "1 of 1 faults are proven") != test.proven || !strings.Contains(string(written), "| the sum is a difference | wrong sums | a review |") {
				t.Errorf("the document:\n%s", written)
			}
			source, err := os.ReadFile(filepath.Join(root, "m/m.go"))
			if err != nil || string(source) != module["m/m.go"] {
				t.Errorf("the tree was changed: %v\n%s", err, source)
			}
		})
	}
}

// TestCheck: what is wrong with a patch is reported without a test being run.
func TestCheck(t *testing.T) {
	t.Parallel()
	good := patch("./m TestSum", wrongSum)
	for _, test := range []struct{ name, patch, want string }{
		{"good", good, ""},
		{"moved", patch("./m TestSum", moved), "moved does not apply: "},
		{"no-diff", strings.SplitAfter(good, "TestSum\n")[0], "no-diff: no diff"},
		{"no-finder", strings.Replace(good, "Found: a review\n", "", 1), "no-finder: the header has no field Found"},
		{"no-words", strings.Replace(good, "Found: a review\n", "Found:\n", 1), "no-words: the header has no field Found"},
		{"other-line", "Ann wrote this.\n" + good, `other-line: line of the header is no field: "Ann wrote this."`},
		{"no-test", patch("./m TestGone", wrongSum), "no-test: ./m has no test TestGone"},
		{"no-package", patch("./n TestSum", wrongSum), "no-package: there is no package ./n"},
		{"no-tags", patch("./m TestSlow", wrongSum), "no-tags: ./m has no test TestSlow"},
		{"tags", patch("./m TestSlow -tags=slow", wrongSum), ""},
		{"flag", patch("./m TestSum -count=9", wrongSum), "flag: the field Test has the flag -count=9"},
		{"no-name", patch("./m", wrongSum), `no-name: the field Test is "./m"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			root := repository(t, map[string]string{test.name: test.patch, "another": good})
			var out strings.Builder
			err := run(t.Context(), []string{"-root", root, "-check"}, &out)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error %v, want %q", err, test.want)
			}
			if out.Len() > 0 {
				t.Errorf("a test was run:\n%s", &out)
			}
		})
	}
}

// TestNames: patches are chosen by their names, and a name without a patch is an error.
func TestNames(t *testing.T) {
	t.Parallel()
	root := repository(t, map[string]string{"a": patch("./m TestSum", wrongSum), "b": patch("./m TestNothing", wrongSum)})
	var out strings.Builder
	if err := run(t.Context(), []string{"-root", root, "a"}, &out); err != nil || strings.Contains(out.String(), "TestNothing") {
		t.Errorf("one of two: %v\n%s", err, &out)
	}
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"c"}, "has no patch c"},
		{[]string{"-root", filepath.Join(root, "m")}, "has no patch"},
	} {
		if err := run(t.Context(), append([]string{"-root", root}, test.args...), &out); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: error %v, want %q", test.args, err, test.want)
		}
	}
}

// TestRowsStay: the document keeps the rows of patches that are not tried again.
func TestRowsStay(t *testing.T) {
	t.Parallel()
	root := repository(t, map[string]string{"a": patch("./m TestSum", wrongSum), "b": patch("./m TestSub", wrongSum)})
	file := filepath.Join(root, "result.md")
	for _, step := range []struct{ name, want string }{
		{"a", "`./m TestSub` | **not proven**: not tried |\n\n1 of 2 faults are proven.\n"},
		{"b", "`./m TestSub` | fails |\n\n2 of 2 faults are proven.\n"},
	} {
		var out strings.Builder
		if err := run(t.Context(), []string{"-root", root, "-write", file, step.name}, &out); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil || !strings.HasSuffix(string(text), step.want) || !strings.Contains(string(text), "`./m TestSum` | fails |\n") {
			t.Errorf("after %s: %v, want %q at the end:\n%s", step.name, err, step.want, text)
		}
	}
}

// TestInterrupted: the end of the context ends a run without a result.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	root := repository(t, map[string]string{"a": patch("./m TestSum", wrongSum)})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out strings.Builder
	if err := run(ctx, []string{"-root", root}, &out); err == nil || strings.Contains(out.String(), "TestSum  ") {
		t.Errorf("error %v\n%s", err, &out)
	}
}
