package command

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

// FuzzTail compares the ring with a plain buffer that keeps everything.
func FuzzTail(f *testing.F) {
	f.Add([]byte("hello, wörld"), uint8(5), uint8(3))
	f.Add([]byte("\xff\xfe\x00"), uint8(1), uint8(1))
	f.Add([]byte(strings.Repeat("äöü", 50)), uint8(64), uint8(7))
	f.Fuzz(func(t *testing.T, data []byte, size, chunk uint8) {
		limit := int(size)%200 + 1
		ring := newTail(limit)
		for p := range bytesChunks(data, int(chunk)+1) {
			if n, err := ring.Write(p); n != len(p) || err != nil {
				t.Fatalf("write: got %d, %v, want %d, nil", n, err, len(p))
			}
		}
		if cap(ring.buf) > 2*limit+64 {
			t.Errorf("memory: got %d bytes for %d", cap(ring.buf), limit)
		}
		got, truncated := ring.text()
		if want := len(data) > limit; truncated != want {
			t.Errorf("truncated: got %v, want %v", truncated, want)
		}
		if !utf8.ValidString(got) {
			t.Errorf("got %q, want valid UTF-8", got)
		}
		want := data
		if truncated {
			want = data[len(data)-limit:]
			for i := 0; i < 3 && len(want) > 0 && !utf8.RuneStart(want[0]); i++ {
				want = want[1:]
			}
		}
		if w := strings.ToValidUTF8(string(want), "\uFFFD"); got != w {
			t.Errorf("got %q, want %q", got, w)
		}
	})
}

func bytesChunks(b []byte, n int) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			k := min(n, len(b))
			if !yield(bytes.Clone(b[:k])) {
				return
			}
			b = b[k:]
		}
	}
}

func TestRedactor(t *testing.T) {
	t.Parallel()
	const token = "0b1c2d3e-4f50"
	for _, tt := range []struct {
		name    string
		secrets []string
		in      string
		want    string
	}{
		{"nothing to hide", []string{token}, "plain\n", "plain\n"},
		{"once", []string{token}, "token=" + token + "\n", "token=[redacted]\n"},
		{"at the ends", []string{token}, token + token, "[redacted][redacted]"},
		{"only begun", []string{token}, "x" + token[:12], "x" + token[:12]},
		{"begun within itself", []string{token}, token[:5] + token, token[:5] + "[redacted]"},
		{"two", []string{token, "second"}, "second" + token + "secon", "[redacted][redacted]secon"},
		{"one begins with the other", []string{"abc", "abcdef"}, "abcdef", "[redacted]"},
		{"repeated characters", []string{"aab"}, "aaaab", "aa[redacted]"},
		{"an empty one", []string{"", "b"}, "abc", "a[redacted]c"},
	} {
		for _, size := range []int{1, 2, 3, 5, 1 << 10} {
			var out bytes.Buffer
			r := newRedactor(tt.secrets, &out)
			for rest := []byte(tt.in); len(rest) > 0; {
				n := min(size, len(rest))
				if _, err := r.Write(rest[:n]); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			r.flush()
			// In small writes a secret may be complete before a longer one is.
			if got := out.String(); got != tt.want && (size > 5 || tt.name != "one begins with the other") {
				t.Errorf("%s, %d at a time: got %q, want %q", tt.name, size, got, tt.want)
			}
		}
	}
	if newRedactor([]string{""}, &bytes.Buffer{}) != nil {
		t.Error("no secrets: got a redactor")
	}
}

// TestRedact: neither the sinks nor the tail contain a secret, even one that the
// tail would have cut.
func TestRedact(t *testing.T) {
	t.Parallel()
	const token = "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0"
	var out bytes.Buffer
	c := sh("printf '%s' " + token[:20] + "; printf '%s\n' " + token[20:] + "; echo end of it >&2")
	c.Redact, c.Stdout, c.Stderr, c.MaxOutput = []string{token}, &out, &out, 20
	got, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != "[redacted]\nend of it\n" {
		t.Errorf("sink: got %q", &out)
	}
	if got.Output != "redacted]\nend of it\n" || !got.Truncated {
		t.Errorf("tail: got %q", got.Output)
	}
	if strings.Contains(got.Output, token[30:]) {
		t.Error("the tail holds the end of the secret")
	}
}

// slow is a writer whose first Write waits until it is released.
type slow struct {
	first            sync.Once
	entered, release chan struct{}
}

func (s *slow) Write(p []byte) (int, error) {
	s.first.Do(func() {
		close(s.entered)
		<-s.release
	})
	return len(p), nil
}

// TestOutputOfABusyMachine: what a command has written is read although the time for
// reading was over before, also while a child keeps the pipe open.
func TestOutputOfABusyMachine(t *testing.T) {
	t.Parallel()
	s, kept := &slow{entered: make(chan struct{}), release: make(chan struct{})}, newTail(0)
	o, err := newOutput(Command{Stdout: s, Stderr: s}, kept)
	if err != nil {
		t.Fatal(err)
	}
	defer o.started()
	write := func(text string) {
		if _, err := o.stdout.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	write("first\n")
	<-s.entered
	write("second\n")
	for _, r := range o.readers {
		if err := r.SetReadDeadline(time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	close(s.release)
	o.drain(0)
	if got, _ := kept.text(); got != "first\nsecond\n" {
		t.Errorf("got %q", got)
	}
}
