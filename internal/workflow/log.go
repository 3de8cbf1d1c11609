package workflow

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/jorc/jorc/internal/durable"
)

const (
	defaultMaxLog = 16 << 20
	leastMaxLog   = 64 << 10
	rotated       = ".1" // behind the name of the older half
)

// taskLog is a task's log: a file and, when that has grown to half of max, the
// one before it. Writing never fails; what was lost is told at the end.
type taskLog struct {
	mu   sync.Mutex
	path string
	half int64
	file *os.File
	size int64
	lost int64 // bytes
	err  error // the first one
	echo io.Writer
}

// openLog appends to the log at path. echo, which may be nil, gets the same.
func openLog(path string, limit int64, echo io.Writer) *taskLog {
	l := &taskLog{path: path, half: max(limit, leastMaxLog) / 2, echo: echo}
	l.open()
	return l
}

func (l *taskLog) open() {
	f, err := durable.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		l.fail(err)
		return
	}
	l.file, l.size = f, 0
	if info, err := f.Stat(); err == nil {
		l.size = info.Size()
	}
}

func (l *taskLog) fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

// Write takes everything.
func (l *taskLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.echo != nil {
		_, _ = l.echo.Write(p) // a terminal that went away must not end the task
	}
	if l.size > 0 && l.size+int64(len(p)) > l.half {
		l.rotate()
	}
	if l.file == nil {
		l.lost += int64(len(p))
		return len(p), nil
	}
	n, err := l.file.Write(p)
	l.size += int64(n)
	if err != nil {
		l.lost += int64(len(p) - n)
		l.fail(err)
	}
	return len(p), nil
}

func (l *taskLog) rotate() {
	if l.file != nil {
		_ = l.file.Close() // written without a buffer
		l.file = nil
	}
	if err := os.Rename(l.path, l.path+rotated); err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.fail(err)
		return
	}
	l.open()
}

// close ends the log and says what is missing in it; empty when nothing is.
func (l *taskLog) close() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		if err := l.file.Close(); err != nil {
			l.fail(err)
		}
		l.file = nil
	}
	if l.err == nil {
		return ""
	}
	return fmt.Sprintf("%d bytes of output are missing: %v", l.lost, l.err)
}

// copyLog writes a log to w, older half first; no log is an empty one.
func copyLog(w io.Writer, path string) error {
	for _, name := range []string{path + rotated, path} {
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		_, err = io.Copy(w, f)
		_ = f.Close() // only read
		if err != nil {
			return err
		}
	}
	return nil
}
