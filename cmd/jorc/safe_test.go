package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// unsafeText returns what of text must not reach a terminal: everything below a
// blank but newlines, DEL, C1 controls, and bytes that are not UTF-8.
func unsafeText(text string) string {
	var found strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if r < ' ' && r != '\n' || r >= 0x7f && r <= 0x9f || r == utf8.RuneError && size == 1 {
			found.WriteString(text[:size])
		}
		text = text[size:]
	}
	return found.String()
}

func TestSafeWriter(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, want string }{
		{"plain text\n", "plain text\n"},
		{"größer 日本 🙂\n", "größer 日本 🙂\n"},
		{"\x1b[31mred\x1b[0m\a", `\u001b[31mred\u001b[0m\u0007`},
		{"\x1b]0;title\x07", `\u001b]0;title\u0007`},
		{"\u009b31m", `\u009b31m`},
		{"\x9b31m", `\x9b31m`},
		{"\x7f", `\u007f`},
		{"a\tb\n\tc\n12345678\tz", "a       b\n        c\n12345678        z"},
		{"one\r\ntwo\r\n10%\r20%\r", "one\ntwo\n10%\\u000d20%\\u000d"},
		{"a\u202eb", `a\u202eb`},
		{"cut \xe6\x97", `cut \xe6\x97`},
		{"\uFFFD is a character", "\uFFFD is a character"},
	} {
		for step := 1; step <= len(test.text); step++ {
			var b bytes.Buffer
			w := safe(&b)
			for at := 0; at < len(test.text); at += step {
				if _, err := w.Write([]byte(test.text[at:min(at+step, len(test.text))])); err != nil {
					t.Fatal(err)
				}
			}
			w.flush()
			if b.String() != test.want {
				t.Errorf("%q in pieces of %d: got %q, want %q", test.text, step, b.String(), test.want)
			}
		}
	}
}

// FuzzSafeWriter: however text comes in, nothing that steers a terminal comes out,
// text without such bytes is left as it is, and JSON keeps its meaning.
func FuzzSafeWriter(f *testing.F) {
	f.Add([]byte("a\x1b[2J\u009b\x9b\tz\r\n"), 3)
	f.Add([]byte("größer\xff"), 1)
	f.Add([]byte(`{"a":"`+"\u0080\u007f\u202e"+`"}`), 2)
	f.Fuzz(func(t *testing.T, text []byte, step int) {
		var b bytes.Buffer
		w := safe(&b)
		step = max(step%16, -step%16, 1)
		for at := 0; at < len(text); at += step {
			if n, err := w.Write(text[at:min(at+step, len(text))]); err != nil || n != min(step, len(text)-at) {
				t.Fatalf("%d bytes written: %v", n, err)
			}
		}
		w.flush()
		got := b.String()
		if bad := unsafeText(got); bad != "" {
			t.Errorf("%q became %q, which holds %q", text, got, bad)
		}
		if unsafeText(string(text)) == "" && !strings.ContainsFunc(string(text), steers) && got != string(text) {
			t.Errorf("%q became %q", text, got)
		}
		if strings.ContainsFunc(strings.ReplaceAll(got, "\n", ""), steers) {
			t.Errorf("%q became %q", text, got)
		}
		quoted, err := json.Marshal(string(text))
		if err != nil {
			t.Fatal(err)
		}
		b.Reset()
		if _, err := w.Write(quoted); err != nil {
			t.Fatal(err)
		}
		w.flush()
		var before, after string
		if json.Unmarshal(quoted, &before) != nil || json.Unmarshal(b.Bytes(), &after) != nil || before != after {
			t.Errorf("JSON %s became %s", quoted, b.Bytes())
		}
	})
}
