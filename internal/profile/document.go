// Package profile is the shared document of a cluster as a value: params with
// their layers, references, patches and schemas. It does no I/O: package
// cluster reads and writes what is decided here.
//
// Nothing in it is changed in place: functions return the next document, so
// that a compare-and-swap that lost can ask again.
package profile

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/jorc/jorc/internal/text"
)

const (
	// Format is the number of the document's format that this package writes,
	// and the highest that it reads.
	Format = 1
	// MaxSize is the size in bytes of the largest value that Consul's KV takes.
	MaxSize = 512 << 10
	// SelfKey is the param that holds the profile's own name, so that whatever
	// reads a copy of the params finds its way back.
	SelfKey = "cluster/profile"
)

// Document is a cluster's profile. Its maps belong to it: read them, and change
// a document through an Editor.
type Document struct {
	Name    string
	Params  Params
	Meta    Params
	Schemas Params            // param → JSON Schema of its values
	Roles   map[string]Params // role → params that its members have in place of the cluster's

	unknown Params // members that a newer jorc may know
}

// Secret reports whether the schema of a param declares its values secret, by
// "secret": true or JSON Schema's "writeOnly": true. Such values are never shown.
func (d Document) Secret(key string) bool {
	schema, _ := d.Schemas[key].tree.(map[string]any)
	secret, writeOnly := schema["secret"], schema["writeOnly"]
	return secret == true || writeOnly == true
}

// New returns the profile that a cluster begins with. It returns ErrInvalid for
// what cannot be the name of one.
func New(name string) (Document, error) {
	if err := checkName(name); err != nil {
		return Document{}, err
	}
	return Document{
		Name:    name,
		Params:  Params{SelfKey: Value{tree: name}},
		Meta:    Params{},
		Schemas: Params{},
		Roles:   map[string]Params{},
	}, nil
}

// checkName returns ErrInvalid for what cannot be the name of a profile or role.
func checkName(name string) error {
	if err := text.CheckName(name); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// Validate returns ErrInvalid when the document is not a profile that refers to
// itself, and ErrTooLarge when it is beyond a limit. Schemas are not consulted:
// the Editor does that for what changes.
func (d Document) Validate() error {
	if err := checkName(d.Name); err != nil {
		return err
	}
	if self, ok := d.Params[SelfKey]; !ok || !self.Equal(Value{tree: d.Name}) {
		return invalid("param %q must be %q, the profile's own name: set it", SelfKey, d.Name)
	}
	for role := range d.Roles {
		if err := checkName(role); err != nil {
			return fmt.Errorf("role: %w", err)
		}
	}
	tree := d.tree()
	if depth(tree, maxDepth+1) > maxDepth {
		return tooLarge("profile %q would nest deeper than %d levels: flatten it", d.Name, maxDepth)
	}
	return d.checkSize(len(appendJSON(nil, tree)))
}

// checkSize returns a *SizeError for a document of more bytes than Consul takes.
func (d Document) checkSize(bytes int) error {
	if bytes > MaxSize {
		return &SizeError{What: fmt.Sprintf("profile %q", d.Name), Bytes: bytes, Limit: MaxSize}
	}
	return nil
}

// Size is how much of what Consul takes a document needs.
type Size struct {
	Bytes int `json:"bytes"`
	Limit int `json:"limit"`
}

// Size returns the size of the document as it is stored.
func (d Document) Size() Size { return Size{Bytes: len(d.encode()), Limit: MaxSize} }

// Percent returns the share of the limit, rounded up.
func (s Size) Percent() int { return (100*s.Bytes + s.Limit - 1) / s.Limit }

// Warning returns a note for users about a document that comes near the limit; "": it does not.
func (s Size) Warning() string {
	if s.Percent() < 80 {
		return ""
	}
	return fmt.Sprintf("the profile takes %s: store large values in keys of their own", s)
}

func (s Size) String() string {
	return fmt.Sprintf("%d %% of Consul's %d KiB", s.Percent(), s.Limit>>10)
}

// Identical reports whether both are stored as the same bytes: there is nothing
// to write.
func (d Document) Identical(e Document) bool { return string(d.encode()) == string(e.encode()) }

// Equal reports whether both have equal values, by Value.Equal.
func (d Document) Equal(e Document) bool { return equalTrees(d.tree(), e.tree()) }

// clone returns a document with maps of its own.
func (d Document) clone() Document {
	d.Params, d.Meta, d.Schemas, d.unknown = d.Params.clone(), d.Meta.clone(), d.Schemas.clone(), d.unknown.clone()
	roles := make(map[string]Params, len(d.Roles))
	maps.Copy(roles, d.Roles)
	d.Roles = roles
	return d
}

// known are the members of a document, in the order in which they are written;
// the members that a newer jorc added follow, sorted by name.
var known = []string{"format", "name", "params", "meta", "schemas", "roles"}

// Encode returns the document as it is stored and exported: one line of JSON,
// format and name in front, everything else sorted by name, so that documents
// that are written the same have the same bytes. It returns ErrTooLarge when
// Consul would not take it.
func (d Document) Encode() ([]byte, error) {
	data := d.encode()
	if err := d.checkSize(len(data)); err != nil {
		return nil, err
	}
	return data, nil
}

// Indented returns the document as Encode does, for people and editors.
func (d Document) Indented() []byte { return indent(d.encode()) }

func (d Document) encode() []byte {
	return d.appendMembers(append([]byte(`{"format":`), strconv.Itoa(Format)...), known[1:])
}

// MarshalJSON returns the document without its format number, which package kv
// puts in front of every document of its own. It returns ErrTooLarge.
func (d Document) MarshalJSON() ([]byte, error) {
	data := d.appendMembers([]byte{'{'}, known[1:])
	if err := d.checkSize(len(data) + len(`"format":1,`)); err != nil {
		return nil, err
	}
	return data, nil
}

// appendMembers appends the members named first, then the unknown ones, and
// closes the object.
func (d Document) appendMembers(out []byte, first []string) []byte {
	tree := d.tree()
	for _, name := range append(slices.Clone(first), d.unknown.Keys()...) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(appendText(out, name), ':')
		out = appendJSON(out, tree[name])
	}
	return append(out, '}')
}

