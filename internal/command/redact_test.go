package command

import (
	"bytes"
	"strings"
	"testing"
)

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
			// In pieces a secret may be complete before a longer one is.
			if got := out.String(); got != tt.want && (size > 5 || tt.name != "one begins with the other") {
				t.Errorf("%s, %d at a time: got %q, want %q", tt.name, size, got, tt.want)
			}
		}
	}
	if newRedactor([]string{""}, &bytes.Buffer{}) != nil {
		t.Error("no secrets: got a redactor")
	}
}

// TestRedact: neither the sinks nor the tail hold a secret, also one that the
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
