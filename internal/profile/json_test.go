package profile_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/profile"
)

func TestJSONIsKept(t *testing.T) {
	t.Parallel()
	tests := []struct{ in, want string }{
		{`null`, `null`},
		{` true `, `true`},
		{`12345678901234567890123456789012345678901234567890`, `12345678901234567890123456789012345678901234567890`},
		{`[1,1.0,1e0,1E+00,-0,-0.0]`, `[1,1.0,1e0,1E+00,-0,-0.0]`},
		{`1e999999999`, `1e999999999`},
		{`"\u00fc\ud83d\ude00<&>\u2028"`, "\"ü😀<&>\u2028\""},
		{`"\"\\\/\b\f\n\r\t\u0000\u001f"`, `"\"\\/\b\f\n\r\t\u0000\u001f"`},
		{`{"b":1,"a":{"d":[],"c":{}}}`, `{"a":{"c":{},"d":[]},"b":1}`},
		{"\t[ 1 ,\r\n 2 ]\n", `[1,2]`},
		{`{"":0}`, `{"":0}`},
		{"\"\x7f\"", "\"\x7f\""},
	}
	for _, tt := range tests {
		v := js(t, tt.in)
		if got := v.String(); got != tt.want {
			t.Errorf("%s is written %s, want %s", tt.in, got, tt.want)
		}
		if back := js(t, v.String()); !back.Equal(v) {
			t.Errorf("%s is another value when read again: %s", tt.in, back)
		}
		if through, err := json.Marshal(v); err != nil || !js(t, string(through)).Equal(v) {
			t.Errorf("%s through encoding/json: %s, %v", tt.in, through, err)
		}
	}
}

func TestJSONIsRefused(t *testing.T) {
	t.Parallel()
	tests := []struct{ in, want string }{
		{``, "line 1 column 1: the text ends too early"},
		{`  `, "ends too early"},
		{`{"a":1,"a":1}`, `line 1 column 8: the object has "a" twice`},
		{`{"a":1,"\u0061":1}`, `twice`},
		{"{\n \"b\": {\"x\": 1, \"x\": 2}}", `line 2 column 16: the object has "x" twice`},
		{`01`, "column 2: unexpected text after the value"},
		{`1.`, "ends too early"},
		{`.5`, "line 1 column 1: invalid character at start of value"},
		{`+1`, "at start of value"},
		{`1e`, "ends too early"},
		{`-`, "ends too early"},
		{`NaN`, "at start of value"},
		{`nul`, "ends too early"},
		{`[1,]`, "at start of value"},
		{`[1 2]`, "(expecting ',' or ']')"},
		{`{"a":1,}`, "column 7: invalid character"},
		{`{"a" 1}`, "(expecting ':')"},
		{`{a:1}`, "column 2: invalid character"},
		{`"a`, "ends too early"},
		{`"\x"`, "invalid escape sequence in string"},
		{`"\u12g4"`, "invalid escape sequence in string"},
		{`"\u12`, "ends too early"},
		{`"\ud800"`, "surrogate pair"},
		{`"\udc00\ud800"`, "surrogate pair"},
		{`"\ud800\ud800"`, "surrogate pair"},
		{`"\ud800\n"`, "surrogate pair"},
		{"\"\xff\"", "invalid UTF-8"},
		{"\"a\nb\"", "control character"},
		{`1 2`, "unexpected text"},
		{strings.Repeat("[", 101) + strings.Repeat("]", 101), "nested too deep"},
	}
	for _, tt := range tests {
		_, err := profile.ParseJSON([]byte(tt.in))
		var syntax *profile.SyntaxError
		if !errors.As(err, &syntax) || !errors.Is(err, profile.ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("ParseJSON(%.60q) = %v, want %q", tt.in, err, tt.want)
		}
	}
	for _, in := range []string{`{"k":hunter2}`, `{"k":"hunter2`, `{"k":"hunter2\h"}`, `{"k":"hunter2"}hunter2`, "{\"k\":\"hunter2\x00\"}", `["\u1hunter2"]`} {
		if _, err := profile.ParseJSON([]byte(in)); err == nil || strings.Contains(err.Error(), "hunter") || strings.Contains(err.Error(), "'h") {
			t.Errorf("ParseJSON(%q) = %v, want an error that does not quote the value", in, err)
		}
	}
	_, err := profile.ParseJSON(make([]byte, profile.MaxInput+1))
	wantIs(t, "much too long", err, profile.ErrTooLarge)
	if _, err := profile.ParseJSON([]byte(strings.Repeat("[", 100) + strings.Repeat("]", 100))); err != nil {
		t.Errorf("100 levels: %v", err)
	}
}

