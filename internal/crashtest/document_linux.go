package crashtest

import (
	"errors"
	"fmt"
	"testing"
)

// Document is something that a process keeps in a directory: one file, or several that
// belong together.
type Document struct {
	// Write brings it to a content, "old" or "new".
	Write func(dir, content string) error
	// Read is what a start makes of it: the content, or "" without a file.
	Read func(dir string) (content string, err error)
}

// written is what Mark says once Write has returned.
const written = "written"

// Documents returns the functions of children of a recording of documents.
func Documents(all map[string]Document) map[string]func(dir string) error {
	children := make(map[string]func(string) error, len(all))
	for name, d := range all {
		children[name] = func(dir string) error { return errors.Join(d.Write(dir, "new"), Mark(written)) }
	}
	return children
}

// TestDocuments fails unless each document is old or new after every crash while it is written,
// and new once Write has returned; with an old one, and without.
func TestDocuments(t *testing.T, all map[string]Document) {
	t.Helper()
	for name, d := range all {
		for _, old := range []string{"", "old"} {
			t.Run(name+" after "+old, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				if old != "" {
					if err := d.Write(dir, old); err != nil {
						t.Fatal(err)
					}
				}
				Record(t, name, dir).Replay(t, func(c *Crash) error {
					got, err := d.Read(dir)
					switch {
					case err != nil:
						return err
					case got != old && got != "new":
						return fmt.Errorf("got %q, want %q or new", got, old)
					case got != "new" && c.Marked(written):
						return fmt.Errorf("got %q after it was written, want new", got)
					}
					return nil
				})
			})
		}
	}
}
