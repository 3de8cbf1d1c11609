package profile_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/profile"
)

type patchCase struct {
	name, doc, patch string
	want             string // "" when it must fail
	mismatch         bool   // it fails because a test did not hold
}

func (tt patchCase) run(t *testing.T) {
	t.Helper()
	before := js(t, tt.doc)
	text := before.String()
	var got profile.Value
	patch, err := profile.ParsePatch([]byte(tt.patch))
	if err == nil {
		got, err = patch.Apply(before)
	}
	if before.String() != text {
		t.Errorf("%s: the document itself changed to %s", tt.name, before)
	}
	if tt.want == "" {
		if err == nil {
			t.Errorf("%s: got %s, want an error", tt.name, got)
			return
		}
		if errors.Is(err, profile.ErrMismatch) != tt.mismatch {
			t.Errorf("%s: mismatch %t: %v", tt.name, !tt.mismatch, err)
		}
		wantLine(t, tt.name, err)
		return
	}
	if err != nil || !got.Equal(js(t, tt.want)) {
		t.Errorf("%s: got %s, %v, want %s", tt.name, got, err, tt.want)
	}
}

// TestPatchExamples are those of RFC 6902, appendix A.
func TestPatchExamples(t *testing.T) {
	t.Parallel()
	for _, tt := range []patchCase{
		{"A.1 adding a member", `{"foo":"bar"}`, `[{"op":"add","path":"/baz","value":"qux"}]`, `{"baz":"qux","foo":"bar"}`, false},
		{"A.2 adding an element", `{"foo":["bar","baz"]}`, `[{"op":"add","path":"/foo/1","value":"qux"}]`, `{"foo":["bar","qux","baz"]}`, false},
		{"A.3 removing a member", `{"baz":"qux","foo":"bar"}`, `[{"op":"remove","path":"/baz"}]`, `{"foo":"bar"}`, false},
		{"A.4 removing an element", `{"foo":["bar","qux","baz"]}`, `[{"op":"remove","path":"/foo/1"}]`, `{"foo":["bar","baz"]}`, false},
		{"A.5 replacing a value", `{"baz":"qux","foo":"bar"}`, `[{"op":"replace","path":"/baz","value":"boo"}]`, `{"baz":"boo","foo":"bar"}`, false},
		{
			"A.6 moving a value", `{"foo":{"bar":"baz","waldo":"fred"},"qux":{"corge":"grault"}}`,
			`[{"op":"move","from":"/foo/waldo","path":"/qux/thud"}]`, `{"foo":{"bar":"baz"},"qux":{"corge":"grault","thud":"fred"}}`, false,
		},
		{
			"A.7 moving an element", `{"foo":["all","grass","cows","eat"]}`,
			`[{"op":"move","from":"/foo/1","path":"/foo/3"}]`, `{"foo":["all","cows","eat","grass"]}`, false,
		},
		{
			"A.8 testing: success", `{"baz":"qux","foo":["a",2,"c"]}`,
			`[{"op":"test","path":"/baz","value":"qux"},{"op":"test","path":"/foo/1","value":2}]`, `{"baz":"qux","foo":["a",2,"c"]}`, false,
		},
		{"A.9 testing: error", `{"baz":"qux"}`, `[{"op":"test","path":"/baz","value":"bar"}]`, "", true},
		{"A.10 adding a nested member", `{"foo":"bar"}`, `[{"op":"add","path":"/child","value":{"grandchild":{}}}]`, `{"foo":"bar","child":{"grandchild":{}}}`, false},
		{"A.11 ignoring unrecognized elements", `{"foo":"bar"}`, `[{"op":"add","path":"/baz","value":"qux","xyz":123}]`, `{"foo":"bar","baz":"qux"}`, false},
		{"A.12 adding to a nonexistent target", `{"foo":"bar"}`, `[{"op":"add","path":"/baz/bat","value":"qux"}]`, "", false},
		{"A.13 invalid patch", `{"foo":"bar"}`, `[{"op":"add","path":"/baz","value":"qux","op":"remove"}]`, "", false},
		{"A.14 escape ordering", `{"/":9,"~1":10}`, `[{"op":"test","path":"/~01","value":10}]`, `{"/":9,"~1":10}`, false},
		{"A.15 comparing strings and numbers", `{"/":9,"~1":10}`, `[{"op":"test","path":"/~01","value":"10"}]`, "", true},
		{"A.16 adding an array value", `{"foo":["bar"]}`, `[{"op":"add","path":"/foo/-","value":["abc","def"]}]`, `{"foo":["bar",["abc","def"]]}`, false},
	} {
		tt.run(t)
	}
}

