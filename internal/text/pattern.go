package text

import (
	"regexp"
	"sync"
)

// Pattern returns a regular expression that is compiled at its first use. What a
// package compiles when it is initialised delays the start of every command.
func Pattern(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
