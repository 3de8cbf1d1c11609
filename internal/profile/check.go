package profile

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// finish ends every change: it returns next if that is a profile of the same
// name whose changed parts are valid.
func (e *Editor) finish(old, next Document) (Document, error) {
	if next.Name != old.Name {
		return Document{}, invalid("the profile %q cannot be renamed to %q: make a new one", old.Name, shorten(next.Name))
	}
	if _, ok := next.Params[SelfKey]; !ok {
		if _, had := old.Params[SelfKey]; had {
			return Document{}, invalid("param %q is the profile's own name and stays", SelfKey)
		}
		// Written by hand without it: the first change adds it.
		next.Params = next.Params.with(SelfKey, Value{tree: next.Name})
	}
	if err := next.Validate(); err != nil {
		return Document{}, err
	}
	for _, key := range changed(old.Schemas, next.Schemas) {
		if err := e.newSchema(next, key); err != nil {
			return Document{}, err
		}
	}
	if err := e.checkChanged(next, Scope{}, old.Params); err != nil {
		return Document{}, err
	}
	for _, role := range slices.Sorted(maps.Keys(next.Roles)) {
		if err := e.checkChanged(next, Scope{role}, old.Roles[role]); err != nil {
			return Document{}, err
		}
	}
	for _, key := range changed(old.Meta, next.Meta) {
		if err := CheckMeta(key, next.Meta[key]); err != nil {
			return Document{}, err
		}
	}
	return next, nil
}

// changed returns the names, sorted, of the members of next that old lacks or has
// with another value.
func changed(old, next Params) []string {
	var keys []string
	for _, key := range differing(old, next) {
		if _, ok := next[key]; ok {
			keys = append(keys, key)
		}
	}
	return keys
}

// checkChanged checks the params of scope that are new or have changed.
func (e *Editor) checkChanged(d Document, s Scope, old Params) error {
	for _, key := range changed(old, d.In(s)) {
		if err := e.checkIn(d, s, key); err != nil {
			return err
		}
	}
	return nil
}

// checkIn checks one param of scope.
func (e *Editor) checkIn(d Document, s Scope, key string) error {
	return placed(e.Check(d, key, d.In(s)[key]), s.String())
}

// newSchema checks a schema that is new or has changed, and all values that it applies to.
func (e *Editor) newSchema(d Document, key string) error {
	if _, err := e.schemas.get(key, d.Schemas[key]); err != nil {
		return err
	}
	if v, ok := d.Default(key); ok {
		if err := placed(e.Check(d, key, v), "the schema's own default"); err != nil {
			return err
		}
	}
	if _, ok := d.Params[key]; ok {
		if err := e.checkIn(d, Scope{}, key); err != nil {
			return err
		}
	}
	for _, role := range slices.Sorted(maps.Keys(d.Roles)) {
		if _, ok := d.Roles[role][key]; ok {
			if err := e.checkIn(d, Scope{role}, key); err != nil {
				return err
			}
		}
	}
	return nil
}

// Conform returns v as the schema of param key asks for it: where that accepts
// strings only, a number, boolean, object or array that ParseValue read is the
// text it was read from. Any other value stays as it is.
func (d Document) Conform(key string, v Value) Value {
	schema, ok := d.Schemas[key].tree.(map[string]any)
	if !ok || v.text == "" || len(v.text) > MaxSize || !stringsOnly(schema["type"]) {
		return v
	}
	return Value{tree: v.text}
}

// conform returns r with values as the schema of param key asks for them.
func (d Document) conform(key string, r Ref) Ref {
	for _, v := range []**Value{&r.Value, &r.Default} {
		if *v != nil {
			conforming := d.Conform(key, **v)
			*v = &conforming
		}
	}
	return r
}

// stringsOnly reports whether a schema's "type" is that of strings.
func stringsOnly(kind any) bool {
	if list, ok := kind.([]any); ok && len(list) == 1 {
		kind = list[0]
	}
	return kind == "string"
}

// Keys of meta, which describes how a cluster or a member is shown. All others
// are free.
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

// CheckMeta returns ErrInvalid for a value that key of meta cannot have.
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

// SetOwn sets param key of a member's own params if ref holds.
func (e *Editor) SetOwn(d Document, node string, own Params, key string, v Value, ref Ref) (Params, error) {
	next, err := own.Set(key, v, d.conform(key, ref))
	if err != nil {
		return nil, err
	}
	return e.CheckOwn(d, node, own, next)
}

// RemoveOwn removes param key from a member's own params if ref holds.
func (e *Editor) RemoveOwn(d Document, own Params, key string, ref Ref) (Params, error) {
	return own.Remove(key, d.conform(key, ref))
}

// CheckOwn checks what differs between old and next, a member's own params
// before and after a change, as Set does. It returns next as the schemas ask for
// it.
func (e *Editor) CheckOwn(d Document, node string, old, next Params) (Params, error) {
	conforming := next
	for _, key := range changed(old, next) {
		v := d.Conform(key, next[key])
		if err := placed(e.Check(d, key, v), fmt.Sprintf("member %q", node)); err != nil {
			return nil, err
		}
		if v.text != next[key].text {
			conforming = conforming.with(key, v)
		}
	}
	return conforming, nil
}

// CheckAll checks the whole document as if all of it had been set now.
func (e *Editor) CheckAll(d Document) error {
	_, err := e.finish(Document{Name: d.Name}, d)
	return err
}

// Check checks a value of param key by the param's validator and by the schema
// that d has for it, if any. It returns a *ParamError, a *SchemaError,
// ErrInvalid or ErrTooLarge.
func (e *Editor) Check(d Document, key string, v Value) error {
	if validate, ok := e.validators[key]; ok {
		if err := validate(v); err != nil {
			return &ParamError{Key: key, Err: err}
		}
	}
	text, ok := d.Schemas[key]
	if !ok {
		return nil
	}
	compiled, err := e.schemas.get(key, text)
	if err != nil {
		return err
	}
	return compiled.check(key, v)
}

// placed returns err with the place of the value that was refused.
func placed(err error, place string) error {
	var bySchema *SchemaError
	var byValidator *ParamError
	switch {
	case errors.As(err, &bySchema):
		bySchema.Place = place
	case errors.As(err, &byValidator):
		byValidator.Place = place
	}
	return err
}
