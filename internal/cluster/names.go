package cluster

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Sentinels of names and states.
var (
	// ErrBadName: a version, category or node cannot have that name.
	ErrBadName = errors.New("not a usable name")
	// ErrBadState: there is no such state.
	ErrBadState = errors.New("not a state")
)

// maxName is the length of the longest name in bytes.
const maxName = 128

// punctuation is what a version may hold beside letters and digits.
const punctuation = ".-_+~:@=,"

// CheckVersion returns ErrBadName, with the character that is to blame, unless
// name can be that of a version: one segment of a key's path that a shell, a
// file and a URL leave as it is.
func CheckVersion(name string) error { return checkName("version", name) }

// CheckCategory is CheckVersion for the categories of states.
func CheckCategory(name string) error { return checkName("category", name) }

func checkName(kind, name string) error {
	if err := checkSegment(kind, name); err != nil {
		return err
	}
	for i, r := range name {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune(punctuation, r) {
			continue
		}
		return bad(kind, name, "%s at position %d cannot be part of it; letters, digits and %s can", visible(r), position(name, i), spaced(punctuation))
	}
	if name[0] == '-' {
		return bad(kind, name, "'-' at position 1 would make it look like a flag")
	}
	return nil
}

// CheckNode returns ErrBadName unless name can be that of a node.
func CheckNode(name string) error {
	if err := checkSegment("node", name); err != nil {
		return err
	}
	for i, r := range name {
		if unicode.IsSpace(r) || !unicode.IsPrint(r) {
			return bad("node", name, "%s at position %d cannot be part of it", visible(r), position(name, i))
		}
	}
	return nil
}

// checkSegment checks what every segment of a key's path must be.
func checkSegment(kind, name string) error {
	switch {
	case name == "":
		return bad(kind, name, "it is empty")
	case len(name) > maxName:
		return bad(kind, name[:16]+"…", "it has %d bytes, at most %d are possible", len(name), maxName)
	case !utf8.ValidString(name):
		i := strings.IndexRune(name, utf8.RuneError)
		return bad(kind, name, "the byte 0x%02x at position %d is not UTF-8", name[i], position(name, i))
	case name == "." || name == "..":
		return bad(kind, name, "'.' alone cannot be a name")
	}
	if i := strings.IndexByte(name, '/'); i >= 0 {
		return bad(kind, name, "'/' at position %d cannot be part of it: a name is one segment of a key", position(name, i))
	}
	return nil
}

func bad(kind, name, format string, args ...any) error {
	return fmt.Errorf("%s %q: %w: %s", kind, name, ErrBadName, fmt.Sprintf(format, args...))
}

// position counts characters from 1.
func position(name string, i int) int { return utf8.RuneCountInString(name[:i]) + 1 }

// visible is a character as an error shows it.
func visible(r rune) string {
	switch {
	case r == ' ':
		return "a space"
	case unicode.IsMark(r): // which would sit on the quote in front of it
		return strconv.QuoteRuneToASCII(r)
	}
	return strconv.QuoteRune(r)
}

func spaced(s string) string { return strings.Join(strings.Split(s, ""), " ") }
