package main

import (
	"bytes"
	"io"

	"github.com/coreos/go-systemd/v22/journal"
	"github.com/hashicorp/go-hclog"
)

// toJournal reports whether stderr is systemd's journal, which has time stamps and
// priorities of its own. A socket that cannot be compared is taken for another file.
func toJournal() bool {
	is, err := journal.StderrIsJournalStream()
	return err == nil && is
}

// journalWriter writes each line with its priority, as journald reads it from the
// output of a service (sd-daemon(3)).
type journalWriter struct{ to io.Writer }

// Write writes lines whose level is not known.
func (w journalWriter) Write(text []byte) (int, error) { return w.LevelWrite(hclog.Info, text) }

// LevelWrite implements hclog.LevelWriter.
func (w journalWriter) LevelWrite(level hclog.Level, text []byte) (int, error) {
	prefix := "<6>"
	switch level {
	case hclog.Error:
		prefix = "<3>"
	case hclog.Warn:
		prefix = "<4>"
	case hclog.Debug, hclog.Trace:
		prefix = "<7>"
	}
	var lines []byte
	for line := range bytes.Lines(text) {
		lines = append(append(lines, prefix...), line...)
	}
	if _, err := w.to.Write(lines); err != nil {
		return 0, err
	}
	return len(text), nil
}

// errorLines writes lines as errors.
type errorLines struct{ to journalWriter }

func (w errorLines) Write(text []byte) (int, error) { return w.to.LevelWrite(hclog.Error, text) }
