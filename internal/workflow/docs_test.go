package workflow

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/config"
)

const document = "../../docs/workflows.md"

// soon are Requirements that are there when they are asked for the second time.
type soon struct{ asked int }

func (s *soon) Missing(_ context.Context, r []config.Requires) (string, error) {
	if s.asked++; s.asked == 1 {
		return "waiting for " + r[0].Target, nil
	}
	return "", nil
}

func (s *soon) Wait(context.Context, []config.Requires) error { return nil }

// TestDocument runs the workflow of the document, with its programs played by a
// script that says how it was called.
func TestDocument(t *testing.T) {
	data, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)<!-- tested: workflow -->\n```hcl\n(.*?)```\n").FindSubmatch(data)
	if m == nil {
		t.Fatal("the document has no workflow to test")
	}
	bin := t.TempDir()
	for _, name := range []string{"apt-get", "app-schema", "systemctl"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\necho $(basename $0) \"$@\" >>$DIR/called\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	reboot := filepath.Join(bin, "reboot-required")
	text := strings.NewReplacer("/usr/bin/app-schema", filepath.Join(bin, "app-schema"), "/run/reboot-required", reboot).Replace(string(m[1]))
	file := filepath.Join(t.TempDir(), "workflow.hcl")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load([]string{file}, config.Options{Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(c.Workflows); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(reboot, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h := newHost(t, Options{Workflows: c.Workflows, Requirements: &soon{}})
	job := Job{ID: "j", Workflow: "converge", Version: "1.2", Out: true, Params: params(t, "disks: 4")}
	for i, state := range []State{Pending, Reboot, Reboot, Success} {
		if i == 3 {
			h.booted = boot{ID: "second"}
		}
		res, err := h.Run(t.Context(), job)
		if err != nil || res.State != state {
			t.Fatalf("run %d: got %s (%s), %v, want %s", i, res.State, res.Why, err, state)
		}
	}
	want(t, "called", h.read("called"), "apt-get install -y app=1.2\napp-schema --disks 4 --node n1\nsystemctl restart app\n")
}

// TestDocumentedCodes: the document's exit codes are the real ones.
func TestDocumentedCodes(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	for code, name := range map[int]string{ExitReboot: "REBOOT", ExitStop: "STOP", ExitNotYet: "NOT_YET"} {
		row := fmt.Sprintf("| %d | `$JORC_EXIT_%s` | `jorc_%s` |", code, name, strings.ToLower(name))
		if !strings.Contains(string(data), row) {
			t.Errorf("the document has no row %q", row)
		}
	}
}
