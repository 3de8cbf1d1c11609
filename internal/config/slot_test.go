package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/jorc/jorc/internal/config"
)

func TestMaxParallel(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]int{"": -1, "max_parallel = 0": 0, "max_parallel = 3": 3} {
		path := filepath.Join(t.TempDir(), "jorc.hcl")
		text := "template \"t\" {\ncontents = \"x\"\ndestination = \"/tmp/x\"\nslot = \"s\"\n" + line + "\n}\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load([]string{path}, config.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Templates[0].MaxParallel; got != want {
			t.Errorf("with %q: %d; want %d", line, got, want)
		}
	}
}
