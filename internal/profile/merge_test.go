package profile_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/profile"
)

func TestMerge(t *testing.T) {
	t.Parallel()
	var e profile.Editor
	for _, tt := range []struct{ name, base, mine, theirs, want, conflicts string }{
		{"nothing", `{"a":1}`, `{"a":1}`, `{"a":1}`, `{"a":1}`, ""},
		{"mine only", `{"a":1}`, `{"a":2,"b":1}`, `{"a":1}`, `{"a":2,"b":1}`, ""},
		{"theirs only", `{"a":1}`, `{"a":1}`, `{"b":1}`, `{"b":1}`, ""},
		{"different params", `{"a":1,"b":1}`, `{"a":2,"b":1}`, `{"a":1,"c":3}`, `{"a":2,"c":3}`, ""},
		{"the same change", `{"a":1}`, `{"a":2.0}`, `{"a":2}`, `{"a":2}`, ""},
		{"inside an object", `{"o":{"x":1,"y":1}}`, `{"o":{"x":2,"y":1}}`, `{"o":{"x":1,"z":3}}`, `{"o":{"x":2,"z":3}}`, ""},
		{"both add objects", `{}`, `{"o":{"x":1}}`, `{"o":{"y":1}}`, `{"o":{"x":1,"y":1}}`, ""},
		{"another value", `{"a":1}`, `{"a":2}`, `{"a":3}`, "", "/params/a"},
		{"both add", `{}`, `{"a":2}`, `{"a":3}`, "", "/params/a"},
		{"I remove what they change", `{"a":1}`, `{}`, `{"a":3}`, "", "/params/a"},
		{"they remove what I change", `{"o":{"x":1}}`, `{"o":{"x":2}}`, `{}`, "", "/params/o"},
		{"arrays", `{"l":[1]}`, `{"l":[1,2]}`, `{"l":[0,1]}`, "", "/params/l"},
		{"inside, two", `{"o":{"x":1,"y":1}}`, `{"o":{"x":2,"y":2}}`, `{"o":{"x":3,"y":3}}`, "", "/params/o/x, /params/o/y"},
		{"names are escaped", `{"a/b":1}`, `{"a/b":2}`, `{"a/b":3}`, "", "/params/a~1b"},
	} {
		base, mine, theirs := shared(t, tt.base), shared(t, tt.mine), shared(t, tt.theirs)
		got, err := e.Merge(base, mine, theirs)
		if tt.conflicts == "" {
			if err != nil || !got.Equal(shared(t, tt.want)) {
				t.Errorf("%s: %s, %v, want %s", tt.name, got.Value(), err, tt.want)
			}
			continue
		}
		wantIs(t, tt.name, err, profile.ErrConflicts)
		if err != nil && !strings.Contains(err.Error(), ": "+tt.conflicts+";") {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.conflicts)
		}
	}
}

func TestMergeReport(t *testing.T) {
	t.Parallel()
	var e profile.Editor
	_, err := e.Merge(shared(t, `{"a":1}`), shared(t, `{"a":"mine"}`), shared(t, `{}`))
	var c *profile.ConflictsError
	if !errors.As(err, &c) {
		t.Fatalf("got %v", err)
	}
	want := "/params/a\n  it was  1\n  yours   \"mine\"\n  theirs  (nothing)\n"
	if got := c.Report(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestMergeObeysSchemas: two changes that are fine alone may not be together.
func TestMergeObeysSchemas(t *testing.T) {
	t.Parallel()
	var e profile.Editor
	base := withSchema(t, &e, `{"maxProperties":1}`)
	set := func(v string) profile.Document {
		d, err := e.Set(base, profile.Scope{}, "p", js(t, v), profile.Ref{})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	_, err := e.Merge(base, set(`{"a":1}`), set(`{"b":1}`))
	wantIs(t, "both", err, profile.ErrSchema)
}

func TestMeta(t *testing.T) {
	t.Parallel()
	var e profile.Editor
	d := shared(t, `{}`)
	for _, tt := range []struct {
		key, value string
		ok         bool
	}{
		{"icon", `"🐘"`, true},
		{"icon", `""`, false},
		{"icon", `1`, false},
		{"icon", `"` + strings.Repeat("x", 257) + `"`, false},
		{"colour", `"#fff"`, true},
		{"colour", `"#A0b1C2"`, true},
		{"colour", `"teal"`, true},
		{"colour", `"#ffff1"`, false},
		{"colour", `"red; background: url(x)"`, false},
		{"colour", `null`, false},
		{"owner", `{"team":"db"}`, true},
		{"", `1`, false},
	} {
		got, err := e.SetMeta(d, tt.key, js(t, tt.value))
		if !tt.ok {
			wantIs(t, tt.key+tt.value[:min(20, len(tt.value))], err, profile.ErrInvalid)
			continue
		}
		if err != nil || got.Meta[tt.key].String() != tt.value {
			t.Errorf("meta %s = %s: %v, %v", tt.key, tt.value, got.Meta, err)
		}
		if back, err := e.RemoveMeta(got, tt.key); err != nil || !back.Identical(d) {
			t.Errorf("meta %s removed: %v, %v", tt.key, back.Meta, err)
		}
	}
}
