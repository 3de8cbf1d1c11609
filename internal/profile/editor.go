package profile

import (
	"errors"
	"fmt"
	"maps"
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

// Scope says whose params are meant.
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

// in returns d with the params of scope replaced; a role without params is none.
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
	return e.seal(d, d.in(s, p))
}

// Remove removes param key if ref holds; that it is gone already is no error.
func (e *Editor) Remove(d Document, s Scope, key string, ref Ref) (Document, error) {
	p, err := d.In(s).Remove(key, d.conform(key, ref))
	if err != nil {
		return Document{}, err
	}
	if s.Role == "" && key == SelfKey {
		return Document{}, invalid("param %q is the profile's own name and stays", SelfKey)
	}
	return e.seal(d, d.in(s, p))
}

// SetParams puts p in the place of all params of scope. The profile's own name
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
	return e.seal(d, d.in(s, p))
}

// ReplaceParams carries what differs between before and after over to the
// params of scope, if all that still is as in before.
func (e *Editor) ReplaceParams(d Document, s Scope, before, after Params) (Document, error) {
	p, err := d.In(s).Replace(before, after)
	if err != nil {
		return Document{}, err
	}
	return e.seal(d, d.in(s, p))
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

// Import puts next, as a user wrote it, in the place of d. It has to be a
// profile of the same name; the param that holds it may be left out.
func (e *Editor) Import(d Document, text []byte) (Document, error) {
	next, err := Decode(text)
	if err != nil {
		return Document{}, invalid("%v", err)
	}
	if _, ok := next.Params[SelfKey]; !ok {
		next.Params[SelfKey] = Value{tree: next.Name}
	}
	return e.seal(d, next)
}

// replace puts a whole document in the place of d.
func (e *Editor) replace(d Document, v Value) (Document, error) {
	next, err := documentOf(v.tree)
	if err != nil {
		return Document{}, invalid("the result is no profile: %v", err)
	}
	return e.seal(d, next)
}

// SetSchema makes text the schema of param key, if what the cluster and its
// roles have for it, and the schema's own default, pass it.
func (e *Editor) SetSchema(d Document, key string, text Value) (Document, error) {
	if err := checkKey(key); err != nil {
		return Document{}, err
	}
	next := d.clone()
	next.Schemas[key] = text
	return e.seal(d, next)
}

// RemoveSchema removes the schema of param key; that there is none is no error.
func (e *Editor) RemoveSchema(d Document, key string) (Document, error) {
	next := d.clone()
	delete(next.Schemas, key)
	return e.seal(d, next)
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
	_, err := e.seal(Document{Name: d.Name}, d)
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
