package profile_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/profile"
)

func TestReferences(t *testing.T) {
	t.Parallel()
	var e profile.Editor
	d := shared(t, `{"n":1,"s":"foo","null":null,"o":{"a":1,"b":[2]}}`)
	d, err := e.SetSchema(d, "defaulted", js(t, `{"default":"none"}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, key string
		ref       profile.Ref
		want      error
	}{
		{"no reference", "n", profile.Ref{}, nil},
		{"no reference to nothing", "x", profile.Ref{}, nil},
		{"equal", "n", profile.Ref{Value: ref(t, `1`)}, nil},
		{"equal as numbers", "n", profile.Ref{Value: ref(t, `1.0`)}, nil},
		{"equal as objects", "o", profile.Ref{Value: ref(t, `{"b":[2e0],"a":1}`)}, nil},
		{"another", "n", profile.Ref{Value: ref(t, `2`)}, profile.ErrMismatch},
		{"another type", "n", profile.Ref{Value: ref(t, `"1"`)}, profile.ErrMismatch},
		{"missing", "x", profile.Ref{Value: ref(t, `1`)}, profile.ErrMismatch},
		{"missing is not null", "x", profile.Ref{Value: ref(t, `null`)}, profile.ErrMismatch},
		{"null", "null", profile.Ref{Value: ref(t, `null`)}, nil},
		{"default does not matter when present", "n", profile.Ref{Value: ref(t, `2`), Default: ref(t, `2`)}, profile.ErrMismatch},
		{"null is present", "null", profile.Ref{Value: ref(t, `2`), Default: ref(t, `2`)}, profile.ErrMismatch},
		{"missing counts as the default", "x", profile.Ref{Value: ref(t, `"none"`), Default: ref(t, `"none"`)}, nil},
		{"missing and another default", "x", profile.Ref{Value: ref(t, `"none"`), Default: ref(t, `"some"`)}, profile.ErrMismatch},
		{"only a schema's default is missing", "defaulted", profile.Ref{Value: ref(t, `"none"`)}, profile.ErrMismatch},
		{"only a schema's default counts as the given one", "defaulted", profile.Ref{Value: ref(t, `"x"`), Default: ref(t, `"x"`)}, nil},
		{"absent", "x", profile.Ref{Absent: true}, nil},
		{"absent with a schema's default", "defaulted", profile.Ref{Absent: true}, nil},
		{"not absent", "n", profile.Ref{Absent: true}, profile.ErrMismatch},
		{"null is not absent", "null", profile.Ref{Absent: true}, profile.ErrMismatch},
		{"both", "n", profile.Ref{Absent: true, Value: ref(t, `1`)}, profile.ErrInvalid},
		{"default alone", "n", profile.Ref{Default: ref(t, `1`)}, profile.ErrInvalid},
	} {
		set, setErr := e.Set(d, profile.Scope{}, tt.key, js(t, `"new"`), tt.ref)
		gone, removeErr := e.Remove(d, profile.Scope{}, tt.key, tt.ref)
		if tt.want != nil {
			wantIs(t, "set, "+tt.name, setErr, tt.want)
			wantIs(t, "remove, "+tt.name, removeErr, tt.want)
			continue
		}
		if setErr != nil || set.Params[tt.key].String() != `"new"` {
			t.Errorf("set, %s: %v, %v", tt.name, set.Params[tt.key], setErr)
		}
		if _, there := gone.Params[tt.key]; there || removeErr != nil {
			t.Errorf("remove, %s: still there %t, %v", tt.name, there, removeErr)
		}
	}
}

func TestMismatch(t *testing.T) {
	t.Parallel()
	var e profile.Editor
	d := shared(t, `{"n":"`+strings.Repeat("ü", 30_000)+`"}`)
	_, err := e.Set(d, profile.Scope{}, "n", js(t, `1`), profile.Ref{Value: ref(t, `2`)})
	var m *profile.MismatchError
	if !errors.As(err, &m) || m.Key != "n" || !m.HavePresent || !m.Have.Equal(d.Params["n"]) || m.Want.String() != "2" {
		t.Fatalf("got %#v", err)
	}
	if strings.Contains(err.Error(), "ü") || !strings.Contains(err.Error(), "is not what the reference asks for") {
		t.Errorf("got %q", err)
	}
	_, err = e.Set(d, profile.Scope{}, "x", js(t, `1`), profile.Ref{Value: ref(t, `2`)})
	if !errors.As(err, &m) || m.HavePresent || !strings.Contains(err.Error(), `param "x" does not exist`) {
		t.Errorf("of a missing one: %v", err)
	}
	_, err = e.Set(d, profile.Scope{}, "n", js(t, `1`), profile.Ref{Absent: true})
	if !errors.As(err, &m) || m.Want != nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("of one that should be missing: %v", err)
	}
}

func TestScopesAndKeys(t *testing.T) {
	t.Parallel()
	var e profile.Editor
	d := shared(t, `{"n":1}`)
	role := profile.Scope{Role: "db"}
	withRole, err := e.Set(d, role, "n", js(t, `2`), profile.Ref{Absent: true})
	if err != nil || withRole.Roles["db"]["n"].String() != "2" || withRole.Params["n"].String() != "1" {
		t.Errorf("a role's param: %s, %v", withRole.Value(), err)
	}
	if back, err := e.Remove(withRole, role, "n", profile.Ref{Value: ref(t, `2`)}); err != nil || !back.Identical(d) {
		t.Errorf("removed again: %s, %v", back.Value(), err)
	}
	if len(d.Roles) != 0 {
		t.Errorf("the old document changed: %v", d.Roles)
	}
	for _, key := range []string{"", "a\x00b", "\xff", strings.Repeat("k", 513)} {
		_, err := e.Set(d, profile.Scope{}, key, js(t, `1`), profile.Ref{})
		wantIs(t, key, err, profile.ErrInvalid)
	}
	_, err = e.Set(d, profile.Scope{Role: "a/b"}, "n", js(t, `1`), profile.Ref{})
	wantIs(t, "a role's name", err, profile.ErrInvalid)
	_, err = e.Remove(d, profile.Scope{}, profile.SelfKey, profile.Ref{})
	wantIs(t, "removing the own name", err, profile.ErrInvalid)
	_, err = e.Set(d, profile.Scope{}, profile.SelfKey, js(t, `"x"`), profile.Ref{})
	wantIs(t, "changing the own name", err, profile.ErrInvalid)
	if same, err := e.Remove(d, profile.Scope{}, "gone", profile.Ref{}); err != nil || !same.Identical(d) {
		t.Errorf("removing what is gone: %v", err)
	}
	if all, err := e.SetParams(d, profile.Scope{}, params(t, `{"x":1}`)); err != nil || all.Params.Value().String() != `{"cluster/profile":"prod","x":1}` {
		t.Errorf("all params: %s, %v", all.Params.Value(), err)
	}
	if imported, err := e.Import(d, []byte(`{"name":"prod","params":{"y":2}}`)); err != nil || imported.Params.Value().String() != `{"cluster/profile":"prod","y":2}` {
		t.Errorf("import: %v", err)
	}
	_, err = e.Import(d, []byte(`{"name":"other"}`))
	wantIs(t, "import of another", err, profile.ErrInvalid)
}

func TestReplaceParams(t *testing.T) {
	t.Parallel()
	var e profile.Editor
	for _, tt := range []struct{ name, now, before, after, want string }{
		{"nothing differs", `{"a":1,"b":2}`, `{"a":5}`, `{"a":5.0}`, `{"a":1,"b":2}`},
		{"changed, added, removed", `{"a":1,"b":2,"c":3}`, `{"a":1,"b":2}`, `{"a":9,"d":4}`, `{"a":9,"c":3,"d":4}`},
		{"others changed meanwhile", `{"a":1,"b":7,"c":8}`, `{"a":1,"b":2}`, `{"a":9,"b":2}`, `{"a":9,"b":7,"c":8}`},
		{"a changed one changed meanwhile", `{"a":2}`, `{"a":1}`, `{"a":9}`, ""},
		{"a changed one is gone", `{}`, `{"a":1}`, `{"a":9}`, ""},
		{"an added one is there", `{"a":1}`, `{}`, `{"a":1}`, ""},
		{"a removed one changed", `{"a":2}`, `{"a":1}`, `{}`, ""},
		{"a removed one is gone", `{}`, `{"a":1}`, `{}`, ""},
		{"equal as numbers", `{"a":1.0}`, `{"a":1}`, `{"a":2}`, `{"a":2}`},
		{"a null that comes", `{}`, `{}`, `{"a":null}`, `{"a":null}`},
	} {
		d := shared(t, tt.now)
		got, err := e.ReplaceParams(d, profile.Scope{}, params(t, tt.before), params(t, tt.after))
		if tt.want == "" {
			wantIs(t, tt.name, err, profile.ErrMismatch)
			continue
		}
		if err != nil || !got.Identical(shared(t, tt.want)) {
			t.Errorf("%s: %s, %v, want %s", tt.name, got.Params.Value(), err, tt.want)
		}
	}
	_, err := e.ReplaceParams(shared(t, `{}`), profile.Scope{}, params(t, `{"a":1,"b":1,"c":1}`), params(t, `{"c":1}`))
	var m *profile.MismatchError
	if !errors.As(err, &m) || m.Key != "a" || len(m.More) != 1 || !strings.Contains(err.Error(), "1 more do not match") {
		t.Errorf("two that do not match: %v", err)
	}
	_, err = e.ReplaceParams(shared(t, `{}`), profile.Scope{}, params(t, `{"cluster/profile":"prod"}`), params(t, `{}`))
	wantIs(t, "the own name", err, profile.ErrInvalid)
}

// TestErrorsContainNoValue: a value of a param may be a secret.
func TestErrorsContainNoValue(t *testing.T) {
	t.Parallel()
	var e profile.Editor
	d, err := e.SetSchema(shared(t, `{"k":"hunter2"}`), "s", js(t, `{"type":"object","properties":{"p":{"enum":["a"]},"q":{"pattern":"^x"},"n":{"maximum":1}},"propertyNames":{"maxLength":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	set := func(key, value string, ref profile.Ref) error {
		_, err := e.Set(d, profile.Scope{}, key, js(t, value), ref)
		return err
	}
	patch := func(text string) error {
		p, err := profile.ParsePatch([]byte(text))
		if err == nil {
			_, err = e.Patch(d, p)
		}
		return err
	}
	_, params := profile.ParseParams(`"hunter2"`)
	_, yaml := profile.ParseYAML("a: [hunter2")
	for name, err := range map[string]error{
		"reference":          set("k", `1`, profile.Ref{Value: ref(t, `"hunter3"`)}),
		"absent":             set("k", `1`, profile.Ref{Absent: true}),
		"missing":            set("x", `1`, profile.Ref{Value: ref(t, `"hunter2"`)}),
		"type":               set("s", `"hunter2"`, profile.Ref{}),
		"enum":               set("s", `{"p":"hunter2"}`, profile.Ref{}),
		"pattern":            set("s", `{"q":"hunter2"}`, profile.Ref{}),
		"maximum":            set("s", `{"n":31415926}`, profile.Ref{}),
		"own name":           set(profile.SelfKey, `"hunter2"`, profile.Ref{}),
		"patch":              patch(`[{"op":"test","path":"/params/k","value":"hunter3"}]`),
		"no patch":           patch(`"hunter2"`),
		"patch of no object": patch(`[{"op":"replace","path":"/params","value":"hunter2"}]`),
		"params":             params,
		"yaml":               yaml,
		"meta":               profile.CheckMeta(profile.MetaColour, js(t, `"hunter2"`)),
	} {
		if err == nil || strings.Contains(err.Error(), "hunter") || strings.Contains(err.Error(), "31415926") {
			t.Errorf("%s: %v, want an error without the value", name, err)
		}
	}
}
