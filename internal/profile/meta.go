package profile

import "regexp"

// Meta says how a cluster or a member is shown. Two keys have a meaning, all
// others are free.
const (
	MetaIcon   = "icon"   // a short text or symbol
	MetaColour = "colour" // a CSS colour: a name, or # and 3, 4, 6 or 8 hexadecimal digits
)

// maxIcon bounds an icon, in bytes.
const maxIcon = 256

// colour is what may stand in a style sheet without quotes.
var colour = regexp.MustCompile(`^(#([0-9a-fA-F]{3,4}|[0-9a-fA-F]{6}|[0-9a-fA-F]{8})|[a-zA-Z]{1,32})$`)

// CheckMeta returns ErrInvalid for what cannot stand under key.
func CheckMeta(key string, v Value) error {
	if err := checkKey(key); err != nil {
		return err
	}
	text, isText := v.tree.(string)
	switch key {
	case MetaIcon:
		if !isText || text == "" || len(text) > maxIcon {
			return invalid("meta %q is %s: a text of at most %d bytes belongs there", key, v.short(), maxIcon)
		}
	case MetaColour:
		if !isText || !colour.MatchString(text) {
			return invalid(`meta %q is %s: a colour's name or "#rrggbb" belongs there`, key, v.short())
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
