package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// Block is one type of block of the configuration, or the top of the files.
type Block struct {
	Name     string    // "template"; empty: the top
	Label    string    // the meaning of the label; empty: the block has none
	Labels   []string  // the possible ones; none: any
	In       []string  // the blocks that it may stand in; "" is the top
	Once     bool      // it may stand there once
	Doc      string    // what it is for
	Settings []Setting // in alphabetical order
}

// Setting is one argument of a block.
type Setting struct {
	Name    string
	Type    string // "string", "true or false", "duration", …
	Default string // as it would be written, or in words
	Since   string // the version that has it first
	Doc     string
	Example string // a value as it is written in HCL
}

// Path is the name by which the reference and 'jorc config explain' know a
// setting: "template.wait", or "node" for one at the top.
func (b Block) Path(s Setting) string {
	if b.Name == "" {
		return s.Name
	}
	return b.Name + "." + s.Name
}

// Reference returns all blocks and settings that Load accepts, the top first, then
// in the order in which the files' blocks lead to them.
func Reference() []Block {
	d, l := newDecoder(), &listing{}
	d.listing = l
	l.begin("", blockType{once: true}, "")
	d.root(hcl.EmptyBody(), &Config{})
	return l.blocks
}

// listing collects the blocks that the decoder would accept. The decoder's own
// functions walk them, so that it cannot differ from what Load accepts.
type listing struct {
	blocks []Block
	open   []string // the names of the blocks around, the innermost last
}

// begin adds a block that stands in the block named outer.
func (l *listing) begin(name string, t blockType, outer string) {
	at := slices.IndexFunc(l.blocks, func(b Block) bool { return b.Name == name })
	if at < 0 {
		at = len(l.blocks)
		l.blocks = append(l.blocks, Block{Name: name, Label: t.label, Labels: t.words, Once: t.once, Doc: blockDocs()[name]})
	}
	if name != "" {
		l.blocks[at].In = append(l.blocks[at].In, outer)
	}
	l.open = append(l.open, name)
}

// add adds the settings of the innermost block, then its nested blocks.
func (l *listing) add(schema *hcl.BodySchema, types map[string]reflect.StructField, special custom, blocks nested) {
	name := l.open[len(l.open)-1]
	at := slices.IndexFunc(l.blocks, func(b Block) bool { return b.Name == name })
	known := l.blocks[at].Settings
	for _, a := range schema.Attributes {
		if slices.ContainsFunc(known, func(s Setting) bool { return s.Name == a.Name }) {
			continue
		}
		s := Setting{Name: a.Name, Since: firstVersion}
		entry := settingDocs()[l.blocks[at].Path(s)]
		s.Type, s.Default, s.Doc, s.Example = entry.kind, entry.standard, entry.doc, entry.example
		if special[a.Name] == nil {
			s.Type = typeName(types[a.Name].Type)
		}
		known = append(known, s)
	}
	slices.SortFunc(known, func(a, b Setting) int { return strings.Compare(a.Name, b.Name) })
	l.blocks[at].Settings = known
	for _, typ := range slices.Sorted(maps.Keys(blocks)) {
		t := blocks[typ]
		words := t.words
		if len(words) == 0 {
			words = []string{"x"}
		}
		for i, word := range words {
			b := &hcl.Block{Type: typ, Body: hcl.EmptyBody()}
			if t.label != "" {
				b.Labels, b.LabelRanges = []string{word}, []hcl.Range{{}}
			}
			outer := name
			if i == 0 {
				l.begin(typ, t, outer)
			} else {
				l.open = append(l.open, typ)
			}
			t.read(b)
			l.open = l.open[:len(l.open)-1]
		}
	}
}

// typeName says in words what values a Go type takes.
func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "number"
	case reflect.Slice:
		return "list of " + typeName(t.Elem()) + "s"
	case reflect.Map:
		return "object of " + typeName(t.Elem()) + "s"
	default:
		return "string"
	}
}
