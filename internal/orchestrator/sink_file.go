package orchestrator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/view"
)

// LogSink writes events to a log.
type LogSink struct{ Log hclog.Logger }

// Name implements Sink.
func (LogSink) Name() string { return "log" }

// Send implements Sink.
func (s LogSink) Send(_ context.Context, cluster string, events []view.Event) error {
	for _, e := range events {
		args := []any{"cluster", cluster, "seq", e.Seq, "kind", e.Kind}
		for _, f := range []struct{ name, value string }{{"node", e.Node}, {"service", e.Service}, {"category", e.Category}} {
			if f.value != "" {
				args = append(args, f.name, f.value)
			}
		}
		s.Log.Info(e.Text, args...)
	}
	return nil
}

// FileSink appends events to a file, one JSON object per line. When the file
// has grown to MaxSize it is renamed to <path>.1, and that to <path>.2 …
type FileSink struct {
	Path    string
	MaxSize int64 // bytes; default 64 MiB
	Keep    int   // renamed files; default 4
}

// Name implements Sink.
func (s FileSink) Name() string { return "file:" + s.Path }

// line is an event with its cluster: several may share a file.
type line struct {
	Cluster string `json:"cluster"`
	view.Event
}

// Send implements Sink. What it wrote is on the disk when it returns nil.
func (s FileSink) Send(_ context.Context, cluster string, events []view.Event) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	for _, e := range events {
		if err := encoder.Encode(line{cluster, e}); err != nil {
			return fmt.Errorf("encode event %d: %w", e.Seq, err)
		}
	}
	size, torn, err := s.state()
	if err != nil {
		return err
	}
	limit := s.MaxSize
	if limit <= 0 {
		limit = 64 << 20
	}
	if size > 0 && size+int64(b.Len()) > limit {
		if err := s.rotate(); err != nil {
			return err
		}
		torn = false
	}
	return s.append(b.Bytes(), torn)
}

// state tells the file's size, and whether its last line has no end: a crash
// tore it.
func (s FileSink) state() (size int64, torn bool, err error) {
	f, err := os.Open(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return 0, false, err
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, info.Size()-1); err != nil {
		return 0, false, err
	}
	return info.Size(), last[0] != '\n', nil
}

func (s FileSink) rotate() error {
	keep := s.Keep
	if keep <= 0 {
		keep = 4
	}
	name := func(i int) string {
		if i == 0 {
			return s.Path
		}
		return s.Path + "." + strconv.Itoa(i)
	}
	for i := keep - 1; i >= 0; i-- {
		if err := os.Rename(name(i), name(i+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (s FileSink) append(data []byte, torn bool) (err error) {
	f, err := os.OpenFile(s.Path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if torn {
		data = append([]byte("\n"), data...)
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Sync()
}