// TestPatchRules goes through the text of RFC 6902 and what implementations are
// known to get wrong.
func TestPatchRules(t *testing.T) {
	t.Parallel()
	for _, tt := range []patchCase{
		{"empty", `{}`, `[]`, `{}`, false},
		{"not an array", `{}`, `{"op":"remove","path":""}`, "", false},
		{"operation no object", `{}`, `["remove"]`, "", false},
		{"no op", `{}`, `[{"path":"/a","value":1}]`, "", false},
		{"op no string", `{}`, `[{"op":1,"path":"/a","value":1}]`, "", false},
		{"unknown op", `{}`, `[{"op":"spam","path":"/a","value":1}]`, "", false},
		{"op in upper case", `{}`, `[{"op":"ADD","path":"/a","value":1}]`, "", false},
		{"no path", `{}`, `[{"op":"add","value":1}]`, "", false},
		{"path null", `{}`, `[{"op":"add","path":null,"value":1}]`, "", false},
		{"path no pointer", `{"bar":1}`, `[{"op":"add","path":"bar","value":1}]`, "", false},
		{"bad escape", `{"a~":1}`, `[{"op":"test","path":"/a~","value":1}]`, "", false},
		{"add without value", `{}`, `[{"op":"add","path":"/a"}]`, "", false},
		{"add null", `{}`, `[{"op":"add","path":"/a","value":null}]`, `{"a":null}`, false},
		{"replace without value", `{"a":1}`, `[{"op":"replace","path":"/a"}]`, "", false},
		{"test without value", `{"a":null}`, `[{"op":"test","path":"/a"}]`, "", false},
		{"move without from", `{"a":1}`, `[{"op":"move","path":"/b"}]`, "", false},
		{"copy without from", `{"a":1}`, `[{"op":"copy","path":"/b"}]`, "", false},

		{"add over a member", `{"a":{"b":1}}`, `[{"op":"add","path":"/a","value":2}]`, `{"a":2}`, false},
		{"add to the end by its length", `[1,2]`, `[{"op":"add","path":"/2","value":3}]`, `[1,2,3]`, false},
		{"add behind the end", `[1,2]`, `[{"op":"add","path":"/3","value":3}]`, "", false},
		{"add at a negative index", `[1,2]`, `[{"op":"add","path":"/-1","value":3}]`, "", false},
		{"add at an index with a leading zero", `[1,2]`, `[{"op":"add","path":"/00","value":3}]`, "", false},
		{"add at 1e0", `[1,2]`, `[{"op":"add","path":"/1e0","value":3}]`, "", false},
		{"add at a name", `[1,2]`, `[{"op":"add","path":"/x","value":3}]`, "", false},
		{"add at -", `[]`, `[{"op":"add","path":"/-","value":3}]`, `[3]`, false},
		{"add member -", `{}`, `[{"op":"add","path":"/-","value":3}]`, `{"-":3}`, false},
		{"add below -", `[[1]]`, `[{"op":"add","path":"/-/0","value":3}]`, "", false},
		{"add at the empty name", `{}`, `[{"op":"add","path":"/","value":3}]`, `{"":3}`, false},
		{"add at a numeric name", `{"0":0}`, `[{"op":"add","path":"/01","value":3}]`, `{"0":0,"01":3}`, false},
		{"add below a scalar", `{"a":1}`, `[{"op":"add","path":"/a/b","value":3}]`, "", false},
		{"add below null", `{"a":null}`, `[{"op":"add","path":"/a/b","value":3}]`, "", false},
		{"add the root", `{"a":1}`, `[{"op":"add","path":"","value":[1]}]`, `[1]`, false},
		{"add into nested arrays", `[[[1]]]`, `[{"op":"add","path":"/0/0/-","value":2},{"op":"add","path":"/0/1","value":3}]`, `[[[1,2],3]]`, false},

		{"remove what is missing", `{"a":1}`, `[{"op":"remove","path":"/b"}]`, "", false},
		{"remove at -", `[1]`, `[{"op":"remove","path":"/-"}]`, "", false},
		{"remove at the length", `[1]`, `[{"op":"remove","path":"/1"}]`, "", false},
		{"remove at a leading zero", `[1,2]`, `[{"op":"remove","path":"/01"}]`, "", false},
		{"remove null", `{"a":null}`, `[{"op":"remove","path":"/a"}]`, `{}`, false},
		{"remove twice", `[1,2,3]`, `[{"op":"remove","path":"/0"},{"op":"remove","path":"/0"}]`, `[3]`, false},
		{"remove in nested arrays", `[[1,[2,3]]]`, `[{"op":"remove","path":"/0/1/0"}]`, `[[1,[3]]]`, false},

		{"replace what is missing", `{"a":1}`, `[{"op":"replace","path":"/b","value":1}]`, "", false},
		{"replace at -", `[1]`, `[{"op":"replace","path":"/-","value":1}]`, "", false},
		{"replace at the length", `[1]`, `[{"op":"replace","path":"/1","value":1}]`, "", false},
		{"replace the root", `{"a":1}`, `[{"op":"replace","path":"","value":{"b":2}}]`, `{"b":2}`, false},
		{"replace with null", `{"a":1}`, `[{"op":"replace","path":"/a","value":null}]`, `{"a":null}`, false},
		{"replace an element", `[1,[2]]`, `[{"op":"replace","path":"/1/0","value":9}]`, `[1,[9]]`, false},

		{"move to itself", `{"a":1}`, `[{"op":"move","from":"/a","path":"/a"}]`, `{"a":1}`, false},
		{"move what is missing to itself", `{"a":1}`, `[{"op":"move","from":"/b","path":"/b"}]`, "", false},
		{"move into itself", `{"a":{"b":1}}`, `[{"op":"move","from":"/a","path":"/a/c"}]`, "", false},
		{"move the root into itself", `{"a":1}`, `[{"op":"move","from":"","path":"/b"}]`, "", false},
		{"move to a name that begins alike", `{"a":1}`, `[{"op":"move","from":"/a","path":"/ab"}]`, `{"ab":1}`, false},
		{"move over a member", `{"a":1,"b":2}`, `[{"op":"move","from":"/a","path":"/b"}]`, `{"b":1}`, false},
		{"move over its holder", `{"a":{"b":1}}`, `[{"op":"move","from":"/a/b","path":"/a"}]`, `{"a":1}`, false},
		{"move to the root", `{"a":{"b":1}}`, `[{"op":"move","from":"/a","path":""}]`, `{"b":1}`, false},
		{"move to -", `[1,2,3]`, `[{"op":"move","from":"/0","path":"/-"}]`, `[2,3,1]`, false},
		{"move from -", `[1,2,3]`, `[{"op":"move","from":"/-","path":"/0"}]`, "", false},
		{"move behind the shorter array", `[1,2,3]`, `[{"op":"move","from":"/0","path":"/3"}]`, "", false},
		{"move what is missing", `{"a":1}`, `[{"op":"move","from":"/b","path":"/c"}]`, "", false},
		{"move into nothing", `{"a":1}`, `[{"op":"move","from":"/a","path":"/b/c"}]`, "", false},

		{"copy", `{"a":{"b":1}}`, `[{"op":"copy","from":"/a","path":"/c"},{"op":"replace","path":"/c/b","value":2}]`, `{"a":{"b":1},"c":{"b":2}}`, false},
		{"copy into itself", `{"a":{"b":1}}`, `[{"op":"copy","from":"/a","path":"/a/c"}]`, `{"a":{"b":1,"c":{"b":1}}}`, false},
		{"copy the root into itself", `{"a":1}`, `[{"op":"copy","from":"","path":"/b"}]`, `{"a":1,"b":{"a":1}}`, false},
		{"copy null", `{"a":null}`, `[{"op":"copy","from":"/a","path":"/b"}]`, `{"a":null,"b":null}`, false},
		{"copy what is missing", `{"a":1}`, `[{"op":"copy","from":"/b","path":"/c"}]`, "", false},
		{"copy from -", `[1]`, `[{"op":"copy","from":"/-","path":"/0"}]`, "", false},

		{"values are not shared", `{}`, `[{"op":"add","path":"/a","value":[]},{"op":"copy","from":"/a","path":"/b"},{"op":"add","path":"/a/-","value":1}]`, `{"a":[1],"b":[]}`, false},
		{"test null", `{"a":null}`, `[{"op":"test","path":"/a","value":null}]`, `{"a":null}`, false},
		{"test what is missing against null", `{"a":1}`, `[{"op":"test","path":"/b","value":null}]`, "", true},
		{"test deep nothing against null", `{"a":1}`, `[{"op":"test","path":"/b/c/d","value":null}]`, "", true},
		{"test - against null", `[null]`, `[{"op":"test","path":"/-","value":null}]`, "", true},
		{"test at the length", `[null]`, `[{"op":"test","path":"/1","value":null}]`, "", true},
		{"test at a leading zero", `[1]`, `[{"op":"test","path":"/00","value":1}]`, "", true},
		{"test 1 against 1.0", `{"a":1}`, `[{"op":"test","path":"/a","value":1.0}]`, `{"a":1}`, false},
		{"test big integers", `{"a":12345678901234567890}`, `[{"op":"test","path":"/a","value":12345678901234567891}]`, "", true},
		{"test objects without order", `{"a":{"x":1,"y":[2]}}`, `[{"op":"test","path":"/a","value":{"y":[2.0],"x":1}}]`, `{"a":{"x":1,"y":[2]}}`, false},
		{"test arrays with order", `{"a":[1,2]}`, `[{"op":"test","path":"/a","value":[2,1]}]`, "", true},
		{"test the root", `{"a":1}`, `[{"op":"test","path":"","value":{"a":1}}]`, `{"a":1}`, false},
		{"test null against false", `{"a":false}`, `[{"op":"test","path":"/a","value":null}]`, "", true},
		{"test empty array against empty object", `{"a":[]}`, `[{"op":"test","path":"/a","value":{}}]`, "", true},
		{"nothing stays of what fails later", `{"a":1}`, `[{"op":"add","path":"/b","value":2},{"op":"remove","path":"/c"}]`, "", false},
		{"duplicate name in a value", `{}`, `[{"op":"add","path":"/a","value":{"x":1,"x":2}}]`, "", false},
		{"~ in names", `{"a~b":{"c/d":1}}`, `[{"op":"move","from":"/a~0b/c~1d","path":"/~01"}]`, `{"a~b":{},"~1":1}`, false},
	} {
		tt.run(t)
	}
}

