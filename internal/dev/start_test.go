package dev

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/config"
)

func script(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFindConsul(t *testing.T) {
	dir, bare, onPath := t.TempDir(), t.TempDir(), t.TempDir()
	beside := script(t, dir, "consul", "")
	path := script(t, onPath, "consul", "")
	link := filepath.Join(bare, "jorc")
	if err := os.Symlink(filepath.Join(dir, "jorc"), link); err != nil {
		t.Fatal(err)
	}
	script(t, dir, "jorc", "")
	for _, test := range []struct{ name, variable, self, path, want string }{
		{"variable", path, filepath.Join(dir, "jorc"), onPath, path},
		{"beside", "", filepath.Join(dir, "jorc"), onPath, beside},
		{"beside what a link leads to", "", link, bare, beside},
		{"PATH", "", filepath.Join(bare, "other"), onPath, path},
	} {
		t.Setenv("PATH", test.path)
		if got, err := FindConsul(test.variable, test.self); got != test.want || err != nil {
			t.Errorf("%s: got %q, %v; want %q", test.name, got, err, test.want)
		}
	}
	t.Setenv("PATH", bare)
	if _, err := FindConsul("", filepath.Join(bare, "other")); !errors.Is(err, ErrNoConsul) || !strings.Contains(err.Error(), "CONSUL_BIN") {
		t.Errorf("none: got %v", err)
	}
	if _, err := FindConsul(filepath.Join(bare, "absent"), ""); err == nil || !strings.Contains(err.Error(), "CONSUL_BIN="+bare) || !strings.Contains(err.Error(), "make consul") {
		t.Errorf("wrong variable: got %v", err)
	}
}

// TestCannotStart: the error says what Consul said, and nothing is left.
func TestCannotStart(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	for _, test := range []struct{ text, want string }{
		{"echo bad luck; exit 3\n", "exit status 3; its log ends with: bad luck"},
		{"echo 'bind: address already in use'; exit 1\n", "within 10 tries: " + errPortTaken.Error()},
	} {
		err := Run(t.Context(), Options{Consul: script(t, t.TempDir(), "consul", test.text)})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want %s", err, test.want)
		}
	}
	if left, err := os.ReadDir(dir); len(left) > 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestQuoting: names of directories survive HCL and the shell.
func TestQuoting(t *testing.T) {
	t.Parallel()
	odd := `/a "b" ${c} %{d} 'e' \f`
	file := filepath.Join(t.TempDir(), "x.hcl")
	if err := os.WriteFile(file, []byte("state_dir = "+hclString(odd)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := config.Load([]string{file}, config.Options{})
	if err != nil || got.StateDir != odd {
		t.Errorf("got %v, %v", got, err)
	}
	if got, want := Quoted("/plain-1.txt", `it's`), `/plain-1.txt 'it'\''s'`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
