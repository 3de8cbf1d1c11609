package workflow

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jorc/jorc/internal/profile"
)

// maxParam bounds the name of a param in bytes.
const maxParam = 512

// ParseParam reads "NAME=VALUE", where VALUE is JSON or YAML as
// profile.ParseValue reads it; the first "=" splits. Errors are ErrInvalid.
func ParseParam(s string) (name string, v profile.Value, err error) {
	return parseParam(s, profile.ParseValue)
}

// ParseTextParam is ParseParam for values that are taken as they are.
func ParseTextParam(s string) (name string, v profile.Value, err error) {
	return parseParam(s, profile.Text)
}

func parseParam(s string, read func(string) (profile.Value, error)) (name string, v profile.Value, err error) {
	name, text, ok := strings.Cut(s, "=")
	switch {
	case !ok:
		return "", v, fmt.Errorf("param %q: %w: write NAME=VALUE", name, ErrInvalid)
	case name == "":
		return "", v, fmt.Errorf("param %q: %w: the name is empty", s, ErrInvalid)
	case len(name) > maxParam || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return "", v, fmt.Errorf("param %q: %w: not a name", name, ErrInvalid)
	}
	if v, err = read(text); err != nil {
		return "", v, fmt.Errorf("param %q: %w: %w", name, ErrInvalid, err)
	}
	return name, v, nil
}
