package profile

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
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
	if err != nil {
		return Value{}, err
	}
	return Value{tree: tree}, nil
}

func parseTree(data []byte, depth int) (tree any, err error) {
	if len(data) > MaxInput {
		return nil, &SizeError{What: "the text", Bytes: len(data), Limit: MaxInput}
	}
	p := parser{data: data, depth: depth}
	if bad := firstNotUTF8(data); bad >= 0 {
		return nil, p.refuse(bad, "not UTF-8")
	}
	p.space()
	if tree, err = p.value(); err != nil {
		return nil, err
	}
	if p.space(); p.at < len(data) {
		return nil, p.malformed("unexpected text after the value")
	}
	return tree, nil
}

func firstNotUTF8(data []byte) int {
	if utf8.Valid(data) {
		return -1
	}
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

// parser reads JSON from data[at:]; depth is how many levels are left.
type parser struct {
	data  []byte
	at    int
	depth int
}

// refuse is an error in JSON that is well formed.
func (p *parser) refuse(at int, format string, args ...any) *SyntaxError {
	line, column := 1, 1
	for _, r := range string(p.data[:at]) {
		column++
		if r == '\n' {
			line, column = line+1, 1
		}
	}
	return &SyntaxError{Line: line, Column: column, Reason: fmt.Sprintf(format, args...)}
}

func (p *parser) malformed(format string, args ...any) error {
	if p.at >= len(p.data) {
		format, args = "the text ends too early", nil
	}
	err := p.refuse(p.at, format, args...)
	err.malformed = true
	return err
}

func (p *parser) space() {
	for p.at < len(p.data) {
		switch p.data[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

// peek returns the next byte, 0 at the end.
func (p *parser) peek() byte {
	if p.at < len(p.data) {
		return p.data[p.at]
	}
	return 0
}

func (p *parser) value() (any, error) {
	switch c := p.peek(); {
	case c == '{':
		return p.nested(p.object)
	case c == '[':
		return p.nested(p.array)
	case c == '"':
		return p.text()
	case c == '-' || '0' <= c && c <= '9':
		return p.number()
	}
	for _, w := range words {
		if end := p.at + len(w.text); end <= len(p.data) && string(p.data[p.at:end]) == w.text {
			p.at = end
			return w.tree, nil
		}
	}
	return nil, p.malformed("no JSON value begins here")
}

var words = []struct {
	text string
	tree any
}{{"null", nil}, {"true", true}, {"false", false}}

func (p *parser) nested(read func() (any, error)) (any, error) {
	if p.depth == 0 {
		return nil, p.refuse(p.at, "nested too deep")
	}
	p.depth--
	p.at++
	p.space()
	tree, err := read()
	p.depth++
	return tree, err
}

func (p *parser) array() (any, error) {
	list := []any{}
	if p.peek() == ']' {
		p.at++
		return list, nil
	}
	for {
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		list = append(list, v)
		if done, err := p.next(']'); done || err != nil {
			return list, err
		}
	}
}

func (p *parser) object() (any, error) {
	object := map[string]any{}
	if p.peek() == '}' {
		p.at++
		return object, nil
	}
	for {
		begin := p.at
		if p.peek() != '"' {
			return nil, p.malformed("the name of a member, in quotes, belongs here")
		}
		name, err := p.text()
		if err != nil {
			return nil, err
		}
		if _, twice := object[name]; twice {
			return nil, p.refuse(begin, "the object has %q twice", shorten(name))
		}
		if p.space(); p.peek() != ':' {
			return nil, p.malformed("a colon belongs here")
		}
		p.at++
		p.space()
		if object[name], err = p.value(); err != nil {
			return nil, err
		}
		if done, err := p.next('}'); done || err != nil {
			return object, err
		}
	}
}

// next steps over what follows an element; done tells that it was end.
func (p *parser) next(end byte) (done bool, err error) {
	p.space()
	switch p.peek() {
	case end:
		p.at++
		return true, nil
	case ',':
		p.at++
		p.space()
		return false, nil
	}
	return false, p.malformed("a comma or %q belongs here", end)
}

func (p *parser) number() (any, error) {
	n := numberLength(p.data[p.at:])
	if n == 0 {
		return nil, p.malformed("not a JSON number")
	}
	number := json.Number(p.data[p.at : p.at+n])
	p.at += n
	return number, nil
}
