package config_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/config"
)

// tree makes directories ("a/"), files ("a") and symlinks ("a -> target").
func tree(t *testing.T, entries ...string) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name, target, link := strings.Cut(e, " -> ")
		path := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		switch {
		case err != nil:
		case link:
			err = os.Symlink(strings.ReplaceAll(target, "ROOT", root), path)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o700)
		default:
			err = os.WriteFile(path, nil, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// loadPaths loads a configuration with these static paths and destinations.
func loadPaths(t *testing.T, root, static string, destinations ...string) (*config.Config, error) {
	t.Helper()
	text := "workflow \"w\" {\n task \"t\" {\n command = [\"true\"]\n }\n}\n"
	if static != "" {
		text += fmt.Sprintf("static {\n workflow = \"w\"\n paths = [%q]\n}\n", strings.ReplaceAll(static, "ROOT", root))
	}
	for i, d := range destinations {
		text += fmt.Sprintf("template \"t%d\" {\n contents = \"x\"\n destination = %q\n}\n", i, strings.ReplaceAll(d, "ROOT", root))
	}
	return config.Load([]string{write(t, "jorc.hcl", text)}, config.Options{})
}

// wantConflict fails unless there is a conflict with this text: an error, or with
// links that make it a warning about the template and a refusal at each write; or
// none, if want is empty.
func wantConflict(t *testing.T, c *config.Config, err error, links bool, want, template, path string) {
	t.Helper()
	switch {
	case want == "" || links:
		if err != nil {
			t.Fatalf("got %v, want no error", err)
		}
	case err == nil || !strings.Contains(err.Error(), want):
		t.Fatalf("got %v, want %q", err, want)
	}
	if err != nil {
		return
	}
	real := path
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		real = filepath.Join(dir, filepath.Base(path))
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		real = target
	}
	if want == "" {
		if len(c.Warnings) != 0 {
			t.Errorf("got warnings %v, want none", c.Warnings)
		}
		return
	}
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0].Message, want) || !strings.Contains(c.Warnings[0].Message, fmt.Sprintf("template %q", template)) {
		t.Errorf("got warnings %v, want one about template %s with %q", c.Warnings, template, want)
	}
	if err := c.Owners.Check(template, real); err == nil && real != path && !strings.Contains(want, "below") && !strings.Contains(path, "..") { // where a file is a parent, nothing can be written
		t.Errorf("template %s may write %s, want it refused", template, real)
	}
}

func hasLink(tree []string) bool { return strings.Contains(strings.Join(tree, " "), "->") }

