package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheck says that a fault is found on the system that has it, in files and in tests, and not on another.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":         "module example.com/m\n\ngo 1.26\n",
		"m.go":           "package m\n\nimport \"os\"\n\nfunc Pid() int { return os.Getpid() }\n",
		"m_windows.go":   "package m\n\nimport \"syscall\"\n\nvar _ = syscall.Stat_t{}\n",
		"m_test.go":      "package m\n",
		"darwin_test.go": "//go:build darwin\n\npackage m\n\nvar _ int = Pid\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for platform, want := range map[string]string{
		"linux/amd64":   "",
		"windows/amd64": "m_windows.go:5:17: undefined: syscall.Stat_t",
		"darwin/arm64":  "darwin_test.go:5:13: cannot use Pid",
	} {
		found, err := check(dir, platform, "./...")
		if err != nil {
			t.Fatal(err)
		}
		if want == "" {
			if len(found) != 0 {
				t.Errorf("%s: found %v, want nothing", platform, found)
			}
			continue
		}
		if len(found) != 1 || !strings.Contains(found[0].Error(), want) {
			t.Errorf("%s: found %v, want one error with %q", platform, found, want)
		}
	}
}
