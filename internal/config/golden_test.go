package config_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jorc/jorc/internal/config"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares got with a file below testdata, or writes it there.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (run the test with -update)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// inputs are the files and directories of a directory that have no golden
// file's name. It changes into the directory so that messages do not depend
// on where the tests run.
func inputs(t *testing.T, dir string) []string {
	t.Helper()
	t.Chdir(dir)
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".golden" {
			names = append(names, e.Name())
		}
	}
	return names
}

func checkError(t *testing.T, name string, err error) {
	t.Helper()
	var e *config.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v (%T), want a *config.Error", err, err)
	}
	if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "11111111") {
		t.Errorf("the error shows a secret:\n%v", err)
	}
	for _, p := range e.Problems {
		if p.File == "" || p.Line < 1 || p.Column < 1 || p.Excerpt == "" || p.Message == "" {
			t.Errorf("problem without place or excerpt: %+v", p)
		}
	}
	golden(t, name+".golden", err.Error()+"\n")
}

func TestLoadErrors(t *testing.T) {
	for _, name := range inputs(t, "../../testdata/config/errors") {
		t.Run(name, func(t *testing.T) {
			_, err := config.Load([]string{name}, config.Options{})
			checkError(t, name, err)
		})
	}
}

func TestServiceFileErrors(t *testing.T) {
	for _, name := range inputs(t, "../../testdata/config/services/errors") {
		t.Run(name, func(t *testing.T) {
			_, err := config.ParseServiceFile(name)
			checkError(t, name, err)
		})
	}
}
