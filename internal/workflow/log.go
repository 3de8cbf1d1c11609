package workflow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/durable"
)

const (
	defaultMaxLog = 16 << 20
	leastMaxLog   = 64 << 10
	rotated       = ".1" // behind the name of the older half
)

// taskLog is a task's log: a file and, when that has grown to half of max, the
// one before it. Writing never fails; close reports what was lost.
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

// close ends the log and returns what is missing in it; empty if nothing is.
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

// Store keeps full logs where others can read them.
type Store interface {
	// Put copies the file to name, segments joined by slashes, replaces what
	// was there, and returns where it can be read.
	Put(ctx context.Context, name, file string) (url string, err error)
}

// NewStore is the Store that c describes, nil for none. Errors are ErrInvalid.
func NewStore(c *config.LogStore) (Store, error) {
	switch {
	case c == nil:
		return nil, nil
	case c.S3 == nil:
		return DirStore{c.Dir}, nil
	}
	s, err := NewS3Store(*c.S3)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// DirStore is a Store in a directory, which others may serve or mount.
type DirStore struct{ Dir string }

// Put returns a file URL.
func (d DirStore) Put(ctx context.Context, name, file string) (string, error) {
	if !filepath.IsLocal(name) {
		return "", fmt.Errorf("log %q: %w: not a name below the log store", name, ErrInvalid)
	}
	target := filepath.Join(d.Dir, filepath.FromSlash(name))
	if err := durable.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return "", fmt.Errorf("log store: %w", err)
	}
	if err := errors.Join(durable.RemoveTemp(filepath.Dir(target)), copyFile(ctx, target, file)); err != nil {
		return "", fmt.Errorf("log store: %w", err)
	}
	return (&url.URL{Scheme: "file", Path: target}).String(), nil
}

// copyFile replaces target by a copy of file, whole or not at all.
func copyFile(ctx context.Context, target, file string) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close() // only read
	return durable.Create(target, 0o644, func(w io.Writer) error {
		_, err := io.Copy(w, concurrency.Reader(ctx, in))
		return err
	})
}

// storeTime bounds how long a log is uploaded.
const storeTime = time.Minute

// store uploads the log of a task; a failure is logged, and changes nothing.
func (r *Runner) store(ctx context.Context, j *job, i int) {
	if r.o.Store == nil || ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	where, err := r.upload(ctx, j, i)
	if err != nil {
		r.log.Warn("the log could not be stored", "job", j.spec.ID, "task", j.spec.Steps[i].Name, "error", err)
		task := &j.rec.Tasks[i]
		task.LogError = strings.TrimPrefix(task.LogError+"; not stored: "+err.Error(), "; ")
		return
	}
	j.rec.Tasks[i].LogURL = where
}

func (r *Runner) upload(ctx context.Context, j *job, i int) (string, error) {
	file := j.logPath(i)
	if _, err := os.Stat(file + rotated); err == nil {
		whole, err := os.CreateTemp(j.dir, ".log-*")
		if err != nil {
			return "", err
		}
		defer func() { _ = os.Remove(whole.Name()) }()
		if err := errors.Join(copyLog(whole, file), whole.Close()); err != nil {
			return "", err
		}
		file = whole.Name()
	}
	node := strings.ReplaceAll(r.o.Node, "/", "_")
	if node == "" {
		node = "localhost"
	}
	return r.o.Store.Put(ctx, node+"/"+j.spec.ID+"/"+filepath.Base(j.logPath(i)), file)
}
