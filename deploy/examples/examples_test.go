package examples_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/config"
)

// TestExamplesAreValid: the configuration accepts all files of each example together, and
// the list of examples leads to each of them.
func TestExamplesAreValid(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	dirs, err := filepath.Glob("*/README.md")
	if err != nil || len(dirs) == 0 {
		t.Fatal(dirs, err)
	}
	for _, readme := range dirs {
		dir := filepath.Dir(readme)
		c, err := config.Load([]string{dir}, config.Options{})
		if err != nil {
			t.Errorf("%s: %v", dir, err)
			continue
		}
		if len(c.Warnings) > 0 || len(c.Services)+len(c.Templates) == 0 {
			t.Errorf("%s: %d services, %d templates, warnings %v", dir, len(c.Services), len(c.Templates), c.Warnings)
		}
		if !strings.Contains(string(list), "("+dir+")") {
			t.Errorf("README.md does not lead to %s", dir)
		}
	}
}
