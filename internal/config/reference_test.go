package config_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/configtest"
)

func loadText(t *testing.T, dir, text string) (*config.Config, error) {
	t.Helper()
	file := filepath.Join(dir, "jorc.hcl")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load([]string{file}, config.Options{})
}

// TestReferenceIsComplete: every block and setting that Load accepts is described,
// with an example that Load accepts, and a default that changes nothing when it is
// written.
func TestReferenceIsComplete(t *testing.T) {
	t.Parallel()
	for _, b := range config.Reference() {
		if b.Doc == "" {
			t.Errorf("block %q is not described", b.Name)
		}
		for _, s := range b.Settings {
			t.Run(b.Path(s), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				if s.Type == "" || s.Doc == "" || s.Since == "" {
					t.Fatalf("type %q, since %q, description %q", s.Type, s.Since, s.Doc)
				}
				switch {
				case s.Type == "refused":
					if _, err := loadText(t, dir, configtest.Written(b, s, `"x"`)); err == nil {
						t.Error("the reference says that it is refused, and it is accepted")
					}
					return
				case s.Name == "addr":
					return // another name of address; TestShortAddress
				case s.Example == "":
					t.Fatal("has no example")
				}
				if _, err := loadText(t, dir, configtest.Written(b, s, s.Example)); err != nil {
					t.Errorf("its example is refused: %v", err)
				}
				if !literal(s.Default) {
					return
				}
				with, err := loadText(t, dir, configtest.Written(b, s, s.Default))
				if err != nil {
					t.Fatalf("its default is refused: %v", err)
				}
				without, err := loadText(t, dir, configtest.Written(b, s, ""))
				if err != nil {
					t.Fatal(err)
				}
				if slices.Contains(appliedLater, b.Path(s)) {
					return
				}
				if with, without := effective(t, with), effective(t, without); with != without {
					t.Errorf("to write its default changes something:\n%s\n%s", with, without)
				}
			})
		}
	}
}

// literal reports whether a default is written as in a configuration, rather than
// described in words.
func literal(standard string) bool {
	return standard != "" && (strings.ContainsAny(standard[:1], `"[0123456789`) || standard == "true" || standard == "false") && !strings.Contains(standard, " for ")
}

// appliedLater are settings whose default another package applies.
var appliedLater = []string{"check.method", "check.status", "task.dir", "task.kill_grace", "task.retry_delay", "task.timeout", "template.left_delim", "template.right_delim"}

// effective is what a configuration means.
func effective(t *testing.T, c *config.Config) string {
	t.Helper()
	c.Warnings, c.DefaultVersionFile = nil, false
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestShortAddress: the older name "addr" means address, and both at once are an
// error.
func TestShortAddress(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, err := loadText(t, dir, "http { address = \"127.0.0.1:1\" }\ndns { address = \"127.0.0.1:2\" }\n")
	if err != nil || c.HTTP.Addr != "127.0.0.1:1" || c.DNS.Addr != "127.0.0.1:2" {
		t.Errorf("got %+v, %v", c, err)
	}
	if _, err := loadText(t, dir, "http {\n address = \"127.0.0.1:1\"\n addr = \"127.0.0.1:2\"\n}\n"); err == nil || !strings.Contains(err.Error(), "same setting") {
		t.Errorf("address and addr: got %v", err)
	}
	if _, err := loadText(t, dir, "dns { address = \"x:y:z\" }\n"); err == nil || !strings.Contains(err.Error(), "jorc.hcl:1") {
		t.Errorf("a wrong addr: got %v", err)
	}
}
