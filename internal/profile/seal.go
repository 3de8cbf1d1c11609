package profile

import (
	"maps"
	"slices"
)

// seal ends every change: it returns next if that is a profile of the same
// name whose changed parts are as they have to be.
func (e *Editor) seal(old, next Document) (Document, error) {
	if next.Name != old.Name {
		return Document{}, invalid("the profile %q cannot be renamed to %q: make a new one", old.Name, shorten(next.Name))
	}
	if _, ok := next.Params[SelfKey]; !ok {
		if _, had := old.Params[SelfKey]; had {
			return Document{}, invalid("param %q is the profile's own name and stays", SelfKey)
		}
		// Written by hand without it: made good by the first change.
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

// changed returns the names, sorted, of what next has and old has not, or
// otherwise.
func changed(old, next Params) []string {
	var keys []string
	for _, key := range differing(old, next) {
		if _, ok := next[key]; ok {
			keys = append(keys, key)
		}
	}
	return keys
}

// checkChanged consults the schemas of the params of scope that are new.
func (e *Editor) checkChanged(d Document, s Scope, old Params) error {
	for _, key := range changed(old, d.In(s)) {
		if err := e.checkIn(d, s, key); err != nil {
			return err
		}
	}
	return nil
}

// checkIn consults the schema of one param of scope.
func (e *Editor) checkIn(d Document, s Scope, key string) error {
	return placed(e.Check(d, key, d.In(s)[key]), s.String())
}

// newSchema checks everything that a new schema is about.
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
