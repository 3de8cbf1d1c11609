package catalog

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/crashtest"
)

// documents are what this package keeps on the disk.
var documents = map[string]crashtest.Document{
	"stored service": {
		Write: func(dir, content string) error { return store(dir, config.Service{ID: "a/b", Name: content}) },
		Read: func(dir string) (string, error) {
			all, err := readStored(dir)
			if len(all) == 0 {
				return "", err
			}
			return all[0].Name, err
		},
	},
	"export": {
		Write: func(dir, content string) error {
			_, _, err := WriteExport(filepath.Join(dir, "export"), []byte(content))
			return err
		},
		Read: func(dir string) (string, error) {
			data, err := os.ReadFile(filepath.Join(dir, "export"))
			if errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			return string(data), err
		},
	},
}

func init() {
	children := crashtest.Documents(documents)
	children["unstore"] = func(dir string) error {
		_, err := unstore(dir, "a/b")
		return errors.Join(err, crashtest.Mark("removed"))
	}
	if code, child := crashtest.Child(children); child {
		os.Exit(code)
	}
}

// TestDocumentsSurvivePowerFailures: after any power failure the start finds each document old or new.
func TestDocumentsSurvivePowerFailures(t *testing.T) {
	t.Parallel()
	crashtest.TestDocuments(t, documents)
}

// TestUnstoredSurvivesPowerFailures: a stored service that was removed does not return.
func TestUnstoredSurvivesPowerFailures(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := store(dir, config.Service{ID: "a/b", Name: "web"}); err != nil {
		t.Fatal(err)
	}
	crashtest.Record(t, "unstore", dir).Replay(t, func(c *crashtest.Crash) error {
		all, err := readStored(dir)
		if len(all) > 0 && c.Marked("removed") {
			err = errors.New("it is there again")
		}
		return err
	})
}
