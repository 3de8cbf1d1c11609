package profile_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/profile"
)

func TestNew(t *testing.T) {
	t.Parallel()
	d, err := profile.New("prod")
	if err != nil {
		t.Fatal(err)
	}
	want := `{"format":1,"name":"prod","params":{"cluster/profile":"prod"},"meta":{},"schemas":{},"roles":{}}`
	if got := encoded(t, d); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if err := d.Validate(); err != nil {
		t.Errorf("Validate = %v", err)
	}
	for _, name := range []string{"", "a/b", "a b", "a\n", ".", "..", "\xff", strings.Repeat("x", 129), "a\u00a0b"} {
		_, err := profile.New(name)
		wantIs(t, fmt.Sprintf("New(%q)", name), err, profile.ErrInvalid)
	}
}

func TestDecodeKeepsEverything(t *testing.T) {
	t.Parallel()
	in := `{"zeta":{"b":1e400,"a":[null]},"roles":{"db":{"y":2,"x":1.0}},"format":1,"name":"prod","alpha":"\u00fc",` +
		`"params":{"cluster/profile":"prod","big":123456789012345678901234567890},"schemas":{"x":{"type":"number"}},"meta":{"icon":"🐘"}}`
	want := `{"format":1,"name":"prod","params":{"big":123456789012345678901234567890,"cluster/profile":"prod"},"meta":{"icon":"🐘"},` +
		`"schemas":{"x":{"type":"number"}},"roles":{"db":{"x":1.0,"y":2}},"alpha":"ü","zeta":{"a":[null],"b":1e400}}`
	d := doc(t, in)
	if got := encoded(t, d); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var e profile.Editor
	next, err := e.Set(d, profile.Scope{}, "n", js(t, `1`), profile.Ref{})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Replace(encoded(t, next), `,"n":1`, "", 1); got != want {
		t.Errorf("a change of one param: %s", got)
	}
	if encoded(t, d) != want {
		t.Errorf("the old document changed: %s", encoded(t, d))
	}
	if !doc(t, string(d.Indented())).Identical(d) {
		t.Errorf("indented it is another document: %s", d.Indented())
	}
}