func TestStaticPaths(t *testing.T) {
	t.Parallel()
	const owned = "Destination is a static path"
	for _, tt := range []struct {
		name                string
		tree                []string
		static, destination string
		want                string // in the error; empty: none
	}{
		{"equal", nil, "ROOT/etc/a", "ROOT/etc/a", owned},
		{"other file", nil, "ROOT/etc/a", "ROOT/etc/ab", ""},
		{"below a directory", []string{"etc/"}, "ROOT/etc", "ROOT/etc/x/y", owned},
		{"below a directory that is not there yet", nil, "ROOT/etc/", "ROOT/etc/x/y", owned},
		{"star", nil, "ROOT/etc/*.conf", "ROOT/etc/a.conf", owned},
		{"star does not cross a slash", nil, "ROOT/etc/*.conf", "ROOT/etc/d/a.conf", ""},
		{"two stars", nil, "ROOT/etc/**", "ROOT/etc/a/b/c", owned},
		{"two stars in the middle", nil, "ROOT/**/x.conf", "ROOT/a/b/x.conf", owned},
		{"two stars in the middle, other name", nil, "ROOT/**/x.conf", "ROOT/a/b/y.conf", ""},
		{"star and slash own the tree", nil, "ROOT/etc/*/", "ROOT/etc/a/b", owned},
		{"braces", nil, "ROOT/etc/{a,b}/x", "ROOT/etc/b/x", owned},
		{"class", nil, "ROOT/etc/[ab]", "ROOT/etc/b", owned},
		{"escaped star", nil, `ROOT/etc/\*`, "ROOT/etc/*", owned},
		{"escaped star matches only a star", nil, `ROOT/etc/\*`, "ROOT/etc/a", ""},
		{"dots in the destination", nil, "ROOT/etc/a", "ROOT/etc/x/../a", owned},
		{"dots in the static path", nil, "ROOT/etc/x/../a", "ROOT/etc/a", owned},
		{"dots before a wildcard", nil, "ROOT/etc/x/../*", "ROOT/etc/a", owned},
		{"destination is a symlink to it", []string{"etc/a", "run/b -> ../etc/a"}, "ROOT/etc/a", "ROOT/run/b", owned},
		{"static path is a symlink to it", []string{"etc/a", "run/b -> ROOT/etc/a"}, "ROOT/run/b", "ROOT/etc/a", owned},
		{"the symlink itself is static", []string{"etc/a", "run/b -> ROOT/etc/a"}, "ROOT/run/*", "ROOT/run/b", owned},
		{"dangling symlink", []string{"run/b -> ROOT/etc/a"}, "ROOT/etc/a", "ROOT/run/b", owned},
		{"chain of symlinks", []string{"one -> two", "two -> three", "three -> etc/a"}, "ROOT/etc/a", "ROOT/one", owned},
		{"symlinked parent without the file", []string{"etc/", "link -> etc"}, "ROOT/etc/**", "ROOT/link/new/file", owned},
		{"symlinked parent of the static path", []string{"etc/", "link -> etc"}, "ROOT/link/**", "ROOT/etc/new/file", owned},
		{"both through links", []string{"etc/", "a -> etc", "b -> ROOT/etc"}, "ROOT/a/x", "ROOT/b/x", owned},
		{"dots behind a symlink leave its target", []string{"srv/deep/", "link -> srv/deep"}, "ROOT/srv/a", "ROOT/link/../a", owned},
		{"dots behind a symlink do not go back", []string{"srv/deep/", "link -> srv/deep"}, "ROOT/a", "ROOT/link/../a", ""},
		{"symlinked directory below a pattern", []string{"etc/mysql/conf.d -> ROOT/srv/conf", "srv/conf/"}, "ROOT/etc/mysql/**", "ROOT/srv/conf/x.cnf", owned},
		{"symlinked file below a pattern", []string{"etc/x.conf -> ROOT/srv/y"}, "ROOT/etc/*.conf", "ROOT/srv/y", owned},
		{"symlink that the pattern does not match", []string{"etc/x.txt -> ROOT/srv/y"}, "ROOT/etc/*.conf", "ROOT/srv/y", ""},
		{
			"symlink behind a symlink below a pattern",
			[]string{"etc/one -> ROOT/srv/a", "srv/a/two -> ROOT/srv/b", "srv/b/"},
			"ROOT/etc/**", "ROOT/srv/b/x", owned,
		},
		{"loops end", []string{"etc/loop -> ROOT/etc", "etc/self -> self"}, "ROOT/etc/**/x", "ROOT/etc/loop/loop/self/y", ""},
		{"link in a directory that the pattern does not reach", []string{"etc/a/b/link -> ROOT/srv", "srv/"}, "ROOT/etc/*/x", "ROOT/srv/x", ""},
		{"too many braces", nil, "ROOT/{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}", "ROOT/x", "expand to more than 1000 paths"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			root := tree(t, tt.tree...)
			c, err := loadPaths(t, root, tt.static, tt.destination)
			wantConflict(t, c, err, hasLink(tt.tree) && tt.name != "the symlink itself is static", tt.want, "t0", strings.ReplaceAll(tt.destination, "ROOT", root))
		})
	}
}