func TestPatchBounds(t *testing.T) {
	t.Parallel()
	doubling := strings.TrimSuffix(strings.Repeat(`{"op":"copy","from":"","path":"/-"},`, 60), ",")
	deep := strings.TrimSuffix(strings.Repeat(`{"op":"copy","from":"","path":"/a"},`, 200), ",")
	many := strings.TrimSuffix(strings.Repeat(`{"op":"test","path":"","value":1},`, 10001), ",")
	moves := strings.TrimSuffix(strings.Repeat(`{"op":"move","from":"/a","path":"/b"},{"op":"move","from":"/b","path":"/a"},`, 5000), ",")
	big := `{"a":[` + strings.TrimSuffix(strings.Repeat(`1,`, 100000), ",") + `]}`
	for name, tt := range map[string][2]string{
		"doubling":   {`[1]`, doubling},
		"deep":       {`{}`, deep},
		"many":       {`1`, many},
		"moving":     {big, moves},
		"deep path":  {`{}`, `{"op":"add","path":"` + strings.Repeat("/a", 200) + `","value":1}`},
		"deep value": {`{"a":` + strings.Repeat("[", 90) + strings.Repeat("]", 90) + `}`, `{"op":"add","path":"/a` + strings.Repeat("/0", 89) + `/-","value":` + strings.Repeat("[", 90) + strings.Repeat("]", 90) + `}`},
	} {
		patch, err := profile.ParsePatch([]byte("[" + tt[1] + "]"))
		if err == nil {
			_, err = patch.Apply(js(t, tt[0]))
		}
		wantIs(t, name, err, profile.ErrTooLarge)
	}
	_, err := profile.ParsePatch([]byte(`[{"op":"add","path":"/a","value":` + strings.Repeat("[", 200) + `]`))
	wantIs(t, "too deep to be read", err, profile.ErrInvalid)
}

