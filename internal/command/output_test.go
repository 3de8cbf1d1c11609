package command

import (
	"bytes"
	"strings"
	"testing"
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
