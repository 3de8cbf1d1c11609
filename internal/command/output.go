package command

import (
	"bytes"
	"errors"
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

// text returns the kept bytes as valid UTF-8, and whether earlier ones were
// dropped.
func (t *tail) text() (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := make([]byte, 0, len(t.buf))
	b = append(append(b, t.buf[t.next:]...), t.buf[:t.next]...)
	if t.dropped {
		// The first bytes may be the rest of a character.
		for i := 0; i < utf8.UTFMax-1 && len(b) > 0 && !utf8.RuneStart(b[0]); i++ {
			b = b[1:]
		}
	}
	return strings.ToValidUTF8(string(b), "\uFFFD"), t.dropped
}

// output holds the pipes from a command and their readers.
type output struct {
	stdout, stderr *os.File      // the command's ends; equal without separate sinks
	readers        []*os.File    // our ends
	done           chan struct{} // closed when all readers have ended
}

// newOutput makes one pipe, which keeps the order of stdout and stderr, or two if
// they have different writers. A writer is never called concurrently.
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

// same reports whether a and b are the same writer; writers of types that cannot
// be compared are not.
func same(a, b io.Writer) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return reflect.TypeOf(a).Comparable() && reflect.TypeOf(b).Comparable() && a == b
}

// pump copies r to its end, without the secrets.
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
		if errors.Is(err, os.ErrDeadlineExceeded) {
			copyRest(r, w)
		}
		if err != nil {
			return
		}
	}
}

// sinks writes to all writers. It skips a writer after an error, which must not
// affect the command.
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

// started closes our copies of the command's ends, so that readers see the end.
func (o *output) started() {
	_ = o.stdout.Close()
	if o.stderr != nil && o.stderr != o.stdout {
		_ = o.stderr.Close()
	}
}

// drain reads until the end, or for at most d what comes, and all that is there then.
func (o *output) drain(d time.Duration) {
	for _, r := range o.readers {
		_ = r.SetReadDeadline(time.Now().Add(d)) // fails only if it is already closed
	}
	<-o.done
}

// redacted replaces a secret in output.
const redacted = "[redacted]"

// redactor writes its input without the secrets to another writer. A secret may
// be split over several writes: bytes that may be the beginning of a secret are
// held back until the next write.
type redactor struct {
	secrets [][]byte // none empty
	held    []byte   // shorter than the longest secret
	to      io.Writer
}

// newRedactor returns nil if there are no secrets.
func newRedactor(secrets []string, to io.Writer) *redactor {
	r := &redactor{to: to}
	for _, s := range secrets {
		if s != "" {
			r.secrets = append(r.secrets, []byte(s))
		}
	}
	if len(r.secrets) == 0 {
		return nil
	}
	return r
}

func (r *redactor) Write(p []byte) (int, error) {
	rest := append(r.held, p...)
	var out []byte
	for {
		at, length := r.first(rest)
		if length == 0 {
			break
		}
		out = append(append(out, rest[:at]...), redacted...)
		rest = rest[at+length:]
	}
	keep := r.begun(rest)
	out = append(out, rest[:len(rest)-keep]...)
	r.held = bytes.Clone(rest[len(rest)-keep:])
	if len(out) == 0 {
		return len(p), nil
	}
	_, err := r.to.Write(out)
	return len(p), err
}

// first finds the first secret in b, and the longest one at that position;
// length is 0 if b has no secret.
func (r *redactor) first(b []byte) (at, length int) {
	for _, s := range r.secrets {
		i := bytes.Index(b, s)
		if i >= 0 && (length == 0 || i < at || i == at && len(s) > length) {
			at, length = i, len(s)
		}
	}
	return at, length
}

// begun returns how many bytes at the end of b may be the beginning of a secret.
func (r *redactor) begun(b []byte) int {
	most := 0
	for _, s := range r.secrets {
		for n := min(len(s)-1, len(b)); n > most; n-- {
			if bytes.HasSuffix(b, s[:n]) {
				most = n
			}
		}
	}
	return most
}

// flush writes the held bytes, which are not a secret.
func (r *redactor) flush() {
	if len(r.held) > 0 {
		_, _ = r.to.Write(r.held) // as in pump: sinks never return an error
		r.held = nil
	}
}
