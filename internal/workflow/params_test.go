package workflow

import (
	"errors"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/profile"
)

func TestParseParam(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ in, name, want string }{
		{"a=1", "a", "1"},
		{"a=", "a", `""`},
		{"a=b=c", "a", `"b=c"`},
		{"cluster/x=true", "cluster/x", "true"},
		{`a={"k": [1, "x"]}`, "a", `{"k":[1,"x"]}`},
		{"a=1.10", "a", "1.10"},
		{"a=plain words", "a", `"plain words"`},
		{"a={", "a", `"{"`},
		{"a=007", "a", `"007"`},
		{`a="1"`, "a", `"1"`},
	} {
		name, v, err := ParseParam(test.in, profile.ParseValue)
		if err != nil || name != test.name || v.String() != test.want {
			t.Errorf("%s: got %s, %v, %v, want %s, %s", test.in, name, v, err, test.name, test.want)
		}
	}
	for _, bad := range []string{"", "a", "=1", "a\n=1", "\xff=1", `a={"x":1,"x":2}`, strings.Repeat("x", 513) + "=1"} {
		if _, _, err := ParseParam(bad, profile.ParseValue); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: got %v, want ErrInvalid", bad, err)
		}
	}
}

func FuzzParseParam(f *testing.F) {
	for _, s := range []string{"a=1", "a", "=", "a={\"b\": [1, 2.50]}", "a=- x\n- y", "a='it''s'", "a=&x [*x]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, v, err := ParseParam(s, profile.ParseValue)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("%q: got %v, want ErrInvalid", s, err)
			}
			return
		}
		// What was read can be used, quoted and printed in templates.
		facts := newFacts(t.Context(), &Options{Node: "n"}, Job{Params: profile.Params{name: v}})
		if _, err := render("{{range $k, $v := .Params}}{{$v}} {{json $v}}{{end}}", facts); err != nil && !strings.Contains(err.Error(), "grows beyond") {
			t.Fatalf("%q: param %q: %v", s, name, err)
		}
	})
}

func FuzzQuote(f *testing.F) {
	for _, s := range hostile {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := quote(s)
		if strings.ContainsRune(s, 0) {
			if err == nil {
				t.Fatal("a zero byte was quoted")
			}
			return
		}
		// Read it as a shell does: quotes open and close, a backslash between takes the next as it is.
		var out strings.Builder
		inside := false
		for i := 0; i < len(got); i++ {
			switch c := got[i]; {
			case c == '\'':
				inside = !inside
			case inside:
				out.WriteByte(c)
			case c == '\\':
				i++
				out.WriteByte(got[i])
			default:
				t.Fatalf("%q: %q is outside of quotes in %s", s, c, got)
			}
		}
		if inside || out.String() != s {
			t.Fatalf("got %s for %q: a shell reads %q", got, s, out.String())
		}
	})
}