func TestDestinations(t *testing.T) {
	t.Parallel()
	const (
		twice = "Destination used twice"
		under = "Destination below a file"
	)
	for _, tt := range []struct {
		name  string
		tree  []string
		first string
		next  string
		want  string

		refused string // the template; empty: "t1"
	}{
		{"different", nil, "ROOT/a", "ROOT/b", "", ""},
		{"equal", nil, "ROOT/a", "ROOT/a", twice, ""},
		{"dots and slashes", nil, "ROOT/a", "ROOT/./x/..//a", twice, ""},
		{"symlink", []string{"b -> a"}, "ROOT/a", "ROOT/b", twice, ""},
		{"two symlinks to one file", []string{"a -> c", "b -> c"}, "ROOT/a", "ROOT/b", twice, ""},
		{"symlinked parent", []string{"dir/", "link -> dir"}, "ROOT/dir/new", "ROOT/link/new", twice, ""},
		{"symlink given first", []string{"b -> a"}, "ROOT/b", "ROOT/a", twice, "t0"},
		{"both through one link", []string{"dir/", "link -> dir"}, "ROOT/link/new", "ROOT/link/../link/new", twice, ""},
		{"below, through a link", []string{"dir/", "link -> dir"}, "ROOT/dir/a", "ROOT/link/a/b", under, ""},
		{"above, through a link", []string{"dir/a/", "link -> dir/a"}, "ROOT/dir/a/b", "ROOT/link", under, ""},
		{"below", nil, "ROOT/a", "ROOT/a/b", under, ""},
		{"above", nil, "ROOT/a/b", "ROOT/a", under, ""},
		{"same beginning", nil, "ROOT/a", "ROOT/ab", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			root := tree(t, tt.tree...)
			c, err := loadPaths(t, root, "", tt.first, tt.next)
			if refused := cmp.Or(tt.refused, "t1"); refused == "t0" {
				wantConflict(t, c, err, hasLink(tt.tree), tt.want, "t0", strings.ReplaceAll(tt.first, "ROOT", root))
			} else {
				wantConflict(t, c, err, hasLink(tt.tree), tt.want, "t1", strings.ReplaceAll(tt.next, "ROOT", root))
			}
		})
	}
}

func TestTemplatesThatGoTogether(t *testing.T) {
	t.Parallel()
	c := load(t, config.Options{}, write(t, "jorc.hcl", `
		template "a" {
			contents    = "x"
			destination = "/jorc-test/a"
			together    = "edge"
		}
		template "b" {
			contents    = "x"
			destination = "/jorc-test/b"
			together    = "edge"
		}
	`))
	if len(c.Templates) != 2 {
		t.Errorf("got %d templates, want 2", len(c.Templates))
	}
}

// TestOwnFiles: no template overwrites a file that jorc itself uses.
func TestOwnFiles(t *testing.T) {
	t.Parallel()
	root := tree(t, "state/", "link -> state/journal")
	for _, tt := range []struct{ name, destination, want string }{
		{"state directory", "ROOT/state/rollout.json", "jorc's state directory, ROOT/state"},
		{"through a symlink", "ROOT/link", "jorc's state directory"},
		{"version file", "ROOT/version", "the version file, ROOT/version"},
		{"token", "ROOT/token", "the file of Consul's token"},
		{"client key", "ROOT/client.key", "the client certificate's key"},
		{"token of a task", "ROOT/task-token", `the token file of task "t"`},
		{"log store", "ROOT/logs/x", "the directory of the log store"},
		{"secret of a webhook", "ROOT/hook", "the secret file of a webhook"},
		{"configuration", "ROOT/jorc.hcl", "a file of this configuration"},
		{"source of another template", "ROOT/other.ctmpl", ""},
		{"beside them", "ROOT/state-of-the-art", ""},
	} {
		text := strings.ReplaceAll(`
			state_dir    = "ROOT/state"
			version_file = "ROOT/version"
			consul {
				token_file  = "ROOT/token"
				client_cert = "ROOT/client.pem"
				client_key  = "ROOT/client.key"
			}
			log_store {
				dir = "ROOT/logs"
			}
			orchestrator {
				sink "webhook" {
					url         = "http://127.0.0.1:1/"
					secret_file = "ROOT/hook"
				}
			}
			workflow "w" {
				task "t" {
					command    = ["true"]
					token_file = "ROOT/task-token"
				}
			}
			template "other" {
				source      = "ROOT/other.ctmpl"
				destination = "ROOT/other"
			}
			template "x" {
				contents    = "x"
				destination = "`+tt.destination+`"
			}`, "ROOT", root)
		path := filepath.Join(root, "jorc.hcl")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load([]string{path}, config.Options{})
		want := strings.ReplaceAll(tt.want, "ROOT", root)
		if tt.name == "through a symlink" {
			wantConflict(t, c, err, true, want, "x", root+"/link")
			continue
		}
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: got %v, want no error", tt.name, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), "Destination belongs to jorc") || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, want %q", tt.name, err, want)
		}
	}
}
