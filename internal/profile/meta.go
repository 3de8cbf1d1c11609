package profile

import "strings"

// Meta says how a cluster or a member is shown. Two keys have a meaning, all
// others are free.
const (
	MetaIcon   = "icon"   // a short text or symbol
	MetaColour = "colour" // a CSS colour: a name, or # and 3, 4, 6 or 8 hexadecimal digits
)

// maxIcon bounds an icon, in bytes.
const maxIcon = 256

// isColour reports whether text can stand in a style sheet without quotes.
func isColour(text string) bool {
	if digits, ok := strings.CutPrefix(text, "#"); ok {
		return strings.Trim(digits, "0123456789abcdefABCDEF") == "" && (len(digits) == 3 || len(digits) == 4 || len(digits) == 6 || len(digits) == 8)
	}
	return text != "" && len(text) <= 32 && !strings.ContainsFunc(text, func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') })
}

// CheckMeta returns ErrInvalid for what cannot stand under key.
func CheckMeta(key string, v Value) error {
	if err := checkKey(key); err != nil {
		return err
	}
	text, isText := v.tree.(string)
	switch key {
	case MetaIcon:
		if !isText || text == "" || len(text) > maxIcon {
			return invalid("meta %q must be a text of at most %d bytes", key, maxIcon)
		}
	case MetaColour:
		if !isText || !isColour(text) {
			return invalid(`meta %q must be the name of a colour or "#rrggbb"`, key)
		}
	}
	return nil
}

// SetMeta sets key of the profile's meta.
func (e *Editor) SetMeta(d Document, key string, v Value) (Document, error) {
	if err := CheckMeta(key, v); err != nil {
		return Document{}, err
	}
	next := d.clone()
	next.Meta[key] = v
	return e.seal(d, next)
}

// RemoveMeta removes key from the profile's meta; that it is gone already is no
// error.
func (e *Editor) RemoveMeta(d Document, key string) (Document, error) {
	next := d.clone()
	delete(next.Meta, key)
	return e.seal(d, next)
}
