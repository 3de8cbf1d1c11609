package text_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jorc/jorc/internal/text"
)

func TestNames(t *testing.T) {
	t.Parallel()
	const visible, segment, name = 1, 2, 3 // the strictest check that accepts it
	for _, test := range []struct {
		name    string
		accepts int
		reason  string
	}{
		{"v1", name, ""},
		{"a.b-c_d", name, ""},
		{"größer", name, ""},
		{"...", name, ""},
		{"\uFFFD", name, ""},
		{strings.Repeat("x", 128), name, ""},
		{"web 1", segment, "a space at position 4"},
		{"a\u00a0b", segment, `'\u00a0' at position 2`},
		{"a\u200bb", segment, `'\u200b' at position 2`},
		{"a/b", visible, "'/' at position 2"},
		{".", visible, "means a directory"},
		{"..", visible, "means a directory"},
		{strings.Repeat("x", 129), visible, "129 bytes"},
		{"", 0, "empty"},
		{" a", 0, "a space at position 1"},
		{"a ", 0, "a space at position 2"},
		{"ä\n", 0, `'\n' at position 2`},
		{"a\x00b", 0, `'\x00' at position 2`},
		{"ä\xffb", 0, "0xff at position 2"},
	} {
		for level, check := range []func(string) error{text.CheckVisible, text.CheckSegment, text.CheckName} {
			err := check(test.name)
			if accepted := level+1 <= test.accepts; accepted != (err == nil) {
				t.Errorf("level %d: %q: %v", level+1, test.name, err)
			}
			if err != nil && (!errors.Is(err, text.ErrName) || !strings.Contains(err.Error(), test.reason)) {
				t.Errorf("level %d: %q: %v, want %q", level+1, test.name, err, test.reason)
			}
		}
	}
}

func TestCheckCharacters(t *testing.T) {
	t.Parallel()
	if err := text.CheckCharacters("aä1-_", "-_"); err != nil {
		t.Error(err)
	}
	for name, reason := range map[string]string{"a$b": "'$' at position 2", "e\u0301": `'\u0301' at position 2`} {
		if err := text.CheckCharacters(name, "-_"); !errors.Is(err, text.ErrName) || !strings.Contains(err.Error(), reason+" is not allowed; letters, digits and - _ are") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// FuzzNames: an accepted name is one segment; an error is one line that a terminal
// can show, and stays short.
func FuzzNames(f *testing.F) {
	for _, seed := range []string{"v1", "a/b", "..", "\xff", "v 1", "\u202e", strings.Repeat("é", 65), "a\r\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		visible, segment, whole := text.CheckVisible(name), text.CheckSegment(name), text.CheckName(name)
		if whole == nil && segment != nil || segment == nil && visible != nil {
			t.Errorf("%q: visible %v, segment %v, name %v", name, visible, segment, whole)
		}
		if whole == nil && (len(strings.Fields(name)) != 1 || len(name) > text.MaxName || strings.Contains(name, "/")) {
			t.Errorf("%q is accepted", name)
		}
		for _, err := range []error{visible, segment, whole} {
			if err == nil {
				continue
			}
			if s := err.Error(); !errors.Is(err, text.ErrName) || !utf8.ValidString(s) || strings.ContainsAny(s, "\n\r\x00\x1b") || len(s) > 4096 {
				t.Errorf("%q: %q", name, s)
			}
		}
	})
}
