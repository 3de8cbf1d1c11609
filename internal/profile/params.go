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
		return nil, invalid("params are an object, and this is %s", article(v.Kind()))
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

// Equal reports whether both hold the same values by Value.Equal.
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

// Ref is the value that a param must have for a change to be made; the zero Ref
// accepts any. A schema's default never counts: a param that has only that is
// missing, as it is for a plain read.
type Ref struct {
	Value   *Value // the param equals this
	Default *Value // with Value: a missing param counts as this
	Absent  bool   // the param is missing; goes with nothing else
}

// check returns a *MismatchError when p[key] is not what the reference asks
// for, and ErrInvalid for a reference that makes no sense.
func (r Ref) check(p Params, key string) error {
	if r.Absent && (r.Value != nil || r.Default != nil) {
		return invalid("a reference to param %q asks both for a value and for its absence: give one of the two", key)
	}
	if r.Default != nil && r.Value == nil {
		return invalid("a default for param %q needs a reference to compare it with", key)
	}
	have, present := p[key]
	mismatch := &MismatchError{Key: key, Want: r.Value, Have: have, HavePresent: present}
	switch {
	case r.Absent:
		if present {
			return mismatch
		}
	case r.Value == nil:
	case present:
		if !have.Equal(*r.Value) {
			return mismatch
		}
	case r.Default == nil || !r.Default.Equal(*r.Value):
		return mismatch
	}
	return nil
}

// Set returns p with key set to v if ref holds. It returns a *MismatchError or
// ErrInvalid.
func (p Params) Set(key string, v Value, ref Ref) (Params, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	if err := ref.check(p, key); err != nil {
		return nil, err
	}
	return p.with(key, v), nil
}

// Remove returns p without key if ref holds; that it is gone already is no
// error. It returns a *MismatchError or ErrInvalid.
func (p Params) Remove(key string, ref Ref) (Params, error) {
	if err := ref.check(p, key); err != nil {
		return nil, err
	}
	return p.without(key), nil
}

// Replace returns p with what differs between before and after as it is in
// after, if all that still is as in before. What before and after agree on is
// not compared and not changed. It returns a *MismatchError or ErrInvalid.
func (p Params) Replace(before, after Params) (Params, error) {
	q := p.clone()
	var failed *MismatchError
	for _, key := range differing(before, after) {
		var ref Ref
		if v, ok := before[key]; ok {
			ref.Value = &v
		} else {
			ref.Absent = true
		}
		if err := ref.check(p, key); err != nil {
			mismatch, ok := err.(*MismatchError)
			if !ok {
				return nil, err
			}
			if failed == nil {
				failed = mismatch
			} else {
				failed.More = append(failed.More, key)
			}
			continue
		}
		v, ok := after[key]
		if !ok {
			delete(q, key)
			continue
		}
		if err := checkKey(key); err != nil {
			return nil, err
		}
		q[key] = v
	}
	if failed != nil {
		return nil, failed
	}
	return q, nil
}

// differing returns the names, sorted, of what is not the same in both.
func differing(a, b Params) []string {
	var keys []string
	for key, v := range a {
		if w, ok := b[key]; !ok || !v.Equal(w) {
			keys = append(keys, key)
		}
	}
	for key := range b {
		if _, ok := a[key]; !ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
