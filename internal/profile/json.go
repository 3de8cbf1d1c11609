package profile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// MaxInput is the size in bytes of the largest text that is parsed: a
	// profile with a lot of white space.
	MaxInput = 4 << 20
	// maxValueDepth is how deep arrays and objects of one value may nest,
	// maxDepth how deep those of a document.
	maxValueDepth = 100
	maxDepth      = 128
)

// ParseJSON reads one JSON value (RFC 8259), strictly: UTF-8, no member twice,
// no half of a surrogate pair, at most 100 levels. It returns a *SyntaxError or
// ErrTooLarge.
func ParseJSON(data []byte) (Value, error) {
	tree, err := parseTree(data, maxValueDepth)
	return Value{tree: tree}, err
}

// parseTree reads the one value of data, which nests up to depth.
func parseTree(data []byte, depth int) (any, error) {
	if len(data) > MaxInput {
		return nil, &SizeError{What: "the text", Bytes: len(data), Limit: MaxInput}
	}
	r := treeReader{jsontext.NewDecoder(bytes.NewBuffer(data))}
	tree, err := r.read(depth)
	if err == nil {
		rest := bytes.TrimLeft(data[r.InputOffset():], " \t\r\n")
		if len(rest) == 0 {
			return tree, nil
		}
		err = &placedError{int64(len(data) - len(rest)), "unexpected text after the value"}
	}
	return nil, syntaxError(data, err)
}

// treeReader reads trees from a decoder.
type treeReader struct{ *jsontext.Decoder }

func (r treeReader) read(depth int) (any, error) {
	token, err := r.ReadToken()
	if err != nil {
		return nil, err
	}
	switch token.Kind() {
	case '"':
		return token.String(), nil
	case '0':
		return json.Number(token.String()), nil // as spelled
	case 't', 'f':
		return token.Bool(), nil
	case 'n':
		return nil, nil
	}
	if depth == 0 {
		return nil, &placedError{r.InputOffset() - 1, "nested too deep"}
	}
	if token.Kind() == '[' {
		list := []any{}
		for r.PeekKind() != ']' {
			e, err := r.read(depth - 1)
			if err != nil {
				return nil, err
			}
			list = append(list, e)
		}
		_, err = r.ReadToken()
		return list, err
	}
	object := map[string]any{}
	for r.PeekKind() != '}' {
		name, err := r.ReadToken()
		if err != nil {
			return nil, err
		}
		key := name.String()
		if object[key], err = r.read(depth - 1); err != nil {
			return nil, err
		}
	}
	_, err = r.ReadToken()
	return object, err
}

// placedError is what jorc refuses in JSON that is well formed.
type placedError struct {
	offset int64
	reason string
}

func (e *placedError) Error() string { return e.reason }

// syntaxError returns err as a *SyntaxError, which does not quote the text.
func syntaxError(data []byte, err error) error {
	offset, reason := int64(len(data)), err.Error()
	var place *placedError
	var syntax *jsontext.SyntacticError
	switch {
	case errors.As(err, &place):
		offset = place.offset
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		reason = "the text ends too early"
	case errors.As(err, &syntax) && errors.Is(err, jsontext.ErrDuplicateName):
		offset, reason = syntax.ByteOffset, fmt.Sprintf("the object has %q twice", shorten(syntax.JSONPointer.LastToken()))
	case errors.As(err, &syntax):
		offset, reason = syntax.ByteOffset, unquoted(syntax.Err.Error())
	}
	before := data[:min(offset, int64(len(data)))]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
	return &SyntaxError{Line: line, Column: column, Reason: reason}
}

// unquoted returns the decoder's reason without the part of the text that it
// quotes: "invalid character 'x' at start of value".
func unquoted(reason string) string {
	for _, quote := range []string{"'", "`", `"`} {
		before, rest, found := strings.Cut(reason, " "+quote)
		if !found || strings.Contains(before, "(") {
			continue
		}
		if i := strings.Index(rest, quote+" "); i >= 0 {
			return before + rest[i+len(quote):]
		}
		return before
	}
	return reason
}

// isNumber reports whether text is a JSON number and nothing else.
func isNumber(text string) bool {
	v := jsontext.Value(text)
	return v.Kind() == '0' && v.IsValid() && strings.TrimSpace(text) == text
}

// appendJSON appends tree as JSON: members sorted, no white space, and no
// escape sequence that is not needed. Every Value has one encoding.
func appendJSON(out []byte, tree any) []byte {
	switch t := tree.(type) {
	case bool:
		return strconv.AppendBool(out, t)
	case json.Number:
		return append(out, t...)
	case string:
		return appendText(out, t)
	case []any:
		out = append(out, '[')
		for i, e := range t {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendJSON(out, e)
		}
		return append(out, ']')
	case map[string]any:
		out = append(out, '{')
		for i, name := range slices.Sorted(maps.Keys(t)) {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(appendText(out, name), ':')
			out = appendJSON(out, t[name])
		}
		return append(out, '}')
	}
	return append(out, "null"...)
}

func appendText(out []byte, s string) []byte {
	out, _ = jsontext.AppendQuote(out, s) // it is UTF-8
	return out
}

// equalTrees reports whether both are the same JSON value.
func equalTrees(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		other, ok := b.(json.Number)
		return ok && equalNumbers(a, other)
	case []any:
		other, ok := b.([]any)
		return ok && slices.EqualFunc(a, other, equalTrees)
	case map[string]any:
		other, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, other, equalTrees)
	}
	switch b.(type) {
	case []any, map[string]any:
		return false
	}
	return a == b
}

// equalNumbers compares exactly and without computing the numbers, so that
// 1e999999999 costs as little as its digits.
func equalNumbers(a, b json.Number) bool {
	if a == b {
		return true
	}
	x, y := decimalOf(string(a)), decimalOf(string(b))
	if x.digits != y.digits || x.negative != y.negative {
		return false
	}
	return x.digits == "" || x.exponent.Cmp(y.exponent) == 0
}

// decimal is 0.digits × 10^exponent; digits neither begins nor ends with a
// zero and is empty for zero, which has no sign.
type decimal struct {
	negative bool
	digits   string
	exponent *big.Int
}

func decimalOf(number string) decimal {
	var d decimal
	number, d.negative = strings.CutPrefix(number, "-")
	mantissa, exponent := number, ""
	if i := strings.IndexAny(number, "eE"); i >= 0 {
		mantissa, exponent = number[:i], strings.TrimPrefix(number[i+1:], "+")
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	point := len(whole) - (len(whole) + len(fraction) - len(digits))
	if d.digits = strings.TrimRight(digits, "0"); d.digits == "" {
		return decimal{}
	}
	d.exponent = new(big.Int)
	if exponent != "" {
		d.exponent.SetString(exponent, 10)
	}
	d.exponent.Add(d.exponent, big.NewInt(int64(point)))
	return d
}

// depth returns how deep arrays and objects nest in tree, at most limit.
func depth(tree any, limit int) int {
	if limit == 0 {
		return 0
	}
	deepest := -1
	switch t := tree.(type) {
	case []any:
		deepest = 0
		for _, e := range t {
			deepest = max(deepest, depth(e, limit-1))
		}
	case map[string]any:
		deepest = 0
		for _, e := range t {
			deepest = max(deepest, depth(e, limit-1))
		}
	}
	return deepest + 1
}