// tree returns the whole document, which shares the values' trees.
func (d Document) tree() map[string]any {
	tree := d.unknown.Value().tree.(map[string]any)
	roles := make(map[string]any, len(d.Roles))
	for role, params := range d.Roles {
		roles[role] = params.Value().tree
	}
	tree["format"] = json.Number(strconv.Itoa(Format))
	tree["name"] = d.Name
	tree["params"] = d.Params.Value().tree
	tree["meta"] = d.Meta.Value().tree
	tree["schemas"] = d.Schemas.Value().tree
	tree["roles"] = roles
	return tree
}

// Value returns the whole document as one JSON object.
func (d Document) Value() Value { return Value{tree: d.tree()} }

// Decode reads a document. It returns ErrNewer for a format beyond Format and
// ErrDamaged (with a *SyntaxError where a place can be named) for what is no
// profile. Sections that are missing or null are empty, members that it does
// not know are kept. Use Validate for what comes from outside.
func Decode(data []byte) (Document, error) {
	tree, err := parseTree(data, maxDepth)
	if err != nil {
		return Document{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return documentOf(tree)
}

// UnmarshalJSON reads a document as Decode does.
func (d *Document) UnmarshalJSON(data []byte) error {
	decoded, err := Decode(data)
	if err != nil {
		return err
	}
	*d = decoded
	return nil
}

func documentOf(tree any) (Document, error) {
	object, ok := tree.(map[string]any)
	if !ok {
		return Document{}, damaged("the document is %s and not an object", article((Value{tree: tree}).Kind()))
	}
	if err := checkFormat(object); err != nil {
		return Document{}, err
	}
	var d Document
	if d.Name, ok = object["name"].(string); !ok {
		return Document{}, damaged(`"name" is not a string`)
	}
	for _, s := range []struct {
		name string
		to   *Params
	}{{"params", &d.Params}, {"meta", &d.Meta}, {"schemas", &d.Schemas}} {
		var err error
		if *s.to, err = section(s.name, object[s.name]); err != nil {
			return Document{}, err
		}
	}
	roles, err := section("roles", object["roles"])
	if err != nil {
		return Document{}, err
	}
	d.Roles = make(map[string]Params, len(roles))
	for role, v := range roles {
		if d.Roles[role], err = section("roles/"+role, v.tree); err != nil {
			return Document{}, err
		}
	}
	d.unknown = Params{}
	for name, v := range object {
		if !slices.Contains(known, name) {
			d.unknown[name] = Value{tree: v}
		}
	}
	return d, nil
}

func section(name string, tree any) (Params, error) {
	switch t := tree.(type) {
	case nil:
		return Params{}, nil
	case map[string]any:
		return paramsOf(t), nil
	}
	return nil, damaged("%q is %s and not an object", shorten(name), article((Value{tree: tree}).Kind()))
}

// checkFormat reads the format number; a document without one was written by
// hand.
func checkFormat(object map[string]any) error {
	v, ok := object["format"]
	if !ok {
		return nil
	}
	number, ok := v.(json.Number)
	if !ok {
		return damaged(`"format" is not a number`)
	}
	format, err := strconv.ParseUint(string(number), 10, 31)
	if err != nil {
		return damaged(`"format" is %s, which is no format`, shorten(string(number)))
	}
	if format > Format {
		return fmt.Errorf("%w: %d; this jorc reads up to %d: upgrade jorc on this host", ErrNewer, format, Format)
	}
	return nil
}
