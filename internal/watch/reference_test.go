package watch_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFunctionsChapter: docs/reference/functions.md names the functions of
// consul-template and jorc's own, each once.
func TestFunctionsChapter(t *testing.T) {
	t.Parallel()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/hashicorp/consul-template").Output()
	if err != nil {
		t.Fatal(err)
	}
	own, err := filepath.Glob("funcs*.go")
	if err != nil {
		t.Fatal(err)
	}
	own = slices.DeleteFunc(own, func(file string) bool { return strings.HasSuffix(file, "_test.go") })
	want := names(t, `"(\w+)": +\w`, append(own, filepath.Join(strings.TrimSpace(string(dir)), "template", "template.go"))...)
	want = slices.DeleteFunc(want, func(name string) bool { return strings.HasPrefix(name, "sprig_") })
	if diff := cmp.Diff(want, names(t, "(?m)^\\| `(\\w+)`", filepath.Join("..", "..", "docs", "reference", "functions.md"))); diff != "" {
		t.Errorf("docs/reference/functions.md (-code +chapter):\n%s", diff)
	}
}

// names returns what pattern finds in files, sorted, each once.
func names(t *testing.T, pattern string, files ...string) []string {
	t.Helper()
	var all []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(data), -1) {
			all = append(all, m[1])
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
