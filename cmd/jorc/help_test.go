package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"
)

var update = flag.Bool("update", false, "write the golden files")

// tree lists every visible command with its path, and the program itself.
func tree(t *testing.T) map[string]*cli.Command {
	t.Helper()
	var none bytes.Buffer
	app := newApp(testHost(nil, &none, &none))
	all := map[string]*cli.Command{"": {Flags: app.Flags}}
	var walk func(parent string, commands []*cli.Command)
	walk = func(parent string, commands []*cli.Command) {
		for _, c := range commands {
			path := strings.TrimSpace(parent + " " + c.Name)
			all[path] = c
			walk(path, c.Subcommands)
		}
	}
	walk("", app.Commands)
	return all
}

// TestHelp holds every help text to its golden file; go test -update writes them.
func TestHelp(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("testdata", "cli")
	var wanted []string
	for path := range tree(t) {
		name := strings.ReplaceAll(strings.TrimSpace("jorc "+path), " ", "-") + ".txt"
		wanted = append(wanted, name)
		got := jorc(t, nil, append(strings.Fields(path), "--help")...)
		if got.code != exitOK || got.stderr != "" {
			t.Errorf("jorc %s --help: exit %d, stderr %q", path, got.code, got.stderr)
		}
		file := filepath.Join(dir, name)
		if *update {
			if err := os.WriteFile(file, []byte(got.stdout), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Errorf("%v: run go test ./cmd/jorc -update", err)
			continue
		}
		if diff := cmp.Diff(string(want), got.stdout); diff != "" {
			t.Errorf("jorc %s --help differs from %s (-want +got); go test ./cmd/jorc -update\n%s", path, file, diff)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !slices.Contains(wanted, filepath.Base(file)) {
			t.Errorf("%s: no such command", file)
		}
	}
}

// TestHelpEverywhere: each way of asking gives the same text.
func TestHelpEverywhere(t *testing.T) {
	t.Parallel()
	want := jorc(t, nil, "config", "validate", "--help").stdout
	for _, line := range []string{"help config validate", "config validate -h", "config validate x --help"} {
		if got := jorc(t, nil, strings.Fields(line)...).stdout; got != want {
			t.Errorf("jorc %s: got %s", line, got)
		}
	}
	if got, want := jorc(t, nil), jorc(t, nil, "--help"); got != want {
		t.Errorf("jorc alone: got %+v, want %+v", got, want)
	}
}

// ownMeaning are flags that bear the name of a global one, which makes no sense
// for their commands.
var ownMeaning = map[string]string{
	"update report": "version", "update_own_info": "version", "health": "verbose", "local_health": "verbose", "check_single_version": "verbose",
	"cluster run": "node", "maintenance begin": "node", "maintenance end": "node", "maintenance show": "node",
}

// TestTree: every command says what it is, and no flag hides a global one,
// whose meaning would then depend on where it stands.
func TestTree(t *testing.T) {
	t.Parallel()
	all := tree(t)
	for path, c := range all {
		if path == "" {
			continue
		}
		if !c.Hidden && (!strings.Contains(path, " ") || strings.HasPrefix(path, "cluster ") && strings.Count(path, " ") == 1) && c.Category == "" {
			t.Errorf("jorc %s belongs to no group of the help", path)
		}
		if c.Usage == "" || strings.HasSuffix(c.Usage, ".") {
			t.Errorf("jorc %s: usage is %q, want a phrase without a full stop", path, c.Usage)
		}
		for _, f := range c.Flags {
			for _, name := range f.Names() {
				if name != "help" && name != "h" && name != ownMeaning[path] && flagNamed(all[""].Flags, name) != nil {
					t.Errorf("jorc %s: flag %s hides the global one", path, dashes(name))
				}
			}
			if r, ok := f.(cli.RequiredFlag); ok && r.IsRequired() {
				t.Errorf("jorc %s: the library prints help over the error of a required flag (%s): check it in the action", path, f.Names()[0])
			}
		}
	}
}

func TestMan(t *testing.T) {
	t.Parallel()
	got := jorc(t, nil, "man")
	if got.code != exitOK || got.stderr != "" || !strings.HasPrefix(got.stdout, ".nh\n.TH jorc 8\n") {
		t.Errorf("got %d, %q, %.60q", got.code, got.stderr, got.stdout)
	}
	text := strings.ReplaceAll(got.stdout, `\-`, "-")
	for path, c := range tree(t) {
		if c.Hidden {
			continue
		}
		for _, f := range c.Flags {
			if name := "--" + f.Names()[0]; !strings.Contains(text, name) {
				t.Errorf("jorc %s: flag %s is missing", path, name)
			}
		}
		if !strings.Contains(text, c.Name) {
			t.Errorf("jorc %s is missing", path)
		}
	}
}
