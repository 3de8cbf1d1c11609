package profile

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Editor changes documents. Every change returns the next document, or an
// error and nothing: ErrInvalid, ErrMismatch, ErrSchema or ErrTooLarge. Each
// param that changes is checked by its validator and its schema; others are not,
// so that a value that another tool wrote past its schema does not stop all
// other changes.
//
// An Editor remembers compiled schemas and is safe for concurrent use; the zero
// Editor has no validators and is ready.
type Editor struct {
	schemas    schemaCache
	validators map[string]Validator
}

// Validator returns why a value cannot be that of the param it is registered
// for, without the value; nil accepts it.
type Validator func(v Value) error

// NewEditor returns an Editor with validators for params that have a meaning,
// by the names of the params. They apply to the params of the cluster, of roles
// and of members.
func NewEditor(validators map[string]Validator) *Editor { return &Editor{validators: validators} }

// WithValidators returns a new Editor that also has these validators, in the
// place of those for the same params.
func (e *Editor) WithValidators(more map[string]Validator) *Editor {
	all := make(map[string]Validator, len(e.validators)+len(more))
	maps.Copy(all, e.validators)
	maps.Copy(all, more)
	return NewEditor(all)
}

// Scope selects the params of the cluster or of a role.
type Scope struct {
	Role string // "" is the cluster itself
}

// String names the holder for an error; "" for the cluster.
func (s Scope) String() string {
	if s.Role == "" {
		return ""
	}
	return fmt.Sprintf("role %q", s.Role)
}

// In returns the params of scope, without any other layer.
func (d Document) In(s Scope) Params {
	if s.Role == "" {
		return d.Params
	}
	return d.Roles[s.Role]
}

// in returns d with the params of scope replaced; a role without params is removed.
func (d Document) in(s Scope, p Params) Document {
	d = d.clone()
	switch {
	case s.Role == "":
		d.Params = p
	case len(p) == 0:
		delete(d.Roles, s.Role)
	default:
		d.Roles[s.Role] = p
	}
	return d
}

// Set sets param key if ref holds.
func (e *Editor) Set(d Document, s Scope, key string, v Value, ref Ref) (Document, error) {
	p, err := d.In(s).Set(key, d.Conform(key, v), d.conform(key, ref))
	if err != nil {
		return Document{}, err
	}
	return e.finish(d, d.in(s, p))
}

// Remove removes param key if ref holds; it is not an error if the param does not exist.
func (e *Editor) Remove(d Document, s Scope, key string, ref Ref) (Document, error) {
	p, err := d.In(s).Remove(key, d.conform(key, ref))
	if err != nil {
		return Document{}, err
	}
	if s.Role == "" && key == SelfKey {
		return Document{}, invalid("param %q is the profile's own name and stays", SelfKey)
	}
	return e.finish(d, d.in(s, p))
}

// SetParams replaces all params of scope by p. The profile's own name
// stays when p leaves it out.
func (e *Editor) SetParams(d Document, s Scope, p Params) (Document, error) {
	for _, key := range p.Keys() {
		if _, old := d.In(s)[key]; old {
			continue
		}
		if err := checkKey(key); err != nil {
			return Document{}, err
		}
	}
	p = p.clone()
	if _, ok := p[SelfKey]; !ok && s.Role == "" {
		p[SelfKey] = Value{tree: d.Name}
	}
	return e.finish(d, d.in(s, p))
}

// ReplaceParams carries what differs between before and after over to the
// params of scope, if all that still is as in before.
func (e *Editor) ReplaceParams(d Document, s Scope, before, after Params) (Document, error) {
	p, err := d.In(s).Replace(before, after)
	if err != nil {
		return Document{}, err
	}
	return e.finish(d, d.in(s, p))
}

// Patch applies a patch to the whole document as Encode writes it. The result
// must be a profile of the same name and format.
func (e *Editor) Patch(d Document, p Patch) (Document, error) {
	v, err := p.Apply(d.Value())
	if err != nil {
		return Document{}, err
	}
	return e.replace(d, v)
}

// Import replaces d by the document that a user wrote. It has to be a
// profile of the same name; the param that holds it may be left out.
func (e *Editor) Import(d Document, text []byte) (Document, error) {
	next, err := Decode(text)
	if err != nil {
		return Document{}, invalid("%v", err)
	}
	if _, ok := next.Params[SelfKey]; !ok {
		next.Params[SelfKey] = Value{tree: next.Name}
	}
	return e.finish(d, next)
}

// replace replaces d by a whole document.
func (e *Editor) replace(d Document, v Value) (Document, error) {
	next, err := documentOf(v.tree)
	if err != nil {
		return Document{}, invalid("the result is %v", err)
	}
	return e.finish(d, next)
}

// SetSchema makes text the schema of param key, if what the cluster and its
// roles have for it, and the schema's own default, pass it.
func (e *Editor) SetSchema(d Document, key string, text Value) (Document, error) {
	if err := checkKey(key); err != nil {
		return Document{}, err
	}
	next := d.clone()
	next.Schemas[key] = text
	return e.finish(d, next)
}

// ForceSchema is SetSchema whatever values the schema refuses, see NewRefusals; its own
// default has to pass it.
func (e *Editor) ForceSchema(d Document, key string, text Value) (Document, error) {
	if err := checkKey(key); err != nil {
		return Document{}, err
	}
	next := d.clone()
	next.Schemas[key] = text
	if _, err := e.schemas.get(key, text); err != nil {
		return Document{}, err
	}
	if v, ok := next.Default(key); ok {
		if err := placed(e.Check(next, key, v), "the schema's own default"); err != nil {
			return Document{}, err
		}
	}
	return e.finish(next, next) // no value is another
}

// NewRefusals returns which values the schemas of next refuse that old lacks or has with
// another text: those of the cluster, of roles, and members' own params, by node.
func (e *Editor) NewRefusals(old, next Document, own map[string]Params) (all SchemaErrors) {
	for _, key := range changed(old.Schemas, next.Schemas) {
		look := func(p Params, place string) {
			var refused *SchemaError
			if v, ok := p[key]; ok && errors.As(placed(e.Check(next, key, next.Conform(key, v)), place), &refused) {
				all = append(all, refused)
			}
		}
		look(next.Params, "")
		for _, role := range slices.Sorted(maps.Keys(next.Roles)) {
			look(next.Roles[role], Scope{role}.String())
		}
		for _, node := range slices.Sorted(maps.Keys(own)) {
			look(own[node], fmt.Sprintf("member %q", node))
		}
	}
	return all
}

// NewSchemas reports whether next has a schema that old lacks or has with another text.
func NewSchemas(old, next Document) bool { return len(changed(old.Schemas, next.Schemas)) > 0 }

// RemoveSchema removes the schema of param key, if it has one.
func (e *Editor) RemoveSchema(d Document, key string) (Document, error) {
	next := d.clone()
	delete(next.Schemas, key)
	return e.finish(d, next)
}

// SetMeta sets key of the profile's meta.
func (e *Editor) SetMeta(d Document, key string, v Value) (Document, error) {
	if err := CheckMeta(key, v); err != nil {
		return Document{}, err
	}
	next := d.clone()
	next.Meta[key] = v
	return e.finish(d, next)
}

// RemoveMeta removes key from the profile's meta, if it exists.
func (e *Editor) RemoveMeta(d Document, key string) (Document, error) {
	next := d.clone()
	delete(next.Meta, key)
	return e.finish(d, next)
}
