package converge

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/crashtest"
	"github.com/jorc/jorc/internal/durable"
)

// documents are what this package keeps on the disk.
var documents = map[string]crashtest.Document{
	"grant.json": {
		Write: func(dir, content string) error {
			return durable.NewDoc[grantRecord](filepath.Join(dir, "state", "grant.json"), grantFormat).Save(grantRecord{Held: change.Held{ID: "g", Tag: content}})
		},
		Read: func(dir string) (string, error) {
			r, _, err := durable.NewDoc[grantRecord](filepath.Join(dir, "state", "grant.json"), grantFormat).Load()
			return r.Tag, err
		},
	},
	"converge.json": {
		Write: func(dir, content string) error {
			c := convergerIn(dir)
			c.p = newProgress()
			c.p.Entered = content
			return c.save()
		},
		Read: func(dir string) (string, error) {
			p, _, err := readProgress(progressIn(convergerIn(dir).o.StateDir))
			return p.Entered, err
		},
	},
	"drift.json": {
		Write: func(dir, content string) error {
			return convergerIn(dir).drift.save(&snapshot{Version: content})
		},
		Read: func(dir string) (string, error) {
			s, _, err := convergerIn(dir).drift.doc.Load()
			return s.Version, err
		},
	},
	"version file": {
		Write: func(dir, content string) error {
			return WriteVersionFile(filepath.Join(dir, "new", "version"), content)
		},
		Read: func(dir string) (string, error) {
			version, err := ReadVersionFile(filepath.Join(dir, "new", "version"))
			if errors.Is(err, cluster.ErrNoVersion) {
				return "", nil
			}
			return version, err
		},
	},
}

func convergerIn(dir string) *Converger {
	return New(Options{Node: "n1", StateDir: filepath.Join(dir, "state"), VersionFile: filepath.Join(dir, "version"), Log: hclog.NewNullLogger()})
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
