package profile

import (
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Params are named values: the params of a cluster, a role or a member, and
// what else of a profile has names. The functions of this package never change
// one that they were given.
type Params map[string]Value

// maxKey bounds the names of params, in bytes.
const maxKey = 512

// ParseParams reads an object of params as ParseYAML does.
func ParseParams(text string) (Params, error) {
	v, err := ParseYAML(text)
	if err != nil {
		return nil, err
	}
	return v.Params()
}

// Params returns the members of an object; anything else is ErrInvalid.
func (v Value) Params() (Params, error) {
	object, ok := v.tree.(map[string]any)
	if !ok {
		return nil, invalid("%s is no object of params: it is %s", v.short(), article(v.Kind()))
	}
	return paramsOf(object), nil
}

func article(kind string) string {
	if strings.ContainsRune("aeiou", rune(kind[0])) {
		return "an " + kind
	}
	return "a " + kind
}

func paramsOf(object map[string]any) Params {
	p := make(Params, len(object))
	for key, tree := range object {
		p[key] = Value{tree: tree}
	}
	return p
}

// Value returns p as a JSON object.
func (p Params) Value() Value {
	object := make(map[string]any, len(p))
	for key, v := range p {
		object[key] = v.tree
	}
	return Value{tree: object}
}

// Keys returns the names, sorted.
func (p Params) Keys() []string { return slices.Sorted(maps.Keys(p)) }

// Equal tells whether both hold the same values by Value.Equal.
func (p Params) Equal(q Params) bool { return maps.EqualFunc(p, q, Value.Equal) }

// MarshalJSON returns a JSON object, {} for nil.
func (p Params) MarshalJSON() ([]byte, error) { return p.Value().JSON(), nil }

// UnmarshalJSON reads a JSON object, or null as an empty one, as ParseJSON does.
func (p *Params) UnmarshalJSON(data []byte) error {
	v, err := ParseJSON(data)
	if err != nil {
		return err
	}
	if v.IsNull() {
		*p = Params{}
		return nil
	}
	*p, err = v.Params()
	return err
}

// clone returns a copy that is never nil.
func (p Params) clone() Params {
	q := make(Params, len(p)+1)
	maps.Copy(q, p)
	return q
}

// with returns p with key set to v.
func (p Params) with(key string, v Value) Params {
	q := p.clone()
	q[key] = v
	return q
}

// without returns p without key.
func (p Params) without(key string) Params {
	q := p.clone()
	delete(q, key)
	return q
}

// checkKey returns ErrInvalid for what cannot be the name of a new param.
func checkKey(key string) error {
	switch {
	case key == "":
		return invalid("the name of a param is empty")
	case !utf8.ValidString(key):
		return invalid("the name of the param %q is not UTF-8", shorten(key))
	case len(key) > maxKey:
		return invalid("the name of the param %q is longer than %d bytes", shorten(key), maxKey)
	case strings.ContainsFunc(key, unicode.IsControl):
		return invalid("the name of the param %q holds a control character", shorten(key))
	}
	return nil
}
