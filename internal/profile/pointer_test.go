package profile_test

import (
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/profile"
)

// TestPointerExamples are those of RFC 6901, section 5.
func TestPointerExamples(t *testing.T) {
	t.Parallel()
	example := js(t, `{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,"k\"l":6," ":7,"m~n":8}`)
	tests := []struct{ pointer, want string }{
		{"", example.String()},
		{"/foo", `["bar","baz"]`},
		{"/foo/0", `"bar"`},
		{"/", `0`},
		{"/a~1b", `1`},
		{"/c%d", `2`},
		{"/e^f", `3`},
		{"/g|h", `4`},
		{`/i\j`, `5`},
		{`/k"l`, `6`},
		{"/ ", `7`},
		{"/m~0n", `8`},
	}
	for _, tt := range tests {
		p, err := profile.ParsePointer(tt.pointer)
		if err != nil {
			t.Errorf("ParsePointer(%q) = %v", tt.pointer, err)
			continue
		}
		if got, err := example.Lookup(p); err != nil || got.String() != tt.want {
			t.Errorf("%q names %s, %v, want %s", tt.pointer, got, err, tt.want)
		}
		if p.String() != tt.pointer {
			t.Errorf("%q is written %q", tt.pointer, p)
		}
	}
}

func TestPointers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"/~01":      {"~1"},
		"/~10":      {"/0"},
		"/~00~11":   {"~0/1"},
		"/~0~0~1~1": {"~~//"},
		"//":        {"", ""},
		"/a/":       {"a", ""},
		"/ü/☃":      {"ü", "☃"},
	} {
		p, err := profile.ParsePointer(text)
		if err != nil || strings.Join(p, "\x00") != strings.Join(want, "\x00") || p.String() != text {
			t.Errorf("ParsePointer(%q) = %q, %v, want %q", text, []string(p), err, want)
		}
	}
	for _, text := range []string{"a", "#/a", "/~", "/~2", "/a~", "/~0~", "/a/~a", " /a", "/~~01"} {
		p, err := profile.ParsePointer(text)
		if err == nil {
			t.Errorf("ParsePointer(%q) = %q, want an error", text, []string(p))
			continue
		}
		wantIs(t, text, err, profile.ErrInvalid)
	}
	v := js(t, `{"a":[1,2,3],"s":"x","n":null}`)
	for _, text := range []string{
		"/b", "/a/3", "/a/-", "/a/-1", "/a/01", "/a/00", "/a/1e0", "/a/+1", "/a/ 1", "/a/", "/a/1/x", "/a/99999999999999999999",
		"/a/٣", "/s/0", "/n/x", "/a/18446744073709551617",
	} {
		p, err := profile.ParsePointer(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := v.Lookup(p); err == nil {
			t.Errorf("%q names %s, want an error", text, got)
		} else {
			wantIs(t, text, err, profile.ErrInvalid)
		}
	}
}
