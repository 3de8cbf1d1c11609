package profile

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"unicode/utf16"
)

// text reads a string from its opening quote on.
func (p *parser) text() (string, error) {
	p.at++
	begin := p.at
	for p.at < len(p.data) && p.data[p.at] != '"' && p.data[p.at] != '\\' && p.data[p.at] >= ' ' {
		p.at++
	}
	if p.peek() == '"' {
		p.at++
		return string(p.data[begin : p.at-1]), nil
	}
	out := append([]byte(nil), p.data[begin:p.at]...)
	for {
		switch c := p.peek(); {
		case p.at >= len(p.data):
			return "", p.malformed("")
		case c == '"':
			p.at++
			return string(out), nil
		case c < ' ':
			return "", p.malformed("a control character in a string must be escaped")
		case c == '\\':
			var err error
			if out, err = p.escape(out); err != nil {
				return "", err
			}
		default:
			out = append(out, c)
			p.at++
		}
	}
}

// escape appends what the escape sequence at the backslash stands for.
func (p *parser) escape(out []byte) ([]byte, error) {
	begin := p.at
	p.at++
	c := p.peek()
	if short, ok := escapes[c]; ok {
		p.at++
		return append(out, short), nil
	}
	if c != 'u' {
		return nil, p.malformed("no escape sequence of JSON")
	}
	r, ok := p.hex()
	if !ok {
		return nil, p.malformed("four hexadecimal digits belong here")
	}
	if utf16.IsSurrogate(r) {
		low := rune(0)
		if p.at+1 < len(p.data) && p.data[p.at] == '\\' && p.data[p.at+1] == 'u' {
			p.at++
			low, _ = p.hex()
		}
		pair := utf16.DecodeRune(r, low)
		if pair == '\uFFFD' {
			return nil, p.refuse(begin, "half of a surrogate pair is no character")
		}
		r = pair
	}
	return append(out, string(r)...), nil
}

var escapes = map[byte]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// hex reads the four digits after the u that p is at.
func (p *parser) hex() (rune, bool) {
	if p.at++; p.at+4 > len(p.data) {
		return 0, false
	}
	var r rune
	for _, c := range p.data[p.at : p.at+4] {
		digit := digitOf(c)
		if digit < 0 {
			return 0, false
		}
		r = r<<4 | digit
	}
	p.at += 4
	return r, true
}

func digitOf(c byte) rune {
	switch {
	case '0' <= c && c <= '9':
		return rune(c - '0')
	case 'a' <= c && c <= 'f':
		return rune(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return rune(c-'A') + 10
	}
	return -1
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
	const hex = "0123456789abcdef"
	out = append(out, '"')
	for i := range len(s) {
		switch c := s[i]; c {
		case '"', '\\':
			out = append(out, '\\', c)
		case '\n':
			out = append(out, `\n`...)
		case '\r':
			out = append(out, `\r`...)
		case '\t':
			out = append(out, `\t`...)
		default:
			if c < ' ' {
				out = append(out, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
				continue
			}
			out = append(out, c)
		}
	}
	return append(out, '"')
}

// jsonSize returns the length of what appendJSON appends.
func jsonSize(tree any) int {
	switch t := tree.(type) {
	case bool:
		if t {
			return len("true")
		}
		return len("false")
	case json.Number:
		return len(t)
	case string:
		return textSize(t)
	case []any:
		n := len("[]") + max(len(t)-1, 0)
		for _, e := range t {
			n += jsonSize(e)
		}
		return n
	case map[string]any:
		n := len("{}") + max(len(t)-1, 0)
		for name, e := range t {
			n += textSize(name) + len(":") + jsonSize(e)
		}
		return n
	}
	return len("null")
}

func textSize(s string) int {
	n := len(s) + len(`""`)
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\' || c == '\n' || c == '\r' || c == '\t':
			n++
		case c < ' ':
			n += len(`u001f`)
		}
	}
	return n
}