// TestStoredByPackageKV: package kv encodes with encoding/json and puts the
// format number in front.
func TestStoredByPackageKV(t *testing.T) {
	t.Parallel()
	d := doc(t, `{"format":1,"name":"prod","params":{"cluster/profile":"prod","h":"<&>\u2028"},"more":1}`)
	data, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var back profile.Document
	if err := json.Unmarshal([]byte(`{"format":1,`+string(data[1:])), &back); err != nil || !back.Identical(d) {
		t.Errorf("%s is read back as %s, %v", data, back.Value(), err)
	}
	if strings.Contains(string(data), "format") {
		t.Errorf("the format number is there twice: %s", data)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in, want string
		class    error
	}{
		{``, "too early", profile.ErrDamaged},
		{`{`, "too early", profile.ErrDamaged},
		{`[]`, "an array and not an object", profile.ErrDamaged},
		{`null`, "a null", profile.ErrDamaged},
		{`{}`, `"name"`, profile.ErrDamaged},
		{`{"name":1}`, `"name"`, profile.ErrDamaged},
		{`{"name":"a","name":"a"}`, "twice", profile.ErrDamaged},
		{`{"name":"a","params":{"x":1,"x":2}}`, "twice", profile.ErrDamaged},
		{`{"name":"a","params":[]}`, "params", profile.ErrDamaged},
		{`{"name":"a","roles":{"db":1}}`, "roles/db", profile.ErrDamaged},
		{`{"name":"a","format":"1"}`, "format", profile.ErrDamaged},
		{`{"name":"a","format":-1}`, "format", profile.ErrDamaged},
		{`{"name":"a","format":1.5}`, "format", profile.ErrDamaged},
		{`{"name":7,"format":2}`, "upgrade", profile.ErrNewer},
		{"{\"name\":\"\xff\"}", "UTF-8", profile.ErrDamaged},
		{`{"name":"a"} x`, "unexpected", profile.ErrDamaged},
		{`{"name":"a","x":` + strings.Repeat("[", 128) + strings.Repeat("]", 128) + `}`, "too deep", profile.ErrDamaged},
	} {
		_, err := profile.Decode([]byte(tt.in))
		wantIs(t, tt.in[:min(60, len(tt.in))], err, tt.class)
		if err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.60s: %v, want %q", tt.in, err, tt.want)
		}
	}
	d := doc(t, `{"name":"a","params":null,"roles":{"db":null}}`)
	if d.Params == nil || d.Roles["db"] == nil || d.Meta == nil {
		t.Errorf("sections that are null or missing: %#v", d)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"name":"a"}`: "must be",
		`{"name":"a","params":{"cluster/profile":"b"}}`:                       `must be "a"`,
		`{"name":"a","params":{"cluster/profile":1}}`:                         `must be "a"`,
		`{"name":"a b","params":{"cluster/profile":"a b"}}`:                   "a space at position 2",
		`{"name":"a","params":{"cluster/profile":"a"},"roles":{"x/y":{}}}`:    "role",
		`{"name":"a","params":{"cluster/profile":"a"},"roles":{"":{"x": 1}}}`: "empty",
	} {
		err := doc(t, in).Validate()
		wantIs(t, in, err, profile.ErrInvalid)
		if err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
	// The first change adds what is missing; a wrong name has to be set.
	var e profile.Editor
	d, err := e.Set(doc(t, `{"name":"a"}`), profile.Scope{}, "x", js(t, `1`), profile.Ref{})
	if err != nil || !strings.Contains(encoded(t, d), `"cluster/profile":"a"`) {
		t.Errorf("a change of a profile without its name: %s, %v", d.Value(), err)
	}
	wrong := doc(t, `{"name":"a","params":{"cluster/profile":"b"}}`)
	if _, err := e.Set(wrong, profile.Scope{}, "x", js(t, `1`), profile.Ref{}); !errors.Is(err, profile.ErrInvalid) {
		t.Errorf("a change of a profile with another's name: %v", err)
	}
	if _, err := e.Set(wrong, profile.Scope{}, profile.SelfKey, js(t, `"a"`), profile.Ref{}); err != nil {
		t.Errorf("setting it right: %v", err)
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	var e profile.Editor
	d := shared(t, `{}`)
	if s := d.Size(); s.Bytes != len(encoded(t, d)) || s.String() != "1 % of Consul's 512 KiB" || s.Warning() != "" {
		t.Errorf("a small one: %d bytes, %s", s.Bytes, s)
	}
	free := profile.MaxSize - d.Size().Bytes - len(`"x":"",`)
	fits, err := profile.Text(strings.Repeat("x", free))
	if err != nil {
		t.Fatal(err)
	}
	full, err := e.Set(d, profile.Scope{}, "x", fits, profile.Ref{})
	if err != nil || full.Size().Bytes != profile.MaxSize || full.Size().Percent() != 100 || full.Size().Warning() == "" {
		t.Errorf("a full one: %v, %v", full.Size(), err)
	}
	beyond, err := profile.Text(strings.Repeat("x", free+1))
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Set(d, profile.Scope{}, "x", beyond, profile.Ref{})
	var size *profile.SizeError
	if !errors.As(err, &size) || size.Bytes != profile.MaxSize+1 || !errors.Is(err, profile.ErrTooLarge) {
		t.Errorf("one byte more: %v", err)
	}
	// Values as deep as they may be still fit into a document.
	deep := js(t, strings.Repeat("[", 100)+strings.Repeat("]", 100))
	if d, err = e.Set(d, profile.Scope{Role: "db"}, "deep", deep, profile.Ref{}); err != nil || !doc(t, encoded(t, d)).Identical(d) {
		t.Errorf("100 levels: %v", err)
	}
}
