package consul

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// scanner extracts a few members from Consul's JSON. Of all checks or all
// services of a node only the indexes are needed; encoding/json, which reads
// every byte several times, would take most of the time of handling a change.
//
// It assumes that values it skips are valid JSON; values that it returns are
// parsed strictly. Truncated text is an error, never a panic.
type scanner struct {
	text []byte
	at   int
	err  error

	names  strings.Builder // what name read
	values []byte          // what bytes read
}

var errNotJSON = errors.New("unexpected text in Consul's answer")

// next returns the next byte that is not space without reading it; 0 at the end.
func (s *scanner) next() byte {
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// take reads c if it is the next byte.
func (s *scanner) take(c byte) bool {
	if s.err != nil || s.next() != c {
		return false
	}
	s.at++
	return true
}

func (s *scanner) fail() {
	if s.err == nil {
		s.err = fmt.Errorf("%w at byte %d of %d", errNotJSON, s.at, len(s.text))
	}
}

// null reads the word null if it is next.
func (s *scanner) null() bool {
	if s.err != nil || s.next() != 'n' || !bytes.HasPrefix(s.text[s.at:], []byte("null")) {
		return false
	}
	s.at += len("null")
	return true
}

// array calls element for each element, which it must read. null is empty.
func (s *scanner) array(element func()) { s.list('[', ']', element) }

// object calls member with each key; member must read the value. null is empty.
func (s *scanner) object(member func(key []byte)) {
	s.list('{', '}', func() {
		key := s.raw()
		if !s.take(':') {
			s.fail()
			return
		}
		member(key)
	})
}

// members read the members of an object into a T by their names; others are skipped.
type members[T any] map[string]func(s *scanner, v *T)

// read reads one object.
func (m members[T]) read(s *scanner) (v T) {
	m.readInto(s, &v)
	return v
}

func (m members[T]) readInto(s *scanner, v *T) {
	s.object(func(key []byte) {
		if set := m[string(key)]; set != nil {
			set(s, v)
		} else {
			s.skip()
		}
	})
}

// list reads an array of objects.
func (m members[T]) list(s *scanner) (all []T) {
	var zero T
	s.array(func() {
		all = append(all, zero)
		m.readInto(s, &all[len(all)-1])
	})
	return all
}

func (s *scanner) list(begin, end byte, entry func()) {
	if s.null() {
		return
	}
	if !s.take(begin) {
		s.fail()
		return
	}
	if s.take(end) {
		return
	}
	for s.err == nil {
		entry()
		switch {
		case s.take(','):
		case s.take(end):
			return
		default:
			s.fail()
		}
	}
}

// raw reads a string and returns the text between its quotes.
func (s *scanner) raw() []byte {
	if !s.take('"') {
		s.fail()
		return nil
	}
	begin := s.at
	for {
		i := bytes.IndexByte(s.text[s.at:], '"')
		if i < 0 {
			s.at = len(s.text)
			s.fail()
			return nil
		}
		s.at += i + 1
		if !s.escaped(begin, s.at-1) {
			return s.text[begin : s.at-1]
		}
	}
}

// escaped reports whether the byte at i follows an odd number of backslashes.
func (s *scanner) escaped(begin, i int) bool {
	if i == begin || s.text[i-1] != '\\' {
		return false
	}
	n := 0
	for i--; i >= begin && s.text[i] == '\\'; i-- {
		n++
	}
	return n%2 == 1
}

// str reads a string; null is empty.
func (s *scanner) str() string {
	if s.null() {
		return ""
	}
	return s.unquote(s.raw())
}

// name reads a string into memory that all names of the answer share; null is empty.
func (s *scanner) name() string {
	if s.null() {
		return ""
	}
	raw := s.raw()
	if bytes.IndexByte(raw, '\\') >= 0 {
		return s.unquote(raw)
	}
	begin := s.names.Len()
	s.names.Write(raw)
	return s.names.String()[begin:]
}

// bytes reads a base64 string into memory that all values of the answer share; null is nil.
func (s *scanner) bytes() []byte {
	if s.null() {
		return nil
	}
	raw := s.raw()
	if s.err != nil {
		return nil
	}
	if s.values == nil && len(s.text) >= longText {
		// Growing would copy what was read, while the pairs read so far keep the old memory.
		s.values = make([]byte, 0, base64.StdEncoding.DecodedLen(len(s.text)))
	}
	begin := len(s.values)
	values, err := base64.StdEncoding.AppendDecode(s.values, raw)
	if err != nil {
		s.fail()
		return nil
	}
	s.values = values
	return values[begin:len(values):len(values)]
}

// longText is the length from which an answer's values get their memory in one piece.
const longText = 1 << 20

// unquote returns a copy of a string that raw returned, without its escapes.
func (s *scanner) unquote(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw)
	}
	var v string
	if err := json.Unmarshal(slices.Concat([]byte{'"'}, raw, []byte{'"'}), &v); err != nil {
		s.fail()
	}
	return v
}

// number reads an index; null is 0.
func (s *scanner) number() uint64 {
	if s.null() {
		return 0
	}
	s.next()
	begin := s.at
	for s.at < len(s.text) && s.text[s.at] >= '0' && s.text[s.at] <= '9' {
		s.at++
	}
	n, err := strconv.ParseUint(string(s.text[begin:s.at]), 10, 64)
	if err != nil {
		s.fail()
	}
	return n
}

// skip reads a value of any kind.
func (s *scanner) skip() {
	depth := 0
	for s.err == nil {
		switch c := s.next(); c {
		case '"':
			s.raw()
		case '{', '[':
			depth++
			s.at++
		case '}', ']', ',', ':', 0:
			if depth == 0 || c == 0 {
				s.fail()
				return
			}
			if c == '}' || c == ']' {
				depth--
			}
			s.at++
		default:
			s.word()
		}
		if depth == 0 {
			return
		}
	}
}

// nested reads an object or array and returns its text, of which it follows only the
// strings and the nesting.
func (s *scanner) nested() []byte {
	first := s.next()
	begin, depth := s.at, 0
	for ; (first == '{' || first == '[') && s.at < len(s.text); s.at++ {
		switch s.text[s.at] {
		case '"':
			if s.raw(); s.err != nil {
				return nil
			}
			s.at--
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				s.at++
				return s.text[begin:s.at]
			}
		}
	}
	s.fail()
	return nil
}

// word reads a number, true, false or null.
func (s *scanner) word() {
	begin := s.at
	for ; s.at < len(s.text); s.at++ {
		switch s.text[s.at] {
		case ',', ':', '}', ']', '{', '[', '"', ' ', '\t', '\r', '\n':
			if s.at == begin {
				s.fail()
			}
			return
		}
	}
}

// end returns the scan's error. Text after the value is an error.
func (s *scanner) end() error {
	if s.next() != 0 {
		s.fail()
	}
	return s.err
}
