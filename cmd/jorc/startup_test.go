package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// startupFile lists the bytes that packages allocate when they are initialised, which
// each command pays for before it begins; -update writes it.
const startupFile = "startup.txt"

// startupMargin is what initialisation may allocate beyond the file: its maps have
// random layouts, and versions of Go differ.
const startupMargin = 64 << 10

// TestStartup: no package begins to do work when it is initialised.
func TestStartup(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), builtOnce(t), "version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var trace strings.Builder
	cmd.Stderr = &trace
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	got, sum := map[string]int{}, 0
	for _, m := range regexp.MustCompile(`(?m)^init (\S+) @.*, (\d+) bytes, \d+ allocs$`).FindAllStringSubmatch(trace.String(), -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		got[m[1]], sum = n, sum+n
	}
	if len(got) == 0 {
		t.Fatalf("no package in the trace: %s", trace.String())
	}
	file := filepath.Join("testdata", startupFile)
	if *update {
		var b strings.Builder
		fmt.Fprintf(&b, "%8d bytes\n", sum)
		for _, name := range slices.SortedFunc(maps.Keys(got), func(a, b string) int { return got[b] - got[a] }) {
			if got[name] >= 1<<10 {
				fmt.Fprintf(&b, "%8d %s\n", got[name], name)
			}
		}
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want, most := map[string]int{}, 0
	for line := range strings.Lines(string(data)) {
		var n int
		var name string
		if _, err := fmt.Sscan(line, &n, &name); err != nil {
			t.Fatalf("%s: %q: %v", file, line, err)
		}
		if name == "bytes" {
			most = n + startupMargin
		}
		want[name] = n
	}
	if sum <= most {
		return
	}
	worst := ""
	for name := range got {
		if worst == "" || got[name]-want[name] > got[worst]-want[worst] {
			worst = name
		}
	}
	t.Errorf("initialisation allocates %d bytes, want at most %d; %s grew most, from %d to %d: "+
		"make it at first use (sync.OnceValue, text.Pattern), or leave the package out", sum, most, worst, want[worst], got[worst])
}
