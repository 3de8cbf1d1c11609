package profile

import "errors"

// ParseValue reads what a user typed or a file holds, in this order:
//
//  1. Nothing at all is the empty string, so that what a shell variable took
//     from a raw read of "" can be given back.
//  2. What is JSON is JSON, numbers kept as they are spelled. JSON that is well
//     formed but not taken, such as an object with a member twice, is an error.
//  3. Anything else is one document of YAML, where plain words are strings. What
//     looks like a JSON number is one, as spelled; dates are strings. Anchors
//     are expanded within bounds; tags other than those of JSON's types, merge
//     keys, members named twice, .nan and .inf are errors, and so is text that
//     holds nothing but blanks and comments: "#fff" needs its quotes.
//
// It returns ErrInvalid (a *SyntaxError where a place can be named) or
// ErrTooLarge.
func ParseValue(text string) (Value, error) {
	if text == "" {
		return Value{""}, nil
	}
	v, err := ParseJSON([]byte(text))
	var syntax *SyntaxError
	if err == nil || !errors.As(err, &syntax) || !syntax.malformed {
		return v, err
	}
	if len(text) > maxYAMLText {
		return Value{}, tooLarge("not JSON (%v), and with %d bytes too long to be read as YAML, which may have %d KiB", err, len(text), maxYAMLText>>10)
	}
	v, yamlErr := parseYAML(text)
	if yamlErr == nil || errors.Is(yamlErr, ErrTooLarge) {
		return v, yamlErr
	}
	if text[0] == '{' || text[0] == '[' || text[0] == '"' {
		return Value{}, invalid("neither JSON (%v) nor YAML (%v): quote it, or take it as it is with --string", err, yamlErr)
	}
	return Value{}, invalid("not YAML: %v: quote it, or take it as it is with --string", yamlErr)
}
