package agent_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/workflow"
)

const clonedConf = `
node = "NODE"
version_file = "DIR/version"
static { workflow = "converge" }
workflow "converge" {
  task "apply" { script = "echo NODE {{ .Version }} >>DIR/applied" }
}
`

// wantVersionOf waits until a node has reported a version.
func (h *host) wantVersionOf(node, version string) {
	h.t.Helper()
	h.eventually(node+" at "+version, func() error {
		d, _, err := h.ledger().Report(h.t.Context(), node)
		if err == nil && d.Version != version {
			err = fmt.Errorf("got %+v", d)
		}
		return err
	})
}

func (h *host) jobs() []workflow.Result {
	h.t.Helper()
	jobs, err := workflow.New(workflow.Options{StateDir: h.path("state")}).Jobs()
	if err != nil {
		h.t.Fatal(err)
	}
	return jobs
}

func (h *host) applied() string {
	data, _ := os.ReadFile(h.path("applied")) // missing: nothing was applied
	return string(data)
}

// TestUnfinishedFiles: what killed processes left is gone after a start, also
// beside the file of a template that is no longer configured.
func TestUnfinishedFiles(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), `
version_file = "DIR/version"
template "t" {
  contents    = "new"
  destination = "DIR/conf"
  check       = ["sh", "-c", "touch DIR/checking; exec sleep 1000"]
}`)
	h.start()
	h.wantFile("checking", "")
	staged, err := os.ReadFile(h.path(".conf.jorc-new"))
	if err != nil || string(staged) != "new" {
		t.Fatalf("staged: got %q, %v", staged, err)
	}
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	left := []string{
		".conf.jorc-new", ".conf.jorc-old", ".version.jorc-tmp-1", "state/.snapshot.gob.jorc-tmp-2",
		"state/services/.web.json.jorc-tmp-3", "state/triggers/.t.json.jorc-tmp-4",
	}
	for _, name := range left { // as kill -9 leaves them
		if err := os.MkdirAll(filepath.Dir(h.path(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		h.write(name, "half")
	}
	h.configure(`version_file = "DIR/version"`)
	h.start()
	h.eventually("the files are removed", func() error {
		for _, name := range left {
			if _, err := os.Lstat(h.path(name)); !os.IsNotExist(err) {
				return fmt.Errorf("%s: got %v", name, err)
			}
		}
		return nil
	})
}

// TestClonedHost: a host that is made from another's disk does its own work, and
// reports nothing of the other's.
func TestClonedHost(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	first := newHost(t, s, strings.ReplaceAll(clonedConf, "NODE", "n1"))
	first.trigger("v1")
	first.start()
	first.wantVersionOf("n1", "v1")
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	foreign := first.jobs()
	if len(foreign) != 1 {
		t.Fatalf("jobs of n1: got %v, want one", foreign)
	}

	second := newHost(t, s, strings.ReplaceAll(clonedConf, "NODE", "n2"))
	if err := os.CopyFS(second.path("state"), os.DirFS(first.path("state"))); err != nil {
		t.Fatal(err)
	}
	second.write("version", "v1\n")
	second.write("state/hold", "look at it first")
	for _, name := range []string{"grant.json", "lease.json", "maintenance.json"} {
		second.write("state/"+name, "of n1")
	}
	if err := s.Client().SetNodeMaintenance(t.Context(), true, consul.JorcNote+"the lease of n1"); err != nil {
		t.Fatal(err)
	}
	second.start()
	second.eventually("the maintenance of n1 to end", func() error {
		have, err := s.Client().AgentChecks(t.Context(), fmt.Sprintf("CheckID == %q", consul.NodeMaintenance))
		if err == nil && len(have) > 0 {
			err = errors.New("it is on")
		}
		return err
	})
	second.eventually("the state is put aside", func() error {
		if found, err := filepath.Glob(second.path("state/state.n1.*/jobs")); err != nil || len(found) != 1 {
			return fmt.Errorf("got %q, %v", found, err)
		}
		if !strings.Contains(second.log.String(), "belongs to another node") {
			return errors.New("the log does not warn of it")
		}
		return nil
	})
	for _, name := range []string{"grant.json", "lease.json", "maintenance.json"} {
		aside, err := filepath.Glob(second.path("state/state.n1.*/" + name))
		if err != nil || len(aside) != 1 {
			t.Errorf("%s: %q, %v, want it put aside", name, aside, err)
			continue
		}
		if text, err := os.ReadFile(aside[0]); err != nil || string(text) != "of n1" {
			t.Errorf("%s: %q, %v, want it as n1 left it", name, text, err)
		}
	}
	if got := second.jobs(); len(got) != 0 {
		t.Errorf("jobs of n2 before it began: got %v, want none", got)
	}
	if _, err := os.Stat(second.path("version")); !os.IsNotExist(err) {
		t.Errorf("version file: got %v, want it put aside", err)
	}
	if d, _, err := second.ledger().Report(t.Context(), "n2"); err == nil && d.Version != "" {
		t.Errorf("n2 reports: got %+v, want no version", d)
	}
	if err := os.Remove(second.path("state/hold")); err != nil {
		t.Fatal(err)
	}
	second.wantVersionOf("n2", "v1")
	if got, want := second.applied(), "n2 v1\n"; got != want {
		t.Errorf("work of n2: got %q, want %q", got, want)
	}
	if jobs := second.jobs(); len(jobs) != 1 || jobs[0].ID == foreign[0].ID {
		t.Errorf("jobs of n2: got %v, want one of its own", jobs)
	}
	if err := second.stop(); err != nil {
		t.Fatal(err)
	}

	// Its own state stays, and so does one that no owner is recorded for.
	for _, forget := range []bool{false, true} {
		if forget {
			if err := os.Remove(second.path("state/node")); err != nil {
				t.Fatal(err)
			}
		}
		second.start()
		second.eventually("the state is claimed", func() error {
			data, err := os.ReadFile(second.path("state/node"))
			if err == nil && string(data) != "n2\n" {
				err = fmt.Errorf("got %q", data)
			}
			return err
		})
		if err := second.stop(); err != nil {
			t.Fatal(err)
		}
		if got, want := second.applied(), "n2 v1\n"; got != want || len(second.jobs()) != 1 {
			t.Errorf("started again: got %q and jobs %v, want nothing done", got, second.jobs())
		}
	}
}
