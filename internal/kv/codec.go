package kv

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// codec turns values into what a key holds and back. decode returns ErrDamaged
// or ErrNewer. encode keeps what old, the value it replaces, holds beyond T.
type codec[T any] interface {
	encode(v T, old []byte) ([]byte, error)
	decode(data []byte) (T, error)
}

// text is a key whose value is a bare string.
type text struct{}

func (text) encode(v string, _ []byte) ([]byte, error) { return []byte(v), nil }
func (text) decode(data []byte) (string, error)        { return string(data), nil }

// document is a key whose value is a JSON object with a format number in
// front. A document without one was written by hand and counts as the oldest.
type document[T any] struct{ format int }

// checked is a codec that refuses what is too large, or what check refuses.
type checked[T any] struct {
	codec[T]
	limit int
	check func(T) error
}

func (c checked[T]) decode(data []byte) (T, error) {
	var zero T
	if len(data) > c.limit {
		return zero, fmt.Errorf("%w: it has %d KB, at most %d KB are read", ErrDamaged, (len(data)+1023)>>10, c.limit>>10)
	}
	v, err := c.codec.decode(data)
	if err != nil {
		return zero, err
	}
	if err := c.check(v); err != nil {
		return zero, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return v, nil
}

var errNotObject = errors.New("not a JSON object")

// head is what documents of every format share.
type head struct {
	Format int `json:"format"`
}

func (c document[T]) encode(v T, old []byte) ([]byte, error) {
	body, err := marshal(v)
	if err != nil {
		return nil, err
	}
	if len(body) == 0 || body[0] != '{' {
		return nil, fmt.Errorf("%T: %w", v, errNotObject)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, `{"format":%d`, c.format)
	for _, extra := range unknownMembers[T](old) {
		out.WriteByte(',')
		out.Write(extra)
	}
	if len(body) > len("{}") {
		out.WriteByte(',')
	}
	out.Write(body[1:])
	return out.Bytes(), nil
}

func (c document[T]) decode(data []byte) (T, error) {
	var v, zero T
	var h head
	if !utf8.Valid(data) {
		return zero, fmt.Errorf("%w: not UTF-8", ErrDamaged)
	}
	if trimmed := bytes.TrimSpace(data); len(trimmed) == 0 || trimmed[0] != '{' {
		return zero, fmt.Errorf("%w: %w", ErrDamaged, errNotObject)
	}
	if n, ok := leadingFormat(data); ok {
		h.Format = n
	} else if err := json.Unmarshal(data, &h); err != nil {
		return zero, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if h.Format > c.format {
		return zero, fmt.Errorf("%w: %d; this jorc reads up to %d: upgrade jorc on this host", ErrNewer, h.Format, c.format)
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return zero, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return v, nil
}

// leadingFormat reads the format number where encode writes it, so that the
// documents of a large tree are not read twice.
func leadingFormat(data []byte) (int, bool) {
	rest, ok := bytes.CutPrefix(data, []byte(`{"format":`))
	end := bytes.IndexAny(rest, ",}")
	if !ok || end <= 0 || rest[0] < '1' || rest[0] > '9' {
		return 0, false
	}
	n, err := strconv.Atoi(string(rest[:end]))
	return n, err == nil
}

// marshal leaves <, > and & as they are: people read documents.
func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// unknownMembers returns the members of the JSON object old that T has no
// field for, encoded and in order of their names: a newer jorc wrote them, and
// an older one that changes the document must not lose them.
func unknownMembers[T any](old []byte) [][]byte {
	known, ok := fieldNames(reflect.TypeFor[T]())
	if !ok || len(old) == 0 {
		return nil
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(old, &members) != nil {
		return nil
	}
	var out [][]byte
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if known[strings.ToLower(name)] {
			continue
		}
		key, err := marshal(name)
		if err != nil {
			continue
		}
		var m bytes.Buffer
		m.Write(key)
		m.WriteByte(':')
		if json.Compact(&m, members[name]) == nil {
			out = append(out, m.Bytes())
		}
	}
	return out
}

var marshaler = reflect.TypeFor[json.Marshaler]()

// fieldNames returns the names, in lower case, under which encoding/json reads
// the fields of the struct t, "format" included. ok is false when t is no
// struct or encodes itself.
func fieldNames(t reflect.Type) (names map[string]bool, ok bool) {
	if t.Kind() != reflect.Struct || t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler) {
		return nil, false
	}
	names = map[string]bool{"format": true}
	for _, f := range reflect.VisibleFields(t) {
		if !f.IsExported() {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			name = f.Name
		}
		names[strings.ToLower(name)] = true
	}
	return names, true
}
