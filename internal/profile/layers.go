package profile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Layer is where a member's effective params come from. A higher layer overrides
// a lower one.
type Layer int

// The layers, lowest first.
const (
	FromDefault Layer = iota // the default of the param's schema
	FromCluster
	FromRole
	FromMember
)

func (l Layer) String() string { return [...]string{"default", "cluster", "role", "member"}[l] }

// Source is where a value comes from.
type Source struct {
	Layer Layer
	Role  string // for FromRole
}

// String returns default, cluster, role/<role> or member.
func (s Source) String() string {
	if s.Layer == FromRole {
		return s.Layer.String() + "/" + s.Role
	}
	return s.Layer.String()
}

// MarshalText returns what String does.
func (s Source) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Resolved is one effective param.
type Resolved struct {
	Value Value `json:"value"`
	// Sources are the layers that the value was combined from, lowest
	// first. Without composing there is one.
	Sources []Source `json:"sources"`
}

// Effective are the effective params of one member.
type Effective map[string]Resolved

// Effective returns what a member with these roles and params of its own has:
// schema defaults < cluster < roles < member. Of two roles the later one
// wins. A higher layer's value replaces a lower one's, also when it is null.
func (d Document) Effective(roles []string, member Params) Effective {
	return d.layer(roles, member, func(_, upper any) (any, bool) { return upper, false })
}

// EffectiveParam returns one param of what Effective returns, and where it comes
// from.
func (d Document) EffectiveParam(key string, roles []string, member Params) (v Value, from Source, ok bool) {
	if v, ok := member[key]; ok {
		return v, Source{Layer: FromMember}, true
	}
	for _, role := range slices.Backward(roles) {
		if v, ok := d.Roles[role][key]; ok {
			return v, Source{Layer: FromRole, Role: role}, true
		}
	}
	if v, ok := d.Params[key]; ok {
		return v, Source{Layer: FromCluster}, true
	}
	v, ok = d.Default(key)
	return v, Source{Layer: FromDefault}, ok
}

// Compose is Effective with objects merged: a member of an object that only a
// lower layer has stays, at every depth. Everything else, arrays and null
// included, is replaced.
func (d Document) Compose(roles []string, member Params) Effective {
	return d.layer(roles, member, mergeTrees)
}

// layer combines the layers; merge returns the result for one param and whether
// something of lower is left in it.
func (d Document) layer(roles []string, member Params, merge func(lower, upper any) (tree any, kept bool)) Effective {
	e := Effective{}
	put := func(p Params, from Source) {
		for key, v := range p {
			var sources []Source
			if below, ok := e[key]; ok {
				tree, kept := merge(below.Value.tree, v.tree)
				if v = (Value{tree: tree}); kept {
					sources = below.Sources
				}
			}
			e[key] = Resolved{Value: v, Sources: append(slices.Clip(sources), from)}
		}
	}
	put(d.Defaults(), Source{Layer: FromDefault})
	put(d.Params, Source{Layer: FromCluster})
	for _, role := range roles {
		put(d.Roles[role], Source{Layer: FromRole, Role: role})
	}
	put(member, Source{Layer: FromMember})
	return e
}

// mergeTrees returns upper with what only lower has.
func mergeTrees(lower, upper any) (any, bool) {
	low, ok := lower.(map[string]any)
	if !ok {
		return upper, false
	}
	up, ok := upper.(map[string]any)
	if !ok {
		return upper, false
	}
	merged, kept := maps.Clone(up), false
	for name, v := range low {
		over, both := up[name]
		if !both {
			merged[name], kept = v, true
			continue
		}
		tree, some := mergeTrees(v, over)
		merged[name], kept = tree, kept || some
	}
	return merged, kept
}

// Params returns the values without where they come from.
func (e Effective) Params() Params {
	p := make(Params, len(e))
	for key, r := range e {
		p[key] = r.Value
	}
	return p
}

