package kv

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
)

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
