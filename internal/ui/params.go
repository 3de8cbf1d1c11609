package ui

import (
	"maps"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/profile"
)

// unshown stands in place of a value that is not shown.
const unshown = "(hidden)"

// Profile is the document that all members share.
type Profile struct {
	About
	Exists bool `json:"exists"`
	// Shown reports whether values are in the answer; secret ones never are.
	Shown bool `json:"shown"`
	// Available reports whether values can be asked for here.
	Available bool `json:"available"`
	// Params are those of the cluster, then those of roles.
	Params []Param `json:"params"`
	Meta   []Param `json:"meta"`
	// Size is how many bytes the document has, of at most Limit.
	Size  int `json:"size"`
	Limit int `json:"limit"`
}

// Param is one param of the profile.
type Param struct {
	Key    string `json:"key"`
	Role   string `json:"role"`   // empty: of the whole cluster
	Schema bool   `json:"schema"` // its values are checked
	Secret bool   `json:"secret"` // its schema says "secret" or "writeOnly": its value is never shown
	Kind   string `json:"kind"`   // string, number, boolean, object, array, null; empty: it is not shown
	// Value is left out unless values were asked for.
	Value *profile.Value `json:"value,omitempty"`
}

// Text is the value for people.
func (p Param) Text() string {
	if p.Value == nil {
		return unshown
	}
	return p.Value.Raw()
}

// Profile returns the profile; values asks for the values of params. A sealed
// snapshot has neither names nor values.
func (s *Snapshot) Profile(values bool) Profile {
	d := s.State.Profile
	p := Profile{
		About: s.about("cluster", "profile", "show"), Exists: s.State.Exists, Shown: values && !s.sealed, Available: !s.sealed,
		Params: []Param{}, Meta: []Param{},
	}
	size := d.Size()
	p.Size, p.Limit = size.Bytes, size.Limit
	if s.sealed || !s.State.Exists {
		return p
	}
	p.Params = paramsOf(d, "", d.Params, values)
	for _, role := range slices.Sorted(maps.Keys(d.Roles)) {
		p.Params = append(p.Params, paramsOf(d, role, d.Roles[role], values)...)
	}
	p.Meta = paramsOf(d, "", d.Meta, values)
	return p
}

func paramsOf(d profile.Document, role string, params profile.Params, values bool) []Param {
	all := []Param{}
	for _, key := range params.Keys() {
		_, schema := d.Schemas[key]
		p := Param{Key: key, Role: role, Schema: schema, Secret: d.Secret(key)}
		if v := params[key]; values && !p.Secret {
			p.Kind, p.Value = v.Kind(), &v
		}
		all = append(all, p)
	}
	return all
}

// hides reports whether a column's values are not shown as they are: they are params
// of members, of which some are secret.
func (s *Snapshot) hides(c cluster.Column) bool {
	_, hides := s.secretBelow(c)
	return hides
}

// secretBelow returns the secret param that a column shows; empty: the column shows
// all params, of which some are secret.
func (s *Snapshot) secretBelow(c cluster.Column) (key string, hides bool) {
	field, key, below := strings.Cut(c.Key, ".")
	switch {
	case field != "params":
		return "", false
	case below:
		return key, s.State.Profile.Secret(key)
	}
	return "", slices.ContainsFunc(s.State.Profile.Schemas.Keys(), s.State.Profile.Secret)
}

// shown is the value of a column without what is secret.
func (s *Snapshot) shown(c cluster.Column, m *cluster.Member) any {
	switch key, hides := s.secretBelow(c); {
	case !hides:
		return c.JSON(m)
	case key != "":
		return unshown
	}
	shown := profile.Params{}
	for _, key := range m.Params.Keys() {
		if !s.State.Profile.Secret(key) {
			shown[key] = m.Params[key]
		}
	}
	return shown
}
