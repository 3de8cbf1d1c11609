package profile

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// known are the members of a document, in the order in which they are written;
// behind them come those that a newer jorc added, sorted by name.
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
