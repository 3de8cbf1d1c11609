package config

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2"
)

// decoder turns parsed files into structs and collects what is wrong with
// them. It remembers where things stand for the checks that come later.
type decoder struct {
	files map[string]*hcl.File
	order map[string]int // the files in the order they were read
	diags hcl.Diagnostics
	errs  []error // of files that could not be read

	settings     map[string]source // where the value of a setting like "consul.address" comes from
	names        map[string]hcl.Range
	workflowRefs []place
	destinations []place
	sources      map[string]string // template name → its source
	staticPaths  []place
}

// place is a value and where it stands.
type place struct {
	value string
	rng   hcl.Range
	owner string // `template "x"`
}

func newDecoder() *decoder {
	return &decoder{
		files: map[string]*hcl.File{}, order: map[string]int{}, settings: map[string]source{},
		names: map[string]hcl.Range{}, sources: map[string]string{},
	}
}

// field reads one attribute's value into its place.
type field func(d *decoder, a *hcl.Attribute)

// fields are the attributes a block may have.
type fields map[string]field

// present are a block's attributes that have a value, with the value's place.
type present map[string]hcl.Range

// muddled marks in present that something unknown stands in the block: it may
// be what is missing, so that is not reported as well.
const muddled = ""

// nested are the blocks a block may have.
type nested map[string]blockType

type blockType struct {
	label string // what the label says; empty: the block has none
	once  bool
	read  func(*hcl.Block)
}

// body reads one block strictly: what is not in f or n is an error.
func (d *decoder) body(b hcl.Body, f fields, n nested) present {
	schema := &hcl.BodySchema{}
	for _, name := range slices.Sorted(maps.Keys(f)) {
		schema.Attributes = append(schema.Attributes, hcl.AttributeSchema{Name: name})
	}
	for _, typ := range slices.Sorted(maps.Keys(n)) {
		h := hcl.BlockHeaderSchema{Type: typ}
		if n[typ].label != "" {
			h.LabelNames = []string{n[typ].label}
		}
		schema.Blocks = append(schema.Blocks, h)
	}
	content, diags := b.Content(schema)
	d.diags = append(d.diags, diags...)

	have := present{}
	if diags.HasErrors() {
		have[muddled] = b.MissingItemRange()
	}
	for name, a := range content.Attributes {
		if kindOf(a.Expr) == kindNull {
			continue
		}
		have[name] = a.Expr.Range()
		f[name](d, a)
	}
	first := map[string]*hcl.Block{}
	for _, blk := range content.Blocks {
		if before := first[blk.Type]; before != nil && n[blk.Type].once {
			d.errorf(blk.TypeRange, "Duplicate block", "There can be one %s block; the first is at %s.", blk.Type, position(before.TypeRange))
			continue
		}
		first[blk.Type] = blk
		n[blk.Type].read(blk)
	}
	return have
}

// claim makes sure that a name of one kind is used once in a scope and is well
// formed.
func (d *decoder) claim(kind, scope, name string, rng hcl.Range, valid func(string) error) {
	if err := valid(name); err != nil {
		d.errorf(rng, "Invalid "+kind, "%v.", err)
		return
	}
	key := kind + "\x00" + scope + "\x00" + name
	if before, taken := d.names[key]; taken {
		d.errorf(rng, "Duplicate "+kind, "%q is already at %s.", name, position(before))
		return
	}
	d.names[key] = rng
}

// exactlyOne makes sure that one of the alternatives is there.
func (d *decoder) exactlyOne(have present, def hcl.Range, what string, names ...string) {
	var found []string
	for _, name := range names {
		if _, ok := have[name]; ok {
			found = append(found, name)
		}
	}
	switch {
	case len(found) == 0:
		if _, unclear := have[muddled]; unclear {
			return
		}
		d.errorf(def, "Missing argument", "%s needs one of %s.", what, list(names, "or"))
	case len(found) > 1:
		d.errorf(have[found[1]], "Conflicting arguments", "%s has %s: only one of them is possible.", what, list(found, "and"))
	}
}

// required makes sure that an argument is there.
func (d *decoder) required(have present, def hcl.Range, what string, names ...string) {
	if _, unclear := have[muddled]; unclear {
		return
	}
	for _, name := range names {
		if _, ok := have[name]; !ok {
			d.errorf(def, "Missing argument", "%s needs the argument %q.", what, name)
		}
	}
}

func (d *decoder) errorf(rng hcl.Range, summary, format string, args ...any) {
	d.report(hcl.DiagError, rng, summary, fmt.Sprintf(format, args...))
}

func (d *decoder) warnf(rng hcl.Range, summary, format string, args ...any) {
	d.report(hcl.DiagWarning, rng, summary, fmt.Sprintf(format, args...))
}

// report notes a problem; without a file name rng is no place.
func (d *decoder) report(severity hcl.DiagnosticSeverity, rng hcl.Range, summary, detail string) {
	diag := &hcl.Diagnostic{Severity: severity, Summary: summary, Detail: detail}
	if rng.Filename != "" {
		diag.Subject = &rng
	}
	d.diags = append(d.diags, diag)
}

// position is "file:line".
func position(r hcl.Range) string { return fmt.Sprintf("%s:%d", r.Filename, r.Start.Line) }

// list joins names as a sentence does.
func list(names []string, word string) string {
	text := ""
	for i, name := range names {
		switch {
		case i == 0:
		case i == len(names)-1:
			text += " " + word + " "
		default:
			text += ", "
		}
		text += name
	}
	return text
}