func TestPatchOfAProfile(t *testing.T) {
	t.Parallel()
	var e profile.Editor
	d := shared(t, `{"n":1,"list":[1]}`)
	d, err := e.SetSchema(d, "n", js(t, `{"type":"integer"}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		patch string
		class error
		want  string // a part of the result
	}{
		{`{"op":"add","path":"/params/a~1b","value":1.0}`, nil, `"a/b":1.0`},
		{`{"op":"add","path":"/meta/icon","value":"🐘"}`, nil, `"icon":"🐘"`},
		{`{"op":"add","path":"/roles/db","value":{"x":1}}`, nil, `"roles":{"db":{"x":1}}`},
		{`{"op":"add","path":"/later","value":1}`, nil, `"later":1`},
		{`{"op":"test","path":"/format","value":1}`, nil, `"format":1`},
		{`{"op":"replace","path":"/name","value":"other"}`, profile.ErrInvalid, "renamed"},
		{`{"op":"replace","path":"/format","value":2}`, profile.ErrInvalid, "newer format"},
		{`{"op":"remove","path":"/params/cluster~1profile"}`, profile.ErrInvalid, "stays"},
		{`{"op":"replace","path":"/params/cluster~1profile","value":"x"}`, profile.ErrInvalid, "the profile's own name"},
		{`{"op":"remove","path":""}`, profile.ErrInvalid, "not a profile"},
		{`{"op":"replace","path":"","value":[]}`, profile.ErrInvalid, "not a profile"},
		{`{"op":"replace","path":"/params","value":7}`, profile.ErrInvalid, "not an object"},
		{`{"op":"replace","path":"/params/n","value":"x"}`, profile.ErrSchema, "integer"},
		{`{"op":"add","path":"/roles/db","value":{"n":1.5}}`, profile.ErrSchema, `role "db"`},
		{`{"op":"add","path":"/schemas/n","value":{"type":"string"}}`, profile.ErrSchema, "string"},
		{`{"op":"add","path":"/schemas/n","value":{"type":"strong"}}`, profile.ErrInvalid, "JSON Schema"},
		{`{"op":"add","path":"/meta/colour","value":"red;}"}`, profile.ErrInvalid, "colour"},
		{`{"op":"test","path":"/params/n","value":2}`, profile.ErrMismatch, "the value is another one"},
		{fmt.Sprintf(`{"op":"add","path":"/params/x","value":%q}`, strings.Repeat("x", profile.MaxSize)), profile.ErrTooLarge, "512 KiB"},
	} {
		patch, err := profile.ParsePatch([]byte("[" + tt.patch + "]"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := e.Patch(d, patch)
		if tt.class != nil {
			wantIs(t, tt.patch[:min(80, len(tt.patch))], err, tt.class)
			if err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%.80s: %v, want %q", tt.patch, err, tt.want)
			}
			continue
		}
		if err != nil || !strings.Contains(encoded(t, got), tt.want) {
			t.Errorf("%s: got %s, %v, want %q", tt.patch, got.Value(), err, tt.want)
		}
	}
}

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
