package text

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxName is the length of the longest name in bytes.
const MaxName = 128

// ErrName: a name cannot be used. Errors that wrap it quote the name and say which
// character is at fault.
var ErrName = errors.New("cannot be a name")

// CheckName returns ErrName unless name is one segment of a key, without spaces and
// invisible characters: the name of a cluster, profile, role or node.
func CheckName(name string) error {
	if err := CheckSegment(name); err != nil {
		return err
	}
	for i, r := range name {
		if unicode.IsSpace(r) || !unicode.IsPrint(r) {
			return badCharacter(name, i, "")
		}
	}
	return nil
}

// CheckSegment returns ErrName unless name can be one segment of the path of a key
// or file. Spaces may stand inside it.
func CheckSegment(name string) error {
	switch {
	case len(name) > MaxName:
		return badName(name, "it has %d bytes, at most %d are possible", len(name), MaxName)
	case name == "." || name == "..":
		return badName(name, "'.' alone means a directory")
	}
	if i := strings.IndexByte(name, '/'); i >= 0 {
		return badCharacter(name, i, ": a name is one segment of a key")
	}
	return CheckVisible(name)
}

// CheckVisible returns ErrName for a name that is empty, is not UTF-8, holds control
// characters or begins or ends with a space.
func CheckVisible(name string) error {
	if name == "" {
		return badName(name, "it is empty")
	}
	for i, r := range name {
		_, size := utf8.DecodeRuneInString(name[i:])
		if r == utf8.RuneError && size == 1 {
			return badName(name, "the byte 0x%02x at position %d is not UTF-8", name[i], position(name, i))
		}
		edge := i == 0 || i+size == len(name)
		if unicode.IsControl(r) || edge && unicode.IsSpace(r) {
			return badCharacter(name, i, "")
		}
	}
	return nil
}

// maxParam bounds the name of a param in bytes.
const maxParam = 512

// CheckParam returns ErrName unless name can be that of a param.
func CheckParam(name string) error {
	switch {
	case name == "":
		return badName(name, "it is empty")
	case len(name) > maxParam:
		return badName(name, "it has %d bytes, at most %d are possible", len(name), maxParam)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return badName(name, "it has control characters, or is no UTF-8")
	}
	return nil
}

// CheckCharacters returns ErrName unless name consists of letters, digits and the
// characters of others.
func CheckCharacters(name, others string) error {
	for i, r := range name {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(others, r) {
			return badCharacter(name, i, "; letters, digits and "+strings.Join(strings.Split(others, ""), " ")+" are")
		}
	}
	return nil
}

// maxLabel is the length of the longest label of a DNS name in bytes.
const maxLabel = 63

// CheckLabel returns an error unless Consul's DNS answers a name that has label between two
// dots. Consul compares names in their escaped form, so no label with a character that
// DNS escapes has an answer.
func CheckLabel(label string) error {
	if len(label) > maxLabel {
		return fmt.Errorf("%q has %d bytes, a part of a DNS name holds %d", label, len(label), maxLabel)
	}
	for _, r := range label {
		if r <= ' ' || r > '~' || strings.ContainsRune(`."\;()@'`, r) {
			return fmt.Errorf("it contains %q", r)
		}
	}
	return nil
}

func badName(name, format string, args ...any) error {
	return fmt.Errorf("%q %w: %s", Truncate(name, 2*MaxName), ErrName, fmt.Sprintf(format, args...))
}

// badCharacter is the error about the character at name[i].
func badCharacter(name string, i int, more string) error {
	r, _ := utf8.DecodeRuneInString(name[i:])
	shown := strconv.QuoteRune(r)
	switch {
	case r == ' ':
		shown = "a space"
	case unicode.IsMark(r): // it would combine with the quote before it
		shown = strconv.QuoteRuneToASCII(r)
	}
	return badName(name, "%s at position %d is not allowed%s", shown, position(name, i), more)
}

// position counts characters from 1.
func position(name string, i int) int { return utf8.RuneCountInString(name[:i]) + 1 }
