package profile_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/profile"
)

// TestParseValue: JSON is JSON, and any other text stays as it is.
func TestParseValue(t *testing.T) {
	t.Parallel()
	pem := "-----BEGIN CERTIFICATE-----\nMIIB+zCC/aA==\n-----END CERTIFICATE-----\n"
	for _, text := range []string{
		"", " ", " \n", "none", "007", "0x1F", "0o17", "1_000", "+5", ".5", "5.", "1e", "-", "NaN", "True", "~", "a #b", "#ff0000", "yes",
		"a: b", "- a\n- b", "{a: 1}", "{", "[1,]", `{"a":1,}`, "'x'", `"x`, "!!int 7", "*foo", "10.0.0.1", "2024-01-31", "\tx", "x\x00y", "\r\n",
		"\ufeff1", "1 2", "nul", "`x`", pem, "abc.0123456789abcdef", strings.Repeat("[", 5000),
	} {
		v, err := profile.ParseValue(text)
		if err != nil || v.Kind() != "string" || v.Raw() != text {
			t.Errorf("ParseValue(%.60q) = %.60q, %v, want the text", text, v.Raw(), err)
		}
	}
	for _, tt := range []struct{ in, want string }{
		{`null`, `null`},
		{` true `, `true`},
		{`7`, `7`},
		{"7\n", `7`},
		{`1.0`, `1.0`},
		{`1e999`, `1e999`},
		{`123456789012345678901234567890`, `123456789012345678901234567890`},
		{`"quoted"`, `"quoted"`},
		{`{"a": [1, "x"]}`, `{"a":[1,"x"]}`},
	} {
		if v, err := profile.ParseValue(tt.in); err != nil || v.String() != tt.want {
			t.Errorf("ParseValue(%q) = %s, %v, want %s", tt.in, v, err, tt.want)
		}
	}
	for _, tt := range []struct {
		in, want string
		class    error
	}{
		{`{"a":1,"a":2}`, `"a" twice`, profile.ErrInvalid},
		{`"\ud800"`, "surrogate", profile.ErrInvalid},
		{strings.Repeat("[", 101) + strings.Repeat("]", 101), "nested too deep", profile.ErrInvalid},
		{"a\xff", "UTF-8", profile.ErrInvalid},
		{strings.Repeat("x", profile.MaxSize+1), "512 KiB", profile.ErrTooLarge},
	} {
		v, err := profile.ParseValue(tt.in)
		if !errors.Is(err, tt.class) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("ParseValue(%.60q) = %.80s, %v, want %q", tt.in, v, err, tt.want)
		}
	}
}

// TestSchemaKeepsText: a param whose schema accepts strings only is never a number.
func TestSchemaKeepsText(t *testing.T) {
	t.Parallel()
	var e profile.Editor
	for _, tt := range []struct{ schema, in, want string }{
		{`{"type":"string"}`, `1.10`, `"1.10"`},
		{`{"type":["string"]}`, ` true`, `" true"`},
		{`{"type":"string"}`, `{"a": 1}`, `"{\"a\": 1}"`},
		{`{"type":"string"}`, `"quoted"`, `"quoted"`},
		{`{"type":"string"}`, `007`, `"007"`},
		{`{"type":["string","number"]}`, `1.10`, `1.10`},
		{`{}`, `1.10`, `1.10`},
		{`true`, `1.10`, `1.10`},
	} {
		d := withSchema(t, &e, tt.schema)
		v, err := profile.ParseValue(tt.in)
		if err != nil {
			t.Fatal(err)
		}
		next, err := e.Set(d, profile.Scope{}, "p", v, profile.Ref{})
		if err != nil || next.Params["p"].String() != tt.want {
			t.Errorf("%s: %s is %s, %v, want %s", tt.schema, tt.in, next.Params["p"], err, tt.want)
			continue
		}
		if _, err := e.Set(next, profile.Scope{}, "p", v, profile.Ref{Value: &v}); err != nil {
			t.Errorf("%s: %s as a reference: %v", tt.schema, tt.in, err)
		}
		if next, err = e.Set(d, profile.Scope{}, "p", v, profile.Ref{Value: &v, Default: &v}); err != nil || next.Params["p"].String() != tt.want {
			t.Errorf("%s: %s as a default: %v", tt.schema, tt.in, err)
		}
		own, err := e.SetOwn(d, "n1", nil, "p", v, profile.Ref{Absent: true})
		if err != nil || own["p"].String() != tt.want {
			t.Errorf("%s: %s of a member: %s, %v", tt.schema, tt.in, own["p"], err)
		}
		if own, err = e.RemoveOwn(d, own, "p", profile.Ref{Value: &v}); err != nil || len(own) != 0 {
			t.Errorf("%s: %s removed from a member: %v, %v", tt.schema, tt.in, own, err)
		}
	}
}

