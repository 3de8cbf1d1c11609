package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/crashtest"
	"github.com/jorc/jorc/internal/orchestrator"
)

// fileSink keeps one event in each file.
func fileSink(dir string) orchestrator.FileSink {
	return orchestrator.FileSink{Path: filepath.Join(dir, "events.jsonl"), MaxSize: 1}
}

func init() {
	code, child := crashtest.Child(map[string]func(dir string) error{
		"send": func(dir string) error {
			var errs []error
			for _, e := range events(1, 2) {
				errs = append(errs, fileSink(dir).Send(context.Background(), "prod", []orchestrator.Event{e}), crashtest.Mark(fmt.Sprint("sent-", e.Seq)))
			}
			return errors.Join(errs...)
		},
	})
	if child {
		os.Exit(code)
	}
}

// TestSentEventsSurvivePowerFailures: an event that the sink has taken is in one of its files after
// any power failure, also the first of a new file.
func TestSentEventsSurvivePowerFailures(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	crashtest.Record(t, "send", dir).Replay(t, func(c *crashtest.Crash) error {
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil {
			return err
		}
		var all strings.Builder
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			all.Write(data)
		}
		for _, e := range events(1, 2) {
			if c.Marked(fmt.Sprint("sent-", e.Seq)) && strings.Count(all.String(), fmt.Sprintf(`"seq":%d,`, e.Seq)) != 1 {
				return fmt.Errorf("event %d was sent; the files hold %q", e.Seq, all.String())
			}
		}
		return nil
	})
}
