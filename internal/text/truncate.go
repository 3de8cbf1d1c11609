// Package text bounds text that others wrote, checks names, and words errors about
// names that do not exist.
package text

import (
	"strings"
	"unicode/utf8"
)

const (
	replacement = "\uFFFD" // replaces bytes that are not UTF-8
	ellipsis    = "…"
)

// Truncate returns s as valid UTF-8 of at most n bytes; a text that was cut ends
// with "…".
func Truncate(s string, n int) string {
	if len(s) <= n && utf8.ValidString(s) {
		return s
	}
	if s = strings.ToValidUTF8(s, replacement); len(s) <= n {
		return s
	}
	if n < len(ellipsis) {
		return Head(s, n)
	}
	return Head(s, n-len(ellipsis)) + ellipsis
}

// Line returns s as one line of at most n bytes: white space becomes one space.
func Line(s string, n int) string { return Truncate(strings.Join(strings.Fields(s), " "), n) }

// Head returns the beginning of s as valid UTF-8 of at most n bytes.
func Head(s string, n int) string {
	if s = strings.ToValidUTF8(s, replacement); len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:max(n, 0)]
}

// Tail returns the end of s, where errors are, as valid UTF-8 of at most n bytes. It
// begins with a whole line if at least half of the end remains.
func Tail(s string, n int) string {
	if s = strings.ToValidUTF8(s, replacement); len(s) <= n {
		return s
	}
	i := len(s) - max(n, 0)
	for i < len(s) && !utf8.RuneStart(s[i]) {
		i++
	}
	s = s[i:]
	if i := strings.IndexByte(s, '\n'); i >= 0 && i < len(s)/2 {
		s = s[i+1:]
	}
	return s
}
