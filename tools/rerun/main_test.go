package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// once is true when it is called for the first time.
const once = `
func once(t *testing.T) bool {
	f, err := os.OpenFile(os.Getenv("ONCE"), os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

func TestAlone(t *testing.T) {}
`

// gotest runs tools/gotest for a module with one package of that text and another that passes.
func gotest(t *testing.T, text, env string, flags ...string) (status int, output, report string) {
	t.Helper()
	module := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":          "module x\n\ngo 1.26.0\n",
		"a/a_test.go":     "package a\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n" + once + text,
		"good/ok_test.go": "package good\n\nimport \"testing\"\n\nfunc TestGood(t *testing.T) {}\n",
	} {
		name = filepath.Join(module, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	script, err := filepath.Abs("../gotest")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "report")
	cmd := exec.CommandContext(t.Context(), script, append([]string{"./good ./a", "-run", "^Test"}, flags...)...)
	cmd.Dir = module
	without := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "RERUN") })
	cmd.Env = append(without, env, "RERUN_REPORT="+file, "ONCE="+filepath.Join(t.TempDir(), "once"))
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	text2, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out), string(text2)
}

const flaky = `
func TestFlaky(t *testing.T) {
	t.Run("sub", func(t *testing.T) {
		if once(t) {
			t.Error("this once")
		}
	})
}
`

func TestGotest(t *testing.T) {
	t.Parallel()
	const again, reported = "RERUN=2", "x/a.TestFlaky: 1 of 2 runs failed, the first with"
	for name, c := range map[string]struct {
		text   string // of the package that is tested
		env    string
		flags  []string
		fails  bool
		output []string // what is printed
		report string   // its first line
	}{
		"all pass": {
			env:    again,
			output: []string{"PASS  good", "PASS  a"},
		},
		"strict": {
			text: flaky, fails: true,
			output: []string{"ok  \tx/good", "--- FAIL: TestFlaky", "this once", "FAIL\tx/a"},
		},
		"flaky": {
			text: flaky, env: again,
			output: []string{"PASS  good", "FAIL  a", "--- FAIL: TestFlaky/sub", "this once"},
			report: reported,
		},
		"no times": {
			text: flaky, env: "RERUN=0", fails: true,
			output: []string{"FAIL  a", "this once"},
		},
		"fails always": {
			text: flaky + `func TestBad(t *testing.T) { t.Error("always") }`, env: again, fails: true,
			output: []string{"FAIL  a", "--- FAIL: TestBad", "always"},
			report: reported,
		},
		"does not build": {
			text: `func TestBad(t *testing.T) { undefined() }`, env: again, fails: true,
			output: []string{"PASS  good", "undefined: undefined"},
		},
		"data race": {
			text: `func TestBad(t *testing.T) {
				if once(t) { n := 0; done := make(chan bool); go func() { n++; close(done) }(); n++; <-done }
			}`, env: again, flags: []string{"-race"}, fails: true,
			output: []string{"DATA RACE", "rerun aborted because previous run had a data race"},
		},
		"panic": {
			text: `func TestBad(t *testing.T) { if once(t) { panic("once") } }`, env: again, fails: true,
			output: []string{"panic: once", "rerun aborted because previous run had a suspected panic"},
		},
		"timeout": {
			text: `func TestBad(t *testing.T) { if once(t) { select {} } }`, env: again, flags: []string{"-timeout", "1s"}, fails: true,
			output: []string{"panic: test timed out", "rerun aborted"},
		},
		"ends the package": {
			text: `func TestBad(t *testing.T) { if once(t) { os.Exit(1) } }`, env: again, fails: true,
			output: []string{"x/a ended before x/a.TestBad did"},
		},
		"fails beside its tests": {
			text: `func TestMain(m *testing.M) { m.Run(); os.Exit(1) }`, env: again, fails: true,
			output: []string{"x/a failed, but none of its tests"},
		},
		"many failures": {
			text: `var first = once(nil)
				func TestBad1(t *testing.T) { if first { t.Fail() } }
				func TestBad2(t *testing.T) { if first { t.Fail() } }
				func TestBad3(t *testing.T) { if first { t.Fail() } }
				func TestBad4(t *testing.T) { if first { t.Fail() } }
				func TestBad5(t *testing.T) { if first { t.Fail() } }
				func TestBad6(t *testing.T) { if first { t.Fail() } }`, env: again, fails: true,
			output: []string{"number of test failures (6) exceeds maximum (5)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, output, report := gotest(t, c.text, c.env, c.flags...)
			if (status != 0) != c.fails {
				t.Errorf("exit status %d, want failure: %v", status, c.fails)
			}
			for _, want := range c.output {
				if !strings.Contains(output, want) {
					t.Errorf("%q is not printed", want)
				}
			}
			if first, rest, _ := strings.Cut(report, "\n"); first != c.report || (first != "") != strings.Contains(rest, "        a_test.go:") {
				t.Errorf("report:\n%s", report)
			}
			if t.Failed() {
				t.Log(output)
			}
		})
	}
}

func TestShortened(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("a\n", 300)
	if got := shortened(text); strings.Count(got, "    a\n") != mostLines || !strings.Contains(got, "    … 100 lines left out\n") {
		t.Errorf("shortened: %s", got)
	}
	if got, want := shortened("a\nb"), "    a\n    b\n"; got != want {
		t.Errorf("shortened: %q, want %q", got, want)
	}
}
