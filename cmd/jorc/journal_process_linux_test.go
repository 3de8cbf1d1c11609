package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// journalLine is a line with a priority, without a time stamp.
var journalLine = regexp.MustCompile(`^<[3467]>(\[[A-Z]+\] *jorc|jorc: )`)

// TestJournal: lines that go to the journal have their priority and no time stamp; others
// are as they were.
func TestJournal(t *testing.T) {
	t.Parallel()
	m := newMachine(t, consultest.Start(t), oneOfEach)
	said := func(name string, toJournal bool, args ...string) string {
		t.Helper()
		file, err := os.Create(filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			t.Fatal(err)
		}
		stat := info.Sys().(*syscall.Stat_t)
		inode := stat.Ino
		if !toJournal { // the variable is inherited; the output is another one
			inode++
		}
		cmd := m.command(args...)
		cmd.Stderr, cmd.Env = file, append(cmd.Env, fmt.Sprintf("JOURNAL_STREAM=%d:%d", stat.Dev, inode))
		_ = cmd.Run() // the output says how it ended
		text, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	once := []string{"agent", "--once", "--once-timeout", "1ns", "--config", m.path("jorc.hcl")}

	got := said("journal", true, once...)
	for line := range strings.Lines(got) {
		if !journalLine.MatchString(line) {
			t.Errorf("line %q, want a priority, and no time stamp", line)
		}
	}
	if !strings.Contains(got, "<3>jorc: ") {
		t.Errorf("said %q, want an error with priority 3", got)
	}
	if got := said("file", false, once...); strings.Contains(got, "<") || !strings.Contains(got, "\njorc: ") && !strings.HasPrefix(got, "jorc: ") {
		t.Errorf("to a file: %q, want no priority", got)
	}

	m.configure("nonsense")
	if got := said("invalid", true, "agent", "--config", m.path("jorc.hcl")); !strings.HasPrefix(got, "<3>jorc: ") {
		t.Errorf("with an invalid configuration: %q, want an error with priority 3", got)
	}
	m.configure(`
template "t" {
  contents    = "{{ fail \"x\" }}"
  destination = "DIR/t"
}
`)
	if got := said("warning", true, "agent", "--once", "--config", m.path("jorc.hcl")); !regexp.MustCompile(`(?m)^<[34]>\[(WARN|ERROR)\]`).MatchString(got) {
		t.Errorf("with a template that fails: %q, want a line of the log with priority 3 or 4", got)
	}
	if got := said("JSON", true, "agent", "--once", "--log-json", "--config", m.path("jorc.hcl")); !regexp.MustCompile(`(?m)^<[346]>\{"@level".*"@timestamp"`).MatchString(got) {
		t.Errorf("JSON: %q, want priorities, and objects with their time", got)
	}
}
