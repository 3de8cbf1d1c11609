package watch

import (
	"os"
	"testing"

	"github.com/jorc/jorc/internal/crashtest"
)

// documents are what this package keeps on the disk.
var documents = map[string]crashtest.Document{
	"snapshot": {
		Write: func(dir, content string) error {
			return (&snapshot{Format: snapshotFormat, Data: map[string]any{"kv.get(key)": content}}).save(dir)
		},
		Read: func(dir string) (string, error) {
			s, err := loadSnapshot(dir)
			if s == nil {
				return "", err
			}
			text, _ := s.Data["kv.get(key)"].(string)
			return text, err
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
