package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// observer hears from the kernel which files were renamed into a directory.
// fsnotify would report each write to a temporary file, too.
type observer struct {
	dir    string
	queue  *os.File
	events chan event
}

type event struct {
	name string
	at   time.Time
	err  error
}

// observe begins with what is renamed from now on. Close ends it.
func observe(dir string) (*observer, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify: %w", err)
	}
	o := &observer{dir: dir, queue: os.NewFile(uintptr(fd), "inotify"), events: make(chan event, 1<<16)}
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_MOVED_TO|unix.IN_CLOSE_WRITE); err != nil {
		_ = o.queue.Close()
		return nil, fmt.Errorf("inotify %s: %w", dir, err)
	}
	go o.read()
	return o, nil
}

// Close ends the observation.
func (o *observer) Close() { _ = o.queue.Close() } // only read

// read takes events from the kernel until the queue is closed.
func (o *observer) read() {
	buf := make([]byte, 1<<16)
	for {
		n, err := o.queue.Read(buf)
		at := time.Now()
		if err != nil {
			if !errors.Is(err, os.ErrClosed) {
				o.events <- event{err: err}
			}
			return
		}
		for rest := buf[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			mask := binary.NativeEndian.Uint32(rest[4:])
			size := int(binary.NativeEndian.Uint32(rest[12:]))
			name := strings.TrimRight(string(rest[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+size]), "\x00")
			rest = rest[unix.SizeofInotifyEvent+size:]
			if mask&unix.IN_Q_OVERFLOW != 0 {
				o.events <- event{err: errors.New("inotify: events were lost")}
			}
			if !strings.HasPrefix(name, ".") {
				o.events <- event{name: name, at: at}
			}
		}
	}
}

// drain forgets what has come so far.
func (o *observer) drain() {
	for {
		select {
		case <-o.events:
		default:
			return
		}
	}
}

// patience is how long a file may take to become what it should be.
const patience = 90 * time.Second

// await returns when the last of the files got the content that want names.
func (o *observer) await(ctx context.Context, p *process, want map[string]string) (last time.Time, err error) {
	left := len(want)
	met := make(map[string]bool, left)
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for left > 0 {
		select {
		case e := <-o.events:
			if e.err != nil {
				return last, e.err
			}
			content, wanted := want[e.name]
			if !wanted || met[e.name] {
				continue
			}
			data, err := os.ReadFile(filepath.Join(o.dir, e.name))
			if err != nil || string(data) != content {
				continue // replaced meanwhile, or not yet
			}
			met[e.name] = true
			last = e.at
			left--
		case <-p.done:
			return last, p.died()
		case <-timeout.C:
			return last, o.late(p, want, met)
		case <-ctx.Done():
			return last, context.Cause(ctx)
		}
	}
	return last, nil
}

// late says what is wrong.
func (o *observer) late(p *process, want map[string]string, met map[string]bool) error {
	for name, content := range want {
		if met[name] {
			continue
		}
		data, err := os.ReadFile(filepath.Join(o.dir, name))
		if err != nil {
			data = []byte(err.Error())
		}
		return fmt.Errorf("%s: %d of %d files are not right after %s: %s holds %q, not %q; its output ends with:\n%s",
			p.name, len(want)-len(met), len(want), patience, name, data, content, p.tail())
	}
	return nil
}