func TestParseYAML(t *testing.T) {
	t.Parallel()
	tests := []struct{ in, want string }{
		{`none`, `"none"`},
		{`null`, `null`},
		{`~`, `null`},
		{`7`, `7`},
		{`1.0`, `1.0`},
		{`1e999`, `1e999`},
		{`123456789012345678901234567890`, `123456789012345678901234567890`},
		{`a: 123456789012345678901234567890`, `{"a":123456789012345678901234567890}`},
		{`a: 1e999`, `{"a":1e999}`},
		{`a: 1.0`, `{"a":1.0}`},
		{`0x1F`, `31`},
		{`0o17`, `15`},
		{`017`, `15`},
		{`0b101`, `5`},
		{`-0x10`, `-16`},
		{`1_000`, `1000`},
		{`+5`, `5`},
		{`.5`, `0.5`},
		{`5.`, `5`},
		{`-.5e3`, `-0.5e3`},
		{`007.50`, `7.50`},
		{`08`, `8`},
		{`1.2.3`, `"1.2.3"`},
		{`10.0.0.1`, `"10.0.0.1"`},
		{`10:20`, `"10:20"`},
		{`2024-01-31`, `"2024-01-31"`},
		{`yes`, `"yes"`},
		{`True`, `true`},
		{`"quoted"`, `"quoted"`},
		{`'it''s'`, `"it's"`},
		{`'7'`, `"7"`},
		{`!!str 7`, `"7"`},
		{`!!int 7`, `7`},
		{`!!float 7`, `7`},
		{`!!null ""`, `null`},
		{`foo bar`, `"foo bar"`},
		{`a: b`, `{"a":"b"}`},
		{`{a: 1, "b": [x, y]}`, `{"a":1,"b":["x","y"]}`},
		{"- 1\n- two\n-\n", `[1,"two",null]`},
		{"a: &x {n: 1}\nb: *x\n", `{"a":{"n":1},"b":{"n":1}}`},
		{"1: a\ntrue: b\n1.50: c", `{"1":"a","1.50":"c","true":"b"}`},
		{"|\n  two\n  lines\n", `"two\nlines\n"`},
		{`{"a": 1,}`, `{"a":1}`},
		{"# comment\n5", `5`},
		{"---\n5\n", `5`},
		{`"<<": 1`, `{"<<":1}`},
		{`ü`, `"ü"`},
	}
	for _, tt := range tests {
		got, err := profile.ParseYAML(tt.in)
		if err != nil || got.String() != tt.want {
			t.Errorf("ParseYAML(%q) = %s, %v, want %s", tt.in, got, err, tt.want)
		}
	}
}

