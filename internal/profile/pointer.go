package profile

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Pointer is a JSON Pointer (RFC 6901) as its reference tokens, unescaped. The
// empty Pointer is the whole document.
type Pointer []string

// ParsePointer reads the string form of a pointer: "" or "/…", in which "~0"
// means "~" and "~1" means "/". It returns ErrInvalid.
func ParsePointer(text string) (Pointer, error) {
	if text == "" {
		return Pointer{}, nil
	}
	if text[0] != '/' {
		return nil, invalid(`the pointer %q does not begin with "/"`, shorten(text))
	}
	if !utf8.ValidString(text) {
		return nil, invalid("the pointer %q is not UTF-8", shorten(text))
	}
	tokens := strings.Split(text[1:], "/")
	for i, t := range tokens {
		for j := strings.IndexByte(t, '~'); j >= 0; {
			if j+1 == len(t) || t[j+1] != '0' && t[j+1] != '1' {
				return nil, invalid(`the pointer %q holds a "~" that neither 0 nor 1 follows: write "~0"`, shorten(text))
			}
			next := strings.IndexByte(t[j+1:], '~')
			if next < 0 {
				break
			}
			j += 1 + next
		}
		tokens[i] = unescape.Replace(t)
	}
	return tokens, nil
}

// A replacer goes through the text once: "~01" is "~1" and not "/".
var (
	unescape = strings.NewReplacer("~0", "~", "~1", "/")
	escaper  = strings.NewReplacer("~", "~0", "/", "~1")
)

// String returns the string form.
func (p Pointer) String() string {
	var b strings.Builder
	for _, t := range p {
		b.WriteByte('/')
		_, _ = escaper.WriteString(&b, t)
	}
	return b.String()
}

// visible returns the string form with control characters escaped.
func (p Pointer) visible() string {
	q := strconv.Quote(p.String())
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

// contains reports whether q names a part of what p names.
func (p Pointer) contains(q Pointer) bool {
	if len(q) <= len(p) {
		return false
	}
	for i, t := range p {
		if q[i] != t {
			return false
		}
	}
	return true
}

// arrayIndex reads an index below limit: digits without leading zeros.
func arrayIndex(token string, limit int) (int, error) {
	if token == "-" {
		return 0, fmt.Errorf(`"-" is the place behind the last element, where nothing is`)
	}
	if token == "" || len(token) > 1 && token[0] == '0' {
		return 0, fmt.Errorf("%q is no index of an array", shorten(token))
	}
	n := 0
	for _, c := range []byte(token) {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("%q is no index of an array", shorten(token))
		}
		if n = n*10 + int(c-'0'); n > MaxInput {
			break
		}
	}
	if n >= limit {
		return 0, fmt.Errorf("there is no index %s in an array up to %d", shorten(token), limit-1)
	}
	return n, nil
}

// Lookup returns what the pointer names in v; ErrInvalid when it names nothing.
func (v Value) Lookup(p Pointer) (Value, error) {
	tree := v.tree
	for i, token := range p {
		var err error
		if tree, err = child(tree, token); err != nil {
			return Value{}, invalid("%q: %v", shorten(p[:i+1].String()), err)
		}
	}
	return Value{tree: tree}, nil
}

// child returns the member or element of tree that token names.
func child(tree any, token string) (any, error) {
	switch t := tree.(type) {
	case map[string]any:
		if v, ok := t[token]; ok {
			return v, nil
		}
		return nil, fmt.Errorf("there is no member %q", shorten(token))
	case []any:
		i, err := arrayIndex(token, len(t))
		if err != nil {
			return nil, err
		}
		return t[i], nil
	}
	return nil, fmt.Errorf("there is nothing below %s", article((Value{tree: tree}).Kind()))
}
