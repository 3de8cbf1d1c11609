// Package profile is the shared document of a cluster as a value: params with
// their layers, references, patches and schemas. It does no I/O: package
// cluster reads and writes what is decided here.
//
// Nothing in it is changed in place: functions return the next document, so
// that a compare-and-swap that lost can ask again.
package profile

import (
	"fmt"
	"maps"
	"strings"
	"unicode"
	"unicode/utf8"
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
	// maxName bounds a profile's name, which is part of KV's keys, in bytes.
	maxName = 128
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

// New returns the profile that a cluster begins with. It returns ErrInvalid for
// what cannot be the name of one.
func New(name string) (Document, error) {
	if err := CheckName(name); err != nil {
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

// CheckName returns ErrInvalid for what cannot be the name of a profile or a
// role: it is one segment of a key.
func CheckName(name string) error {
	switch {
	case name == "":
		return invalid("a name is empty")
	case name == "." || name == "..":
		return invalid("the name %q is a path: choose another", name)
	case len(name) > maxName:
		return invalid("the name %q is longer than %d bytes", shorten(name), maxName)
	case !utf8.ValidString(name):
		return invalid("the name %q is not UTF-8", name)
	case strings.ContainsFunc(name, func(r rune) bool { return r == '/' || unicode.IsSpace(r) || unicode.IsControl(r) }):
		return invalid("the name %q holds a slash, a blank or a control character", name)
	}
	return nil
}

// Validate returns ErrInvalid when the document is no profile that refers to
// itself, and ErrTooLarge when it is beyond a limit. Schemas are not consulted:
// the Editor does that for what changes.
func (d Document) Validate() error {
	if err := CheckName(d.Name); err != nil {
		return err
	}
	if self, ok := d.Params[SelfKey]; !ok || !self.Equal(Value{tree: d.Name}) {
		have := "is missing"
		if ok {
			have = "is " + self.short()
		}
		return invalid("param %q %s and must be %q, the profile's own name: set it", SelfKey, have, d.Name)
	}
	for role := range d.Roles {
		if err := CheckName(role); err != nil {
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

// Near tells whether the limit is close enough to say so.
func (s Size) Near() bool { return s.Percent() >= 80 }

func (s Size) String() string {
	return fmt.Sprintf("%d %% of Consul's %d KiB", s.Percent(), s.Limit>>10)
}

// Identical tells whether both are stored as the same bytes: there is nothing
// to write.
func (d Document) Identical(e Document) bool { return string(d.encode()) == string(e.encode()) }

// Equal tells whether both say the same, by Value.Equal.
func (d Document) Equal(e Document) bool { return equalTrees(d.tree(), e.tree()) }

// clone returns a document with maps of its own.
func (d Document) clone() Document {
	d.Params, d.Meta, d.Schemas, d.unknown = d.Params.clone(), d.Meta.clone(), d.Schemas.clone(), d.unknown.clone()
	roles := make(map[string]Params, len(d.Roles))
	maps.Copy(roles, d.Roles)
	d.Roles = roles
	return d
}