func TestEqual(t *testing.T) {
	t.Parallel()
	classes := [][]string{ // members of one class are equal, of two are not
		{`null`},
		{`true`},
		{`false`},
		{`0`, `-0`, `0.0`, `0e5`, `-0.000e-99999999999999999999`},
		{`1`, `1.0`, `1e0`, `10e-1`, `0.1e1`, `1E+0`, `100000e-5`, `0.00001e00005`},
		{`-1`, `-1.000`},
		{`12345678901234567890`, `1234567890123456789e1`, `12345678901234567890.0`},
		{`12345678901234567891`},
		{`0.1`, `1e-1`, `0.10`},
		{`0.10000000000000000001`},
		{`1e999999999`, `10e999999998`, `0.1e1000000000`},
		{`1e999999998`},
		{`1e99999999999999999999999999`, `10e99999999999999999999999998`},
		{`-1e99999999999999999999999999`},
		{`""`},
		{`"1"`},
		{`"ü"`, `"\u00fc"`},
		{`"u\u0308"`},
		{`[]`},
		{`{}`},
		{`[1,2]`, `[1.0,2e0]`},
		{`[2,1]`},
		{`[1,2,null]`},
		{`{"a":1,"b":[{"c":null}]}`, `{"b":[{"c":null}],"a":1.0}`},
		{`{"a":1,"b":[{}]}`},
		{`{"a":null}`},
		{`{"b":null}`},
	}
	for i, class := range classes {
		for _, a := range class {
			for j, other := range classes {
				for _, b := range other {
					if got := js(t, a).Equal(js(t, b)); got != (i == j) {
						t.Errorf("%s equal to %s: %t", a, b, got)
					}
				}
			}
		}
	}
}

func TestRawPlainAndOf(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, raw, kind string }{
		{`"a\nb"`, "a\nb", "string"},
		{`""`, "", "string"},
		{`1.0`, "1.0", "number"},
		{`null`, "null", "null"},
		{`[ "a" ]`, `["a"]`, "array"},
		{`{"a": 1}`, `{"a":1}`, "object"},
		{`true`, "true", "boolean"},
	} {
		v := js(t, tt.in)
		if v.Raw() != tt.raw || v.Kind() != tt.kind {
			t.Errorf("%s: raw %q of kind %s, want %q, %s", tt.in, v.Raw(), v.Kind(), tt.raw, tt.kind)
		}
	}
	for in, want := range map[string]any{
		`7`: int64(7), `1.5`: 1.5, `1.0`: 1.0, `12345678901234567890`: json.Number("12345678901234567890"),
		`0.1`: 0.1, `1e999`: json.Number("1e999"), `"x"`: "x", `null`: nil, `true`: true,
	} {
		if got := js(t, in).Plain(); got != want {
			t.Errorf("%s plain = %#v, want %#v", in, got, want)
		}
	}
	v := js(t, `{"a":[1]}`)
	v.Plain().(map[string]any)["a"].([]any)[0] = 2
	if v.String() != `{"a":[1]}` {
		t.Errorf("a change of Plain's result shows: %s", v)
	}
	got, err := profile.Of(map[string]any{"disks": 4, "x": []string{"<"}})
	if err != nil || got.String() != `{"disks":4,"x":["<"]}` {
		t.Errorf("Of = %s, %v", got, err)
	}
	_, err = profile.Of(make(chan int))
	wantIs(t, "Of a channel", err, profile.ErrInvalid)
	_, err = profile.Text("\xff")
	wantIs(t, "Text of no UTF-8", err, profile.ErrInvalid)
	_, err = profile.Text(strings.Repeat("x", profile.MaxSize+1))
	wantIs(t, "Text too long", err, profile.ErrTooLarge)
}
