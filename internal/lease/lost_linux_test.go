package lease

import (
	"os"
	"testing"

	"github.com/jorc/jorc/internal/crashtest"
)

// documents are what this package keeps on the disk.
var documents = map[string]crashtest.Document{
	"lease.json": {
		Write: func(dir, content string) error {
			return NewHost(Options{StateDir: dir}).doc.Save(record{Wish: content})
		},
		Read: func(dir string) (string, error) {
			r, _, err := NewHost(Options{StateDir: dir}).doc.Read()
			return r.Wish, err
		},
	},
}

func init() {
	if code, child := crashtest.Child(crashtest.Documents(documents)); child {
		os.Exit(code)
	}
}

// TestDocumentsSurvivePowerFailures: after any power failure the start finds each document old or new.
func TestDocumentsSurvivePowerFailures(t *testing.T) {
	t.Parallel()
	crashtest.TestDocuments(t, documents)
}