// Default returns the default that the schema of param key has for all of it.
func (d Document) Default(key string) (Value, bool) {
	schema, ok := d.Schemas[key].tree.(map[string]any)
	if !ok {
		return Value{}, false
	}
	tree, ok := schema["default"]
	return Value{tree: tree}, ok
}

// Defaults returns the defaults of all schemas.
func (d Document) Defaults() Params {
	p := Params{}
	for key := range d.Schemas {
		if v, ok := d.Default(key); ok {
			p[key] = v
		}
	}
	return p
}

// Conflict is a place that both sides changed since base, in different ways.
// A nil Value means that there is nothing.
type Conflict struct {
	Pointer            Pointer
	Base, Mine, Theirs *Value
}

// String returns the conflict for people, on four lines.
func (c Conflict) String() string {
	side := func(v *Value) string {
		if v == nil {
			return "(nothing)"
		}
		return v.short()
	}
	return fmt.Sprintf("%s\n  it was  %s\n  yours   %s\n  theirs  %s", c.Pointer.visible(), side(c.Base), side(c.Mine), side(c.Theirs))
}

// ConflictsError are the places that both sides changed; it is an ErrConflicts.
type ConflictsError struct{ Conflicts []Conflict }

func (e *ConflictsError) Error() string {
	places := make([]string, len(e.Conflicts))
	for i, c := range e.Conflicts {
		places[i] = c.Pointer.visible()
	}
	return fmt.Sprintf("%v: %s; nothing was written", ErrConflicts, shorten(strings.Join(places, ", ")))
}

// Unwrap makes errors.Is find ErrConflicts.
func (e *ConflictsError) Unwrap() error { return ErrConflicts }

// Report returns all conflicts for people.
func (e *ConflictsError) Report() string {
	var b strings.Builder
	for _, c := range e.Conflicts {
		b.WriteString(c.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// Merge returns theirs with what changed between base and mine. Differences
// are found down to members of objects; an array counts as a whole. It
// returns a *ConflictsError when both sides changed the same thing in different
// ways, else what every change returns.
func (e *Editor) Merge(base, mine, theirs Document) (Document, error) {
	m := merger{}
	merged, _ := m.merge(Pointer{}, present(base.tree()), present(mine.tree()), present(theirs.tree()))
	if len(m.conflicts) > 0 {
		return Document{}, &ConflictsError{Conflicts: m.conflicts}
	}
	return e.replace(theirs, Value{tree: merged})
}

// optional is a tree that may not exist.
type optional struct {
	tree any
	ok   bool
}

func present(tree any) optional { return optional{tree, true} }

func (m optional) equal(o optional) bool { return m.ok == o.ok && equalTrees(m.tree, o.tree) }

func (m optional) value() *Value {
	if !m.ok {
		return nil
	}
	return &Value{tree: m.tree}
}

// members returns the members of an object; of what is not there, none.
func (m optional) members() (map[string]any, bool) {
	object, ok := m.tree.(map[string]any)
	return object, ok || !m.ok
}

type merger struct{ conflicts []Conflict }

// merge returns what the place at p is to hold, and whether it holds anything.
func (m *merger) merge(p Pointer, base, mine, theirs optional) (tree any, ok bool) {
	switch {
	case mine.equal(base):
		return theirs.tree, theirs.ok
	case theirs.equal(base), mine.equal(theirs):
		return mine.tree, mine.ok
	}
	b, isObject := base.members()
	my, mineToo := mine.members()
	their, theirsToo := theirs.members()
	if !isObject || !mineToo || !theirsToo || !mine.ok || !theirs.ok {
		m.conflicts = append(m.conflicts, Conflict{p, base.value(), mine.value(), theirs.value()})
		return theirs.tree, theirs.ok
	}
	names := map[string]bool{}
	for _, object := range []map[string]any{b, my, their} {
		for name := range object {
			names[name] = true
		}
	}
	merged := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		at := func(object map[string]any) optional {
			v, ok := object[name]
			return optional{v, ok}
		}
		if v, ok := m.merge(append(slices.Clip(p), name), at(b), at(my), at(their)); ok {
			merged[name] = v
		}
	}
	return merged, true
}
