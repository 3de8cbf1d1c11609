package templates_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/replace"
	"github.com/jorc/jorc/templates"
)

// TestExamples: every template has an example that the configuration accepts
// and that names the shipped file; so does the example in its header.
func TestExamples(t *testing.T) {
	t.Parallel()
	examples, err := fs.Glob(templates.FS, "examples/*.hcl")
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, name := range examples {
		shown = append(shown, parseExample(t, name, text(t, name)))
	}
	names, err := fs.Glob(templates.FS, "*.ctmpl")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !slices.Contains(shown, name) {
			t.Errorf("%s has no example; there are those of %v", name, shown)
		}
		_, header, found := strings.Cut(text(t, name), "\n  template \"")
		header, _, closed := strings.Cut(header, "\n  }\n")
		if !found || !closed {
			t.Errorf("%s: its header has no template block", name)
			continue
		}
		if got := parseExample(t, name, "template \""+header+"\n}\n"); got != name {
			t.Errorf("%s: its header shows %s", name, got)
		}
	}
}

// parseExample loads a configuration with one template and gives the name of
// the template's file.
func parseExample(t *testing.T, name, hcl string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "example.hcl")
	if err := os.WriteFile(file, []byte(hcl), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load([]string{file}, config.Options{})
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return ""
	}
	if len(c.Templates) != 1 || len(c.Warnings) > 0 {
		t.Errorf("%s: %d templates, warnings %v; want one without", name, len(c.Templates), c.Warnings)
		return ""
	}
	one := c.Templates[0]
	if err := replace.CheckArgs(one.Check); err != nil {
		t.Errorf("%s: check: %v", name, err)
	}
	if len(one.Check) > 0 && !strings.Contains(strings.Join(one.Check, " "), "{{.Staged}}") {
		t.Errorf("%s: check %q does not look at the staged file", name, one.Check)
	}
	return path.Base(one.Source)
}
