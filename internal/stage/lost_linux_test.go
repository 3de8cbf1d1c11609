package stage

import (
	"fmt"
	"os"
	"testing"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/crashtest"
	"github.com/jorc/jorc/internal/replace"
)

// documents are what this package keeps on the disk.
var documents = map[string]crashtest.Document{
	"record": {
		Write: func(base, content string) error { return recordIn(dir(base, "s")).Save(record{Has: content}) },
		Read: func(base string) (string, error) {
			r, _, err := recordIn(dir(base, "s")).Read()
			return r.Has, err
		},
	},
	// An intent says which old files were kept: these are there as soon as it is.
	"intent": {
		Write: func(base, content string) error {
			d := dir(base, "s")
			files, err := keepOld(d, []replace.File{{Destination: "/a"}, {Destination: "/b"}}, func(f replace.File) ([]byte, bool, error) {
				return []byte(content + f.Destination), false, nil
			})
			if err != nil {
				return err
			}
			return recordIn(d).Save(record{Grant: change.Held{Intent: &change.Intent{ID: content}}, Intended: &attemptRecord{Files: files}})
		},
		Read: func(base string) (string, error) {
			d := dir(base, "s")
			r, _, err := recordIn(d).Read()
			if err != nil || r.Intended == nil {
				return "", err
			}
			id := r.Grant.Intent.ID
			if id != "new" { // those of an attempt that has ended are no longer read
				return id, nil
			}
			for i, f := range r.Intended.Files {
				if data, err := os.ReadFile(oldFileName(d, i)); err != nil || string(data) != id+f.Destination {
					return "", fmt.Errorf("the old %s: %q, %w", f.Destination, data, err)
				}
			}
			return id, nil
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
