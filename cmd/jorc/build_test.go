package main

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// buildDir holds the binary that builtOnce made; TestMain removes it.
var (
	buildDir string
	builtErr error
	built    sync.Once
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == guardArg { // it is its own child
		os.Exit(guard(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == processGuardArg {
		os.Exit(guardProcess(os.Args[2:]))
	}
	// Most tests wait for processes and for Consul, so that more than one per
	// processor can run.
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	code := consultest.Main(m)
	if buildDir != "" {
		_ = os.RemoveAll(buildDir)
	}
	os.Exit(code)
}

// builtOnce returns the path of a jorc that `make build` made.
func builtOnce(t *testing.T) string {
	t.Helper()
	built.Do(func() {
		if buildDir, builtErr = os.MkdirTemp("", "jorc-build-"); builtErr == nil {
			builtErr = makeBuild(buildDir)
		}
	})
	if builtErr != nil {
		t.Fatal(builtErr)
	}
	return filepath.Join(buildDir, "jorc")
}

type makeError struct {
	err    error
	output string
}

func (e *makeError) Error() string { return "make build: " + e.err.Error() + "\n" + e.output }

func makeBuild(dir string) error {
	cmd := exec.Command("make", "-s", "-C", filepath.Join("..", ".."), "build", "BIN="+dir,
		"VERSION=v9.8.7", "COMMIT=0123456789ab", "DATE=2026-01-02T03:04:05Z")
	if out, err := cmd.CombinedOutput(); err != nil {
		return &makeError{err, string(out)}
	}
	return nil
}

// TestStamp: make build stamps the version, and the same commit gives the same
// static binary.
func TestStamp(t *testing.T) {
	t.Parallel()
	program := builtOnce(t)
	out, err := exec.CommandContext(t.Context(), program, "version", "-o", "json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var got build
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	want := build{"v9.8.7", "0123456789ab", "2026-01-02T03:04:05Z", runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}

	again := t.TempDir()
	if err := makeBuild(again); err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(filepath.Join(again, "jorc"))
	if err != nil {
		t.Fatal(err)
	}
	if most := 34 << 20; len(first) > most {
		t.Errorf("the binary has %d bytes, want at most %d", len(first), most)
	}
	if !bytes.Equal(first, second) {
		t.Error("two builds of the same commit differ")
	}

	file, err := elf.NewFile(bytes.NewReader(first))
	if err != nil {
		t.Fatal(err)
	}
	if libraries, _ := file.ImportedLibraries(); len(libraries) > 0 || file.Section(".interp") != nil {
		t.Errorf("not static: needs %v", libraries)
	}
}

// TestProgram: exit codes and streams of the program itself.
func TestProgram(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		{[]string{"version"}, 0, "jorc v9.8.7", ""},
		{[]string{"nosuch"}, exitUsage, "", `jorc: unknown command "nosuch"`},
	} {
		var stdout, stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), builtOnce(t), test.args...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		_ = cmd.Run()
		if got := cmd.ProcessState.ExitCode(); got != test.code ||
			!strings.HasPrefix(stdout.String(), test.stdout) || !strings.HasPrefix(stderr.String(), test.stderr) {
			t.Errorf("jorc %q: got %d, %q, %q", test.args, got, stdout.String(), stderr.String())
		}
	}
}
