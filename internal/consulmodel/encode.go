package consulmodel

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// appendEntry appends a key as Consul writes it.
func appendEntry(b []byte, e *entry, withValue bool) []byte {
	b = strconv.AppendUint(append(b, `{"LockIndex":`...), e.lockIndex, 10)
	b = appendText(append(b, `,"Key":`...), e.key)
	b = strconv.AppendUint(append(b, `,"Flags":`...), e.flags, 10)
	if b = append(b, `,"Value":`...); withValue && e.value != nil {
		b = append(b, '"')
		b = base64.StdEncoding.AppendEncode(b, e.value)
		b = append(b, '"')
	} else {
		b = append(b, `null`...)
	}
	if e.session != "" {
		b = appendText(append(b, `,"Session":`...), e.session)
	}
	b = strconv.AppendUint(append(b, `,"CreateIndex":`...), e.createIndex, 10)
	b = strconv.AppendUint(append(b, `,"ModifyIndex":`...), e.modifyIndex, 10)
	return append(b, '}')
}

// appendText appends a JSON string.
func appendText(b []byte, s string) []byte {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == '"' || r == '\\' || r > '~' }) {
		text, _ := json.Marshal(s) // a string can always be encoded
		return append(b, text...)
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// appendNames appends the names of keys, each cut after the first separator behind prefix.
func appendNames(b []byte, keys []string, prefix, separator string) []byte {
	var names []string
	for _, key := range keys {
		if separator != "" {
			if at := strings.Index(key[len(prefix):], separator); at >= 0 {
				key = key[:len(prefix)+at+len(separator)]
			}
		}
		if len(names) == 0 || names[len(names)-1] != key {
			names = append(names, key)
		}
	}
	b = append(b, '[')
	for i, name := range slices.Compact(names) {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(b, name)
	}
	return append(b, ']')
}
