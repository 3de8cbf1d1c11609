package profile

import "encoding/json"

// ParseValue reads a value as a user gives it: JSON when the text is valid JSON,
// otherwise the text itself, byte for byte. JSON keeps the spelling of its
// numbers. JSON that is valid but not accepted, such as an object that has a
// member twice, is an error.
//
// A value that was read from JSON remembers its text, which Document.Conform
// takes for a param whose schema accepts strings only.
//
// It returns ErrInvalid (a *SyntaxError where a place can be named) or
// ErrTooLarge.
func ParseValue(text string) (Value, error) {
	v, err := ParseJSON([]byte(text))
	switch {
	case err == nil && v.Kind() != "string":
		v.text = text
		return v, nil
	case err == nil || json.Valid([]byte(text)):
		return v, err
	}
	return Text(text)
}

// ParseYAML reads one document of YAML, or JSON, whose numbers keep their
// spelling. In YAML a plain word is a string, what looks like a JSON number is
// one, as spelled, and dates are strings. Anchors are expanded within bounds.
// Tags other than those of JSON's types, merge keys, members named twice, .nan
// and .inf are errors, and so is a text of blanks and comments only.
//
// It returns ErrInvalid (a *SyntaxError where a place can be named) or
// ErrTooLarge.
func ParseYAML(text string) (Value, error) {
	v, err := ParseJSON([]byte(text))
	if err == nil || json.Valid([]byte(text)) {
		return v, err
	}
	if len(text) > maxYAMLText {
		return Value{}, tooLarge("not JSON (%v), and with %d bytes too long to be read as YAML, which may have %d KiB", err, len(text), maxYAMLText>>10)
	}
	return parseYAML(text)
}
