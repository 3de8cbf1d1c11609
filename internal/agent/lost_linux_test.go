package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/crashtest"
	"github.com/jorc/jorc/internal/durable"
)

// documents are what this package keeps on the disk.
var documents = map[string]crashtest.Document{
	"maintenance.json": {
		Write: func(dir, content string) error {
			return newMaintenance(nil, dir, hclog.NewNullLogger()).keep([]string{content})
		},
		Read: func(dir string) (string, error) {
			var said strings.Builder
			m := newMaintenance(nil, dir, hclog.New(&hclog.LoggerOptions{Output: &said}))
			m.load()
			if said.Len() > 0 {
				return "", errors.New(said.String())
			}
			return strings.Join(m.owners, " "), nil
		},
	},
	"loading.json": {
		Write: func(dir, content string) error {
			l := newLoading(dir, 0, hclog.NewNullLogger())
			l.keep(loadingRecord{Config: content, Mark: &loadingMark{Boot: "b"}})
			return nil
		},
		Read: func(dir string) (string, error) {
			var said strings.Builder
			r := newLoading(dir, 0, hclog.New(&hclog.LoggerOptions{Output: &said})).read()
			if said.Len() > 0 {
				return "", errors.New(said.String())
			}
			return r.Config, nil
		},
	},
	"leading": {
		Write: func(dir, content string) error { return newLeadership(dir).begin("c", content) },
		Read: func(dir string) (string, error) {
			t, led := newLeadership(dir).last(hclog.NewNullLogger())
			if led && t.Node == "" {
				return "", errors.New("it cannot be read")
			}
			return t.Node, nil
		},
	},
}

func init() {
	children := crashtest.Documents(documents)
	children["step down"] = func(dir string) error { return errors.Join(newLeadership(dir).end(), crashtest.Mark("ended")) }
	children["put aside"] = func(dir string) error {
		_, err := putAside(dir, filepath.Join(dir, "version"), "n1", time.Now())
		if err == nil {
			err = durable.WriteFile(filepath.Join(dir, config.NodeFile), []byte("n2\n"), 0o644)
		}
		return err
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

// TestEndOfLeadershipSurvivesPowerFailures: a leader that has stepped down does not step down again.
func TestEndOfLeadershipSurvivesPowerFailures(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := newLeadership(dir).begin("c", "n1"); err != nil {
		t.Fatal(err)
	}
	crashtest.Record(t, "step down", dir).Replay(t, func(c *crashtest.Crash) error {
		if last, led := newLeadership(dir).last(hclog.NewNullLogger()); led && (last.Node != "n1" || c.Marked("ended")) {
			return fmt.Errorf("got the term %+v", last)
		}
		return nil
	})
}

// TestForeignStateSurvivesPowerFailures: the state of another node is this node's at no time,
// and nothing of it is lost, while it is put aside.
func TestForeignStateSurvivesPowerFailures(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := []string{"converge.json", "drift.json", "jobs/j/record.json", "version"}
	for _, name := range append(files, config.NodeFile) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("n1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	crashtest.Record(t, "put aside", dir).Replay(t, func(*crashtest.Crash) error {
		owner, err := readOwner(dir)
		if err != nil {
			return err
		}
		for _, name := range files {
			here := []string{filepath.Join(dir, name)}
			aside, err := filepath.Glob(filepath.Join(dir, "state.n1.*", name))
			if err != nil {
				return err
			}
			found := slices.DeleteFunc(append(here, aside...), func(path string) bool { _, err := os.Stat(path); return err != nil })
			if len(found) != 1 || owner == "n2" && found[0] == here[0] {
				return fmt.Errorf("owner %s: %s is at %q", owner, name, found)
			}
		}
		return nil
	})
}
