package profile_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/big"
	"reflect"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/profile"
)

// wantClass: every error is of a class and one line.
func wantClass(t *testing.T, err error) {
	t.Helper()
	for _, class := range []error{
		profile.ErrInvalid, profile.ErrTooLarge, profile.ErrDamaged, profile.ErrNewer,
		profile.ErrMismatch, profile.ErrSchema, profile.ErrConflicts,
	} {
		if errors.Is(err, class) {
			wantLine(t, "error", err)
			return
		}
	}
	t.Errorf("an error of no class: %v", err)
}

func FuzzParseJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,1.0,-0e+1,"\ud83d\ude00",null,true]}`, `"\u0000"`, `{"a":1,"a":2}`, `[`, `1e999999999`, `"\ud800"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := profile.ParseJSON(data)
		if err != nil {
			wantClass(t, err)
			return
		}
		if !json.Valid(data) {
			t.Fatalf("%q is taken and is no JSON", data)
		}
		text := v.String()
		if again := js(t, text); !again.Equal(v) || again.String() != text {
			t.Errorf("%q is written %s and read as %s", data, text, again)
		}
		if !reflect.DeepEqual(reference(t, data), reference(t, []byte(text))) {
			t.Errorf("%q is written %s: another value", data, text)
		}
	})
}

// reference decodes as the standard library does, numbers as spelled.
func reference(t *testing.T, data []byte) any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%q: %v", data, err)
	}
	return v
}

func FuzzEqual(f *testing.F) {
	for _, s := range [][2]string{{`1`, `1.0`}, {`{"a":[1e1]}`, `{"a":[10]}`}, {`0.001e3`, `1`}, {`-0`, `0`}, {`[]`, `{}`}, {`12e-3`, `0.012`}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		v, err := profile.ParseJSON([]byte(a))
		if err != nil {
			return
		}
		w, err := profile.ParseJSON([]byte(b))
		if err != nil {
			return
		}
		if !v.Equal(v) || !w.Equal(w) || v.Equal(w) != w.Equal(v) {
			t.Errorf("%s and %s: not reflexive or symmetric", v, w)
		}
		x, fine := slowly(reference(t, []byte(a)))
		y, too := slowly(reference(t, []byte(b)))
		if fine && too && v.Equal(w) != reflect.DeepEqual(x, y) {
			t.Errorf("%s equal to %s: %t", v, w, v.Equal(w))
		}
	})
}

// slowly replaces numbers by their exact fractions; not fine when one is too
// large to be computed.
func slowly(tree any) (any, bool) {
	switch t := tree.(type) {
	case json.Number:
		if i := strings.IndexAny(string(t), "eE"); i >= 0 && len(t)-i > 5 {
			return nil, false
		}
		r, ok := new(big.Rat).SetString(string(t))
		if !ok {
			return nil, false
		}
		return struct{ fraction string }{r.String()}, true
	case []any:
		list := make([]any, len(t))
		for i, e := range t {
			var ok bool
			if list[i], ok = slowly(e); !ok {
				return nil, false
			}
		}
		return list, true
	case map[string]any:
		object := map[string]any{}
		for name, e := range t {
			var ok bool
			if object[name], ok = slowly(e); !ok {
				return nil, false
			}
		}
		return object, true
	}
	return tree, true
}

