package profile

import (
	"maps"
	"slices"
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
