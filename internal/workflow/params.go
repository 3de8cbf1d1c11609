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

// ParseParam reads "NAME=VALUE", where read reads VALUE, such as
// profile.ParseValue; the first "=" splits. Errors are ErrInvalid and do not
// contain the value.
func ParseParam(s string, read func(string) (profile.Value, error)) (name string, v profile.Value, err error) {
	name, text, ok := strings.Cut(s, "=")
	switch {
	case !ok:
		return "", v, fmt.Errorf("param %q: %w: write NAME=VALUE", name, ErrInvalid)
	case name == "":
		return "", v, fmt.Errorf("param: %w: the name before \"=\" is empty", ErrInvalid)
	case len(name) > maxParam || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return "", v, fmt.Errorf("param %q: %w: not a name", name, ErrInvalid)
	}
	if v, err = read(text); err != nil {
		return "", v, fmt.Errorf("param %q: %w: %w", name, ErrInvalid, err)
	}
	return name, v, nil
}
