package profile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jorc/jorc/internal/text"
)

// Value is one JSON value. It cannot be changed; the zero Value is null.
// Numbers keep their spelling (big integers, 1.0 beside 1), strings their
// characters; members of objects have no order of their own and are written
// sorted by name.
type Value struct {
	// tree is nil, bool, json.Number, string, []any or map[string]any, and so
	// are its parts. It is never changed.
	tree any
	// text is what ParseValue read a value other than a string from; "" for all others.
	text string
}

// Null is the JSON value null.
func Null() Value { return Value{} }

// Bool returns b as a JSON value.
func Bool(b bool) Value { return Value{tree: b} }

// Text returns s as a JSON string, as --string reads it. It returns
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

// ParseValue reads a value as a user gives it: JSON when the text is valid JSON,
// otherwise the text itself, byte for byte. JSON keeps the spelling of its
// numbers. JSON that is valid but not accepted, such as an object that has a
// member twice, is an error.
//
// A value that was read from JSON remembers its text, which Document.Conform
// takes for a param whose schema accepts strings only.
//
// It returns ErrInvalid (a *SyntaxError where a place can be named) or
// ErrTooLarge.
func ParseValue(text string) (Value, error) {
	v, err := ParseJSON([]byte(text))
	switch {
	case err == nil && v.Kind() != "string":
		v.text = text
		return v, nil
	case err == nil || json.Valid([]byte(text)):
		return v, err
	}
	return Text(text)
}

// Equal reports whether both are the same JSON value: numbers by what they are
// worth (1 = 1.0 = 10e-1, exactly, whatever their size), objects without
// order, arrays with, strings by their characters.
func (v Value) Equal(w Value) bool { return equalTrees(v.tree, w.tree) }

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

// IsNull reports whether the value is null.
func (v Value) IsNull() bool { return v.tree == nil }

// Plain returns the value for templates and filters: nil, bool, string, []any,
// map[string]any of the caller's own; a number is an int64 or a float64 when
// that has the same value, else a json.Number.
func (v Value) Plain() any { return plain(v.tree) }

func plain(tree any) any {
	return convert(tree, plainNumber, func(l []any) any { return l }, func(o map[string]any) any { return o })
}

// convert copies tree with its numbers, arrays and objects as the functions make them.
func convert(tree any, number func(json.Number) any, list func([]any) any, object func(map[string]any) any) any {
	switch t := tree.(type) {
	case json.Number:
		return number(t)
	case []any:
		all := make([]any, len(t))
		for i, e := range t {
			all[i] = convert(e, number, list, object)
		}
		return list(all)
	case map[string]any:
		all := make(map[string]any, len(t))
		for k, e := range t {
			all[k] = convert(e, number, list, object)
		}
		return object(all)
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

// List and Object are arrays and objects as templates see them: they can be
// ranged over and indexed, and print as JSON.
type (
	List   []any
	Object map[string]any
)

func (l List) String() string   { return jsonOf([]any(l)) }
func (o Object) String() string { return jsonOf(map[string]any(o)) }

func jsonOf(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // cannot fail: it came from JSON
	return strings.TrimSuffix(b.String(), "\n")
}

// ForTemplate returns the value for templates: nil, bool, string, List, Object
// of the caller's own; a number is an int64 or a float64 when that prints as
// the number is spelled (1.10 does not become 1.1), else a json.Number.
func (v Value) ForTemplate() any { return forTemplate(v.tree) }

func forTemplate(tree any) any {
	number := func(n json.Number) any {
		if i, err := n.Int64(); err == nil && fmt.Sprint(i) == n.String() {
			return i
		}
		if f, err := n.Float64(); err == nil && fmt.Sprint(f) == n.String() {
			return f
		}
		return n
	}
	return convert(tree, number, func(l []any) any { return List(l) }, func(o map[string]any) any { return Object(o) })
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
	return fmt.Sprintf("%s… (%d bytes)", text.Head(s, most), len(s))
}
