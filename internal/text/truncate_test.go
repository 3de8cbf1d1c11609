package text_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jorc/jorc/internal/text"
)

func TestTruncate(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		cut  func(string, int) string
		s    string
		n    int
		want string
	}{
		{"Truncate", text.Truncate, "short", 5, "short"},
		{"Truncate", text.Truncate, "longer", 5, "lo…"},
		{"Truncate", text.Truncate, "äöü", 5, "ä…"},
		{"Truncate", text.Truncate, "longer", 2, "lo"},
		{"Truncate", text.Truncate, "longer", 0, ""},
		{"Truncate", text.Truncate, "a\xff", 9, "a\uFFFD"},
		{"Line", text.Line, " a \n\tb ", 9, "a b"},
		{"Line", text.Line, "one\ntwo", 6, "one…"},
		{"Head", text.Head, "äöü", 5, "äö"},
		{"Head", text.Head, "äöü", 6, "äöü"},
		{"Head", text.Head, "ä", -1, ""},
		{"Tail", text.Tail, "äöü", 5, "öü"},
		{"Tail", text.Tail, "äöü", -1, ""},
		{"Tail", text.Tail, "one\ntwo\nthree four", 13, "three four"},
		{"Tail", text.Tail, "one\nlonger two", 12, "longer two"},
		{"Tail", text.Tail, "a long line\nb", 6, "line\nb"},
	} {
		if got := test.cut(test.s, test.n); got != test.want {
			t.Errorf("%s(%q, %d) = %q, want %q", test.name, test.s, test.n, got, test.want)
		}
	}
}

// FuzzTruncate: what remains is valid, short enough, and all of a text that fits.
func FuzzTruncate(f *testing.F) {
	f.Add("äöü\nline", 5)
	f.Add("\xff\xfe", 1)
	f.Fuzz(func(t *testing.T, s string, n int) {
		for name, cut := range map[string]func(string, int) string{
			"Truncate": text.Truncate, "Line": text.Line, "Head": text.Head, "Tail": text.Tail,
		} {
			got := cut(s, n)
			if len(got) > max(n, 0) || !utf8.ValidString(got) {
				t.Errorf("%s(%q, %d) = %q", name, s, n, got)
			}
			if fits := utf8.ValidString(s) && len(s) <= n; fits && name != "Line" && got != s {
				t.Errorf("%s(%q, %d) = %q", name, s, n, got)
			}
			if name == "Line" && strings.ContainsAny(got, "\n\r\t") {
				t.Errorf("Line(%q, %d) = %q", s, n, got)
			}
		}
	})
}
