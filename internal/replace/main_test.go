package replace

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// TestMain lets the test binary be its own child: one that dies at a step, or
// one that may write only small files.
func TestMain(m *testing.M) {
	if os.Getenv(crashEnv) != "" {
		os.Exit(crashMain())
	}
	if os.Getenv(limitEnv) != "" {
		os.Exit(limitMain())
	}
	os.Exit(m.Run())
}

// place is a directory for files, one for state, and a Replacer on them.
type place struct {
	dir, state string
	loaded     string // directory in which reloads record what they loaded; see scenario
	r          *Replacer
}

func newPlace(t testing.TB) place {
	t.Helper()
	p := place{dir: t.TempDir(), state: t.TempDir()}
	p.r = New(p.state, nil, hclog.NewNullLogger())
	return p
}

func (p place) path(name string) string { return filepath.Join(p.dir, name) }

// file is a File below the place, with content and nothing else.
func (p place) file(name, data string) File {
	return File{Name: name, Destination: p.path(name), Data: []byte(data)}
}

func (p place) write(t testing.TB, name, data string) {
	t.Helper()
	if err := os.WriteFile(p.path(name), []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

// want fails unless the file has exactly this content.
func (p place) want(t testing.TB, name, data string) {
	t.Helper()
	got, err := os.ReadFile(p.path(name))
	if err != nil {
		t.Error(err)
		return
	}
	if !bytes.Equal(got, []byte(data)) {
		t.Errorf("%s: got %.80q (%d bytes), want %.80q (%d bytes)", name, got, len(got), data, len(data))
	}
}

func (p place) wantNone(t testing.TB, name string) {
	t.Helper()
	if _, err := os.Lstat(p.path(name)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: got %v, want no such file", name, err)
	}
}

// wantClean fails when a staged file, a backup or a journal is left.
func (p place) wantClean(t testing.TB) {
	t.Helper()
	if got, err := p.strays(); err != nil || len(got) != 0 {
		t.Errorf("left behind: got %q, %v, want nothing", got, err)
	}
}

func (p place) strays() (found []string, err error) {
	for _, root := range []string{p.dir, p.state} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil && !d.IsDir() && (root == p.state && path != p.r.targets().Path() || strings.Contains(d.Name(), ".jorc-")) {
				found = append(found, path)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// replace is Replace where no error is expected.
func (p place) replace(t testing.TB, files ...File) Outcome {
	t.Helper()
	out, err := p.r.Replace(t.Context(), Unit{Name: "unit", Files: files})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (p place) try(ctx context.Context, files ...File) (Outcome, error) {
	return p.r.Replace(ctx, Unit{Name: "unit", Files: files})
}

// sh is a command that runs in the place's directory.
func (p place) sh(script string) []string {
	return []string{"sh", "-c", `cd "$0" || exit 1; ` + script, p.dir}
}

func wantStrings(t testing.TB, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}
