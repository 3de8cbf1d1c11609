package command

import (
	"io"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// tail keeps the last bytes written to it, in constant memory.
type tail struct {
	mu      sync.Mutex
	buf     []byte // grows to max, then is a ring
	max     int
	next    int // where the ring's next byte goes
	dropped bool
}

func newTail(size int) *tail {
	if size <= 0 {
		size = defaultMaxOutput
	}
	return &tail{max: size}
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	if over := len(p) - t.max; over > 0 {
		p, t.dropped = p[over:], true
	}
	if room := t.max - len(t.buf); room > 0 {
		k := min(room, len(p))
		t.buf = append(t.buf, p[:k]...)
		p = p[k:]
	}
	for len(p) > 0 {
		k := copy(t.buf[t.next:], p)
		p = p[k:]
		t.next = (t.next + k) % t.max
		t.dropped = true
	}
	return n, nil
}

// text is what was kept, as valid UTF-8, and whether something before it was
// dropped.
func (t *tail) text() (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := make([]byte, 0, len(t.buf))
	b = append(append(b, t.buf[t.next:]...), t.buf[:t.next]...)
	if t.dropped {
		// The cut may have gone through a character.
		for i := 0; i < utf8.UTFMax-1 && len(b) > 0 && !utf8.RuneStart(b[0]); i++ {
			b = b[1:]
		}
	}
	return strings.ToValidUTF8(string(b), "\uFFFD"), t.dropped
}

// output is the pipes from a command and who reads them.
type output struct {
	stdout, stderr *os.File      // the command's ends; one and the same without separate sinks
	readers        []*os.File    // our ends
	done           chan struct{} // closed when nothing more will be read
}

// newOutput makes one pipe, so that the order of stdout and stderr stays as it
// was written, or two when they go to different writers. Sinks of one writer
// are never called at the same time.
func newOutput(c Command, tail *tail) (*output, error) {
	o := &output{done: make(chan struct{})}
	var wg sync.WaitGroup
	pipe := func(sinks ...io.Writer) (*os.File, error) {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		o.readers = append(o.readers, r)
		wg.Go(func() { pump(r, c.Redact, sinks) })
		return w, nil
	}
	var err error
	if o.stdout, err = pipe(tail, c.Stdout); err != nil {
		return nil, err
	}
	o.stderr = o.stdout
	if !same(c.Stdout, c.Stderr) {
		if o.stderr, err = pipe(tail, c.Stderr); err != nil {
			o.started()
			wg.Wait()
			return nil, err
		}
	}
	go func() {
		defer close(o.done)
		wg.Wait()
	}()
	return o, nil
}

// same says whether two writers are one; those that cannot be compared are not.
func same(a, b io.Writer) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return reflect.TypeOf(a).Comparable() && reflect.TypeOf(b).Comparable() && a == b
}

// pump copies until the end, without the secrets.
func pump(r *os.File, secrets []string, to sinks) {
	defer func() { _ = r.Close() }()
	var w io.Writer = to
	if x := newRedactor(secrets, to); x != nil {
		defer x.flush()
		w = x
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			_, _ = w.Write(buf[:n]) // never fails
		}
		if err != nil {
			return
		}
	}
}

// sinks get the same, also when one no longer takes anything: the command must
// not notice.
type sinks []io.Writer

func (s sinks) Write(p []byte) (int, error) {
	for i, w := range s {
		if w == nil {
			continue
		}
		if _, err := w.Write(p); err != nil {
			s[i] = nil
		}
	}
	return len(p), nil
}

// started closes the command's ends on our side, so that the end shows.
func (o *output) started() {
	_ = o.stdout.Close()
	if o.stderr != nil && o.stderr != o.stdout {
		_ = o.stderr.Close()
	}
}

// drain reads on until the end, but no longer than d.
func (o *output) drain(d time.Duration) {
	for _, r := range o.readers {
		_ = r.SetReadDeadline(time.Now().Add(d)) // fails only when it is closed already
	}
	<-o.done
}
