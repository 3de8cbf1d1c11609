package jorc_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestConsulVersions: docs/consul-versions.md has results of versions that tools/consul pins, of the newest
// a good one, and README.md names the versions that passed.
func TestConsulVersions(t *testing.T) {
	t.Parallel()
	read := func(file string) string {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var pinned []string
	files, err := filepath.Glob("tools/consul/*.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		m := regexp.MustCompile(`(?m)^\tgithub\.com/hashicorp/consul v(\S+)`).FindStringSubmatch(read(file))
		if m == nil {
			t.Fatalf("%s has no version of Consul", file)
		}
		if name := strings.TrimSuffix(filepath.Base(file), ".mod"); name != m[1] && name != "go" {
			t.Errorf("%s has Consul %s", file, m[1])
		}
		pinned = append(pinned, m[1])
	}
	slices.Sort(pinned)
	var passed []string
	for _, m := range regexp.MustCompile(`(?m)^\| (\d\S*) \| (\w+) \| (\d+) of (\d+) \| (.*) \| \d{4}-\d\d-\d\d \|$`).FindAllStringSubmatch(read("docs/consul-versions.md"), -1) {
		if !slices.Contains(pinned, m[1]) {
			t.Errorf("tools/consul does not have Consul %s", m[1])
		}
		if (m[3] == m[4] && m[3] != "0") != (m[5] == "passed") {
			t.Errorf("Consul %s, %s: %s of %s packages, %s", m[1], m[2], m[3], m[4], m[5])
		}
		if m[2] == "packages" && m[5] == "passed" {
			passed = append(passed, m[1])
		}
	}
	slices.Sort(passed)
	if newest := pinned[len(pinned)-1]; !slices.Contains(passed, newest) {
		t.Errorf("no passed run with the newest version: make test-consul VERSION=%s", newest)
	}
	text := strings.Join(passed, ", ")
	if i := strings.LastIndex(text, ", "); i > 0 {
		text = text[:i] + " and" + text[i+1:]
	}
	if !strings.Contains(read("README.md"), "["+text+"](docs/consul-versions.md)") {
		t.Errorf("README.md does not name the versions that passed: %s", text)
	}
	before := read("docs/consul-versions.md")
	for _, args := range [][]string{{"9.9.9"}, {}, {pinned[0], "all"}} {
		if out, err := exec.CommandContext(t.Context(), "tools/test-consul", args...).CombinedOutput(); err == nil || !strings.Contains(string(out), "test-consul: ") {
			t.Errorf("tools/test-consul %v: %v\n%s", args, err, out)
		}
	}
	if read("docs/consul-versions.md") != before {
		t.Error("a run that did not begin has a result")
	}
}
