package config

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/agext/levenshtein"
)

const (
	maxName = 128  // bytes of a name that becomes one segment of a key
	maxPath = 4096 // bytes, PATH_MAX
)

// segment checks that a name can be one segment of a key or a path.
func segment(s string) error {
	switch {
	case s == "":
		return errors.New("the name is empty")
	case len(s) > maxName:
		return fmt.Errorf("the name has %d bytes, at most %d are possible", len(s), maxName)
	case s == "." || s == "..":
		return fmt.Errorf("%q cannot be a name", s)
	case strings.Contains(s, "/"):
		return fmt.Errorf("%q must not contain a slash", s)
	}
	return plain(s)
}

// plain checks that a name has no characters that nobody can see.
func plain(s string) error {
	switch {
	case !utf8.ValidString(s) || hasControl(s):
		return fmt.Errorf("%q contains control characters", s)
	case strings.TrimSpace(s) != s:
		return fmt.Errorf("%q begins or ends with a space", s)
	}
	return nil
}

// keyPrefix checks segments joined by slashes; empty means the top of the KV.
func keyPrefix(s string) error {
	if s == "" {
		return nil
	}
	if strings.HasPrefix(s, "/") || strings.HasSuffix(s, "/") {
		return fmt.Errorf("%q must neither begin nor end with a slash", s)
	}
	for part := range strings.SplitSeq(s, "/") {
		if err := segment(part); err != nil {
			return err
		}
	}
	return nil
}

// serviceName checks a name or id in the catalog; odd characters are allowed.
func serviceName(s string) error {
	switch {
	case s == "":
		return errors.New("the name is empty")
	case len(s) > maxName:
		return fmt.Errorf("the name has %d bytes, at most %d are possible", len(s), maxName)
	}
	return plain(s)
}

// suggest adds what was probably meant, when something is close.
func suggest(got string, known []string) string {
	if best := closest(got, known); best != "" {
		return fmt.Sprintf(" Did you mean %q?", best)
	}
	return ""
}

func closest(got string, known []string) string {
	best, least := "", 3
	for _, k := range known {
		if n := levenshtein.Distance(strings.ToLower(got), k, nil); n < least {
			best, least = k, n
		}
	}
	return best
}