func FuzzParseValue(f *testing.F) {
	for _, s := range []string{"", "none", "007", `{"a": 1.50}`, `{"a":1,"a":2}`, "1e999", `"x"`, " null\n", "a: b", "\xff", "[", `"\ud800"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := profile.ParseValue(text)
		switch {
		case err != nil:
			wantClass(t, err)
		case !json.Valid([]byte(text)):
			if v.Kind() != "string" || v.Raw() != text {
				t.Errorf("%q becomes %s, want the text", text, v)
			}
		case !v.Equal(js(t, text)):
			t.Errorf("%q becomes %s", text, v)
		}
	})
}

func FuzzParseYAML(f *testing.F) {
	for _, s := range []string{
		"", "none", "a: &x [1]\nb: *x", "{a: 1,}", "- 0x1F\n- 1_0\n- .5\n- 1e9", "|\n x\n", "!!int 7", "'it''s'", "? a\n: b", "<<: *x", "%YAML 1.1\n---\n1",
		"&a [*a]", "\t", "2001-01-01", "-.5e3", "+1", "07", "!!str", "a: b: c", "\xff", "--- 1\n--- 2", "\"\\ud800\"", "\"\\x41\"",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := profile.ParseYAML(text)
		if err != nil {
			wantClass(t, err)
			return
		}
		written := v.String()
		if !json.Valid([]byte(written)) {
			t.Fatalf("%q becomes %q, which is no JSON", text, written)
		}
		if again := js(t, written); !again.Equal(v) {
			t.Errorf("%q becomes %s and that %s", text, written, again)
		}
		if again, err := profile.ParseYAML(written); err != nil || !again.Equal(v) {
			t.Errorf("%q becomes %s and that %s, %v", text, written, again, err)
		}
	})
}

func FuzzPointer(f *testing.F) {
	for _, s := range []string{"", "/", "/a~1b/~0", "/~01", "/0/-", "a", "/~", "//"} {
		f.Add(s)
	}
	v, err := profile.ParseJSON([]byte(`{"":[0,{"~":1}],"a":{"/":[[]]}}`))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := profile.ParsePointer(text)
		if err != nil {
			wantClass(t, err)
			return
		}
		if p.String() != text {
			t.Errorf("%q is written %q", text, p)
		}
		if _, err := v.Lookup(p); err != nil {
			wantClass(t, err)
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"format":1,"name":"prod","params":{"cluster/profile":"prod","n":1.0},"meta":{},"schemas":{"n":{"default":1}},"roles":{"db":{"x":[]}},"later":{"a":1e9}}`,
		`{"name":"a"}`, `{"name":"a","format":2}`, `{"name":"","roles":null}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := profile.Decode(data)
		if err != nil {
			wantClass(t, err)
			return
		}
		text, err := d.Encode()
		if err != nil {
			wantClass(t, err)
			return
		}
		again := doc(t, string(text))
		if !again.Identical(d) || !again.Equal(d) || d.Size().Bytes != len(text) {
			t.Errorf("%q is stored as %s and read as %s", data, text, again.Value())
		}
		in, out := reference(t, data).(map[string]any), reference(t, text).(map[string]any)
		for name, v := range in {
			if v != nil && name != "format" && name != "roles" && !reflect.DeepEqual(v, out[name]) {
				t.Errorf("%q is lost or changed: %q is stored as %s", name, data, text)
			}
		}
		var e profile.Editor
		if next, err := e.Set(d, profile.Scope{}, "n", js(t, `[2]`), profile.Ref{}); err != nil {
			wantClass(t, err)
		} else if next.Params["n"].String() != "[2]" {
			t.Errorf("set n: %s", next.Value())
		}
		_ = d.Compose([]string{"db"}, profile.Params{"n": js(t, `{"x":1}`)})
		if _, err := e.Merge(d, again, d); err != nil {
			wantClass(t, err)
		}
	})
}

func FuzzPatch(f *testing.F) {
	for _, s := range []string{
		`[{"op":"add","path":"/a/-","value":1}]`, `[{"op":"remove","path":"/a/0"}]`, `[{"op":"replace","path":"","value":{}}]`,
		`[{"op":"move","from":"/a","path":"/b/c"}]`, `[{"op":"copy","from":"","path":"/a/0"}]`, `[{"op":"test","path":"/a/1/x","value":null}]`,
		`[{"op":"copy","from":"/a","path":"/a/-"},{"op":"copy","from":"/a","path":"/a/-"},{"op":"test","path":"/b","value":{"c":"~"}}]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		patch, err := profile.ParsePatch(data)
		if err != nil {
			wantClass(t, err)
			return
		}
		v := js(t, `{"a":[1,{"x":null}],"b":{"c":"~"},"":[[]]}`)
		before := v.String()
		got, err := patch.Apply(v)
		if v.String() != before {
			t.Fatalf("%s changed the document itself: %s", data, v)
		}
		if err != nil {
			wantClass(t, err)
			return
		}
		again, err := patch.Apply(v)
		if err != nil || again.String() != got.String() {
			t.Errorf("%s gives %s and then %s, %v", data, got, again, err)
		}
		// What was taken out of a patch is not part of its result.
		if inverse, err := profile.ParsePatch([]byte(`[{"op":"replace","path":"","value":` + before + `}]`)); err != nil {
			t.Error(err)
		} else if back, err := inverse.Apply(got); err != nil || back.String() != before {
			t.Errorf("%s cannot be undone: %s, %v", data, back, err)
		}
	})
}

func FuzzSchema(f *testing.F) {
	for _, s := range [][2]string{
		{`{"type":"integer","default":1}`, `1`},
		{`{"$ref":"#/$defs/a","$defs":{"a":{"pattern":"a+"}}}`, `"aa"`},
		{`{"properties":{"a":{"$ref":"#"}},"additionalProperties":false}`, `{"a":{"a":1}}`},
		{`{"$schema":"http://json-schema.org/draft-04/schema#","$id":"x","items":[{}],"minimum":1e400}`, `[1e400]`},
		{`{"$id":"http://x/y","$ref":"z","$defs":{"z":{"$id":"z","$anchor":"q"}}}`, `null`},
		{`{"uniqueItems":true,"multipleOf":0.01,"contains":{"format":"date"},"unevaluatedItems":false}`, `[0.1,1]`},
		{`{"$dynamicRef":"#a","$dynamicAnchor":"a","contentSchema":true,"dependencies":{"a":["b"]}}`, `{"a":1}`},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, schema, value string) {
		text, err := profile.ParseJSON([]byte(schema))
		if err != nil {
			return
		}
		v, err := profile.ParseJSON([]byte(value))
		if err != nil {
			return
		}
		var e profile.Editor
		d, err := e.SetSchema(shared(t, `{}`), "p", text)
		if err != nil {
			wantClass(t, err)
			return
		}
		if err := e.Check(d, "p", v); err != nil {
			wantClass(t, err)
			if again := e.Check(d, "p", v); again == nil || again.Error() != err.Error() {
				t.Errorf("%s for %s: %v, and then %v", schema, value, err, again)
			}
		}
	})
}
