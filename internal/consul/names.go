package consul

import (
	"context"
	"errors"
	"strings"
)

// plainCharacters are taken by every Consul in the name of a key. 1.21 takes no
// others, 1.22 most.
const plainCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789,_./-?&="

// inPlace are the unusual characters of which some places in a name are refused: a space at
// its end, an escaped '.' or '/'.
const inPlace = " %"

// RefusedKeys returns, of names of keys or prefixes, which ones this Consul refuses in
// requests, and why. Transactions take any name, so what they wrote may not be readable. It
// asks Consul by reading, and only about names with characters that no earlier one had: a
// name that every Consul takes costs nothing. Which names are refused depends on the
// version of the agent that answers. The error is that of a request without an answer.
func (c *Client) RefusedKeys(ctx context.Context, names ...string) (refused map[string]error, err error) {
	refused = map[string]error{}
	taken, never := plainCharacters, map[rune]error{}
	for _, name := range names {
		unusual := []rune{}
		for _, r := range name {
			if why := never[r]; why != nil {
				refused[name] = &Error{Op: "read key", Name: name, Class: ErrRefused, Err: why}
			} else if !strings.ContainsRune(taken, r) {
				unusual = append(unusual, r)
			}
		}
		if refused[name] != nil || len(unusual) == 0 && !oddSegments(name) {
			continue
		}
		_, _, err := c.KVGet(ctx, name, Query{})
		var no *Error
		switch {
		case errors.As(err, &no) && no.Class == ErrRefused && len(unusual) == 1 && !oddSegments(name) && !strings.ContainsAny(name, inPlace):
			never[unusual[0]] = no.Err
			refused[name] = err
		case IsPermanent(err):
			refused[name] = err
		case err != nil && !errors.Is(err, ErrDenied): // names come before rights
			return nil, err
		default:
			taken += strings.NewReplacer(" ", "", "%", "").Replace(string(unusual))
		}
	}
	return refused, nil
}

// oddSegments reports whether the name of a key has an empty segment, or one or more dots
// that may lead to another key.
func oddSegments(name string) bool {
	return strings.Contains(name, "//") || strings.Contains(name, "..") || strings.Contains("/"+name+"/", "/./")
}
