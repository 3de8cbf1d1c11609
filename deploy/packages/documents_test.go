//go:build packages

package packages_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	fence   = regexp.MustCompile("(?s)```.*?```")
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// TestDocuments: the package has all documents, and each link in them leads to a file of the package and, where
// it names one, a heading.
func TestDocuments(t *testing.T) {
	b := packages(t)
	root := t.TempDir()
	run(t, "dpkg-deb", "-x", native(t, b.new, "deb"), root)
	files := run(t, "rpm", "-qp", "--nosignature", "-l", native(t, b.new, "rpm"))
	dir := filepath.Join(root, "usr/share/doc/jorc")
	read := func(path string) string {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	anchors := func(path string) map[string]bool {
		all := map[string]bool{}
		for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(read(path), ""), -1) {
			text := link.ReplaceAllString(m[1], "]")
			all[strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(text), ""), " ", "-")] = true
		}
		return all
	}
	documents, links := 0, 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".md" {
			return err
		}
		documents++
		if name := strings.TrimPrefix(path, root); !strings.Contains(files, name+"\n") {
			t.Errorf("the rpm lacks %s", name)
		}
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(read(path), ""), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, ":") {
				continue // another host
			}
			links++
			file := path
			if target != "" {
				file = filepath.Join(filepath.Dir(path), target)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s links to %s: %v", strings.TrimPrefix(path, root), m[1], err)
			} else if anchor != "" && !anchors(file)[anchor] {
				t.Errorf("%s links to %s, which has no such heading", strings.TrimPrefix(path, root), m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := len(strings.Fields(run(t, "git", "ls-files", "docs/*.md", "deploy/examples/*.md"))) + len([]string{"README", "CHANGELOG", "SECURITY"})
	if documents != want || links == 0 {
		t.Errorf("%d documents with %d links, want %d", documents, links, want)
	}
}