func TestParseYAMLRefuses(t *testing.T) {
	t.Parallel()
	bomb := "a0: &a0 [x]\n"
	for i := range 30 {
		bomb += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 10), ","))
	}
	tests := []struct {
		in, want string
		class    error
	}{
		{"", "blanks", profile.ErrInvalid},
		{" \n", "blanks", profile.ErrInvalid},
		{"#ff0000", "comments", profile.ErrInvalid},
		{`{"a":1,"a":2}`, `"a" twice`, profile.ErrInvalid},
		{"a: 1\na: 2", `"a" twice`, profile.ErrInvalid},
		{"1: x\n'1': y", `"1" twice`, profile.ErrInvalid},
		{"a: 1\n---\nb: 2", "second document", profile.ErrInvalid},
		{"*foo", "foo", profile.ErrInvalid},
		{"a: .nan", "no number .nan", profile.ErrInvalid},
		{"-.inf", "no number -.inf", profile.ErrInvalid},
		{"a: !!binary aGk=", "!!binary", profile.ErrInvalid},
		{"!foo bar", "!foo", profile.ErrInvalid},
		{"!!set {a, b}", "!!set", profile.ErrInvalid},
		{"!!int x", "no !!int", profile.ErrInvalid},
		{"base: &b {x: 1}\nd:\n  <<: *b\n", "merge keys", profile.ErrInvalid},
		{"? [a]\n: 1", "name of a member", profile.ErrInvalid},
		{"~: 1", "null cannot be", profile.ErrInvalid},
		{"a: &a [*a]", "nested too deep", profile.ErrInvalid},
		{"{", "line 1", profile.ErrInvalid},
		{"a: [", "line 1", profile.ErrInvalid},
		{"`x`", "", profile.ErrInvalid},
		{"a: b: c", "mapping values", profile.ErrInvalid},
		{"\tx: y\n", "", profile.ErrInvalid},
		{`"\ud800"`, "surrogate", profile.ErrInvalid},
		{"a: \xff", "UTF-8", profile.ErrInvalid},
		{bomb, "anchors", profile.ErrTooLarge},
		{strings.Repeat("- a\n", 1<<18) + "-", "too long to be read as YAML", profile.ErrTooLarge},
		{strings.Repeat("[", 5000), "", profile.ErrInvalid},
		{strings.Repeat("- ", 5000), "", profile.ErrInvalid},
	}
	for _, tt := range tests {
		v, err := profile.ParseYAML(tt.in)
		if !errors.Is(err, tt.class) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("ParseYAML(%.60q) = %.80s, %.300v, want %q", tt.in, v, err, tt.want)
		} else {
			wantLine(t, tt.in, err)
		}
	}
}

// TestRawRoundTrip: what a raw read prints can be given back as a reference,
// for everything whose raw form is not that of another value.
func TestRawRoundTrip(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`""`, `"none"`, `1`, `1.50`, `null`, `true`, `[1,"a"]`, `{"a":{"b":"c: d"}}`, `"two words"`} {
		v := js(t, text)
		back, err := profile.ParseValue(v.Raw())
		if err != nil || !back.Equal(v) {
			t.Errorf("%s printed raw as %q is read as %s, %v", text, v.Raw(), back, err)
		}
	}
}

// TestForTemplate: values print as they are spelled, lists and objects as JSON.
func TestForTemplate(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ in, kind, want string }{
		{`null`, "<nil>", "<nil>"},
		{`true`, "bool", "true"},
		{`"a <b>"`, "string", "a <b>"},
		{`4`, "int64", "4"},
		{`0.5`, "float64", "0.5"},
		{`1.10`, "json.Number", "1.10"},
		{`1e2`, "json.Number", "1e2"},
		{`12345678901234567890`, "json.Number", "12345678901234567890"},
		{`["x", 1.10, {"b": null}]`, "profile.List", `["x",1.10,{"b":null}]`},
		{`{"b": "<", "a": [1, 0.5]}`, "profile.Object", `{"a":[1,0.5],"b":"<"}`},
	} {
		v, err := profile.ParseJSON([]byte(test.in))
		if err != nil {
			t.Fatal(err)
		}
		got := v.ForTemplate()
		if kind, text := fmt.Sprintf("%T", got), fmt.Sprint(got); kind != test.kind || text != test.want {
			t.Errorf("%s: got %s %q, want %s %q", test.in, kind, text, test.kind, test.want)
		}
	}
}
