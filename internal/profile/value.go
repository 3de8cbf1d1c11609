package profile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// Value is one JSON value. It cannot be changed; the zero Value is null.
// Numbers keep their spelling (big integers, 1.0 beside 1), strings their
// characters; members of objects have no order of their own and are written
// sorted by name.
type Value struct {
	// tree is nil, bool, json.Number, string, []any or map[string]any, and so
	// are its parts. Nobody changes it once it is here.
	tree any
	// text is what ParseValue read a value other than a string from; "" for all others.
	text string
}

// Null is the JSON value null.
func Null() Value { return Value{} }

// Bool returns b as a JSON value.
func Bool(b bool) Value { return Value{tree: b} }

// Text returns s as a JSON string: what --string stands for. It returns
// ErrInvalid when s is not UTF-8 and ErrTooLarge when no profile can hold it.
func Text(s string) (Value, error) {
	if !utf8.ValidString(s) {
		return Value{}, invalid("the text is not UTF-8: encode it, with base64 for example")
	}
	if len(s) > MaxSize {
		return Value{}, &SizeError{What: "the text", Bytes: len(s), Limit: MaxSize}
	}
	return Value{tree: s}, nil
}

// Of returns the JSON value that encoding/json makes of v. It returns
// ErrInvalid when it makes none.
func Of(v any) (Value, error) {
	if own, ok := v.(Value); ok {
		return own, nil
	}
	data, err := json.Marshal(v)
	if err != nil {
		return Value{}, invalid("%T is no JSON value: %v", v, err)
	}
	return ParseJSON(data)
}

// JSON returns the value as JSON on one line.
func (v Value) JSON() []byte { return appendJSON(nil, v.tree) }

// String returns the value as JSON on one line.
func (v Value) String() string { return string(v.JSON()) }

// Raw returns a string without its quotes and anything else as JSON.
func (v Value) Raw() string {
	if s, ok := v.tree.(string); ok {
		return s
	}
	return v.String()
}

// Indented returns the value as JSON for people, without a newline at its end.
func (v Value) Indented() []byte { return indent(v.JSON()) }

// indent spreads compact JSON over lines.
func indent(compact []byte) []byte {
	var b bytes.Buffer
	if json.Indent(&b, compact, "", "  ") != nil {
		return compact
	}
	return b.Bytes()
}

// Kind returns null, boolean, number, string, array or object.
func (v Value) Kind() string {
	switch v.tree.(type) {
	case bool:
		return "boolean"
	case json.Number:
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	}
	return "null"
}

// IsNull tells whether the value is null.
func (v Value) IsNull() bool { return v.tree == nil }

// Plain returns the value for templates and filters: nil, bool, string, []any,
// map[string]any of the caller's own; a number is an int64 or a float64 when
// that says the same, else a json.Number.
func (v Value) Plain() any { return plain(v.tree) }

func plain(tree any) any {
	switch t := tree.(type) {
	case json.Number:
		return plainNumber(t)
	case []any:
		list := make([]any, len(t))
		for i, e := range t {
			list[i] = plain(e)
		}
		return list
	case map[string]any:
		object := make(map[string]any, len(t))
		for k, e := range t {
			object[k] = plain(e)
		}
		return object
	}
	return tree
}

func plainNumber(n json.Number) any {
	if i, err := n.Int64(); err == nil {
		return i
	}
	if f, err := n.Float64(); err == nil && equalNumbers(n, json.Number(fmt.Sprintf("%g", f))) {
		return f
	}
	return n
}

// MarshalJSON returns what JSON does.
func (v Value) MarshalJSON() ([]byte, error) { return v.JSON(), nil }

// UnmarshalJSON reads data as ParseJSON does.
func (v *Value) UnmarshalJSON(data []byte) error {
	parsed, err := ParseJSON(data)
	if err != nil {
		return err
	}
	*v = parsed
	return nil
}

// short returns the value for a line of text.
func (v Value) short() string { return shorten(v.String()) }

// shorten cuts text for an error of one line.
func shorten(s string) string { return shortenTo(s, 200) }

// shortenTo cuts text that has more than most bytes.
func shortenTo(s string, most int) string {
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > most-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return fmt.Sprintf("%s… (%d bytes)", s[:cut], len(s))
}
