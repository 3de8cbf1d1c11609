package config

import (
	"fmt"
	"io"
)

// Secret is a value that no log, error, listing or document may show: every
// way of formatting or marshalling it gives a placeholder. string(s) is the
// value itself.
type Secret string

const redacted = "<redacted>"

// String returns a placeholder, or nothing when the secret is empty.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// Format writes the placeholder whatever the verb is.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText gives the placeholder, to JSON and YAML too.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
