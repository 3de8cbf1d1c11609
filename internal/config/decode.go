package config

import (
	"fmt"
	"maps"
	"math"
	"math/big"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/gocty"
)

// decoder turns parsed files into structs and collects their problems. It keeps
// the positions that later checks report.
type decoder struct {
	files map[string]*hcl.File
	order map[string]int // the files in the order they were read
	diags hcl.Diagnostics
	errs  []error // of files that could not be read

	consulFile bool // a service file of Consul, where script may be a shell command

	listing *listing // set: decode lists what a block accepts

	settings     map[string]source // the origin of a setting such as "consul.address"
	names        map[string]hcl.Range
	workflowRefs []place
	templateRefs []place
	stages       []place // owner: the template
	destinations []place
	inputs       []place // files that jorc reads or writes for itself
	staticPaths  []place
}

// place is a value and its position.
type place struct {
	value string
	rng   hcl.Range
	owner string // `template "x"`

	report reporter // of a workflow: how its absence is reported
}

// reporter records a problem at a place.
type reporter func(rng hcl.Range, summary, format string, args ...any)

func newDecoder() *decoder {
	return &decoder{
		files: map[string]*hcl.File{}, order: map[string]int{}, settings: map[string]source{},
		names: map[string]hcl.Range{},
	}
}

// custom are the arguments of a block that have a decoder of their own.
type custom map[string]func(*hcl.Attribute)

// nested are the blocks that a block may contain.
type nested map[string]blockType

type blockType struct {
	label string   // meaning of the label; empty: the block has none
	words []string // the labels that are possible; none: any label
	once  bool
	read  func(*hcl.Block)
}

// arguments are the arguments of one block that are set.
type arguments struct {
	d      *decoder
	def    hcl.Range // the position of problems with the block as a whole
	attrs  map[string]*hcl.Attribute
	wrong  map[string]bool // those whose type is wrong, which is reported
	broken bool            // the block contains something unknown, perhaps a misspelt argument
}

// decode reads the body of one block strictly: into the fields of into whose tags
// name arguments, by custom and by blocks. Any other argument or block is an error.
func (d *decoder) decode(body hcl.Body, def hcl.Range, into any, special custom, blocks nested) *arguments {
	types := fieldTypes(into)
	schema := &hcl.BodySchema{}
	for name := range types {
		schema.Attributes = append(schema.Attributes, hcl.AttributeSchema{Name: name})
	}
	for name := range special {
		schema.Attributes = append(schema.Attributes, hcl.AttributeSchema{Name: name})
	}
	slices.SortFunc(schema.Attributes, func(a, b hcl.AttributeSchema) int { return strings.Compare(a.Name, b.Name) })
	for _, typ := range slices.Sorted(maps.Keys(blocks)) {
		h := hcl.BlockHeaderSchema{Type: typ}
		if blocks[typ].label != "" {
			h.LabelNames = []string{blocks[typ].label}
		}
		schema.Blocks = append(schema.Blocks, h)
	}
	if d.listing != nil {
		d.listing.add(schema, types, special, blocks)
		return &arguments{d: d, def: def, attrs: map[string]*hcl.Attribute{}, wrong: map[string]bool{}}
	}
	content, diags := body.Content(schema)
	explainForeign(diags, into)
	d.diags = append(d.diags, diags...)

	args := &arguments{d: d, def: def, attrs: map[string]*hcl.Attribute{}, wrong: map[string]bool{}, broken: diags.HasErrors()}
	fields := reflect.ValueOf(into).Elem()
	for name, a := range content.Attributes {
		if kindOf(a.Expr) == kindNull {
			continue
		}
		args.attrs[name] = a
		if read := special[name]; read != nil {
			read(a)
		} else if !d.hasType(a.Expr, name, types[name].Type) {
			args.wrong[name] = true
		} else {
			d.set(fields.FieldByIndex(types[name].Index), a.Expr)
		}
	}
	d.blocks(content.Blocks, blocks)
	return args
}

func (d *decoder) blocks(found hcl.Blocks, types nested) {
	first := map[string]*hcl.Block{}
	for _, b := range found {
		if before := first[b.Type]; before != nil && types[b.Type].once {
			d.errorf(b.TypeRange, "Duplicate block", "Only one %s block is possible; the first is at %s.", b.Type, position(before.TypeRange))
			continue
		}
		first[b.Type] = b
		types[b.Type].read(b)
	}
}

// set assigns the value of an expression to a field.
func (d *decoder) set(field reflect.Value, expr hcl.Expression) {
	value, diags := expr.Value(nil)
	d.diags = append(d.diags, diags...)
	if diags.HasErrors() {
		return
	}
	t, err := gocty.ImpliedType(field.Addr().Interface())
	if err == nil {
		value, err = convert.Convert(value, t)
	}
	if err == nil {
		err = gocty.FromCtyValue(value, field.Addr().Interface())
	}
	if err != nil {
		d.errorf(expr.Range(), "Unsuitable value type", "Unsuitable value: %v", err)
	}
}

// fieldTypes are the fields of a struct by the arguments that their tags name; all are
// optional.
func fieldTypes(into any) map[string]reflect.StructField {
	types := map[string]reflect.StructField{}
	for _, f := range reflect.VisibleFields(reflect.TypeOf(into).Elem()) {
		if name, _, _ := strings.Cut(f.Tag.Get("hcl"), ","); name != "" {
			types[name] = f
		}
	}
	return types
}

// hasType reports whether a value can be decoded into t, and the reason if not. HCL
// itself would convert: the number 1.10 to the string "1.1".
func (d *decoder) hasType(expr hcl.Expression, name string, t reflect.Type) bool {
	before := len(d.diags)
	switch t.Kind() {
	case reflect.Bool:
		d.expect(expr, name, kindBool)
	case reflect.Int:
		d.whole(expr, name)
	case reflect.Slice:
		items, _ := d.elements(expr, name)
		for i, item := range items {
			d.hasType(item, nth(name, i), t.Elem())
		}
	case reflect.Map:
		d.members(expr, name, func(key string, v hcl.Expression) { d.hasType(v, key, t.Elem()) })
	default:
		d.expect(expr, name, kindString)
	}
	return len(d.diags) == before
}

func (a *arguments) has(name string) bool { return a.attrs[name] != nil }

// ok reports whether an argument is set and well typed.
func (a *arguments) ok(name string) bool { return a.has(name) && !a.wrong[name] }

// at is the position of an argument's value, or of the block.
func (a *arguments) at(name string) hcl.Range {
	if attr := a.attrs[name]; attr != nil {
		return attr.Expr.Range()
	}
	return a.def
}

// valid reports err as a problem of an argument that is set.
func (a *arguments) valid(name string, err error) bool {
	if err == nil || !a.ok(name) {
		return true
	}
	a.d.errorf(a.at(name), "Invalid value", "%q: %v.", name, err)
	return false
}

// notEmpty checks that arguments that are set are not "".
func (a *arguments) notEmpty(names ...string) {
	for _, name := range names {
		if a.ok(name) && a.text(name) == "" {
			a.d.errorf(a.at(name), "Empty value", "%q must not be empty.", name)
		}
	}
}

// text is the value of an argument that is a string.
func (a *arguments) text(name string) string {
	if attr := a.attrs[name]; attr != nil {
		if v, ok := constant(attr.Expr); ok && v.Type() == cty.String && !v.IsNull() {
			return v.AsString()
		}
	}
	return ""
}

// oneOf checks that an argument is one of a few words.
func (a *arguments) oneOf(name string, words ...string) {
	if got := a.text(name); a.ok(name) && !slices.Contains(words, got) {
		a.d.errorf(a.at(name), "Invalid value", "%q must be %s, not %q.%s", name, list(words, "or"), got, didYouMean(got, words))
	}
}

// between checks the limits of numbers: of an argument, or of the elements of
// a list or an object.
func (a *arguments) between(least, most int64, names ...string) {
	for _, name := range names {
		if !a.has(name) {
			continue
		}
		expr := a.attrs[name].Expr
		switch kindOf(expr) {
		case kindList:
			items, _ := a.d.elements(expr, name)
			for i, item := range items {
				a.d.limits(item, nth(name, i), least, most)
			}
		case kindObject:
			a.d.members(expr, name, func(key string, v hcl.Expression) { a.d.limits(v, key, least, most) })
		default:
			a.d.limits(expr, name, least, most)
		}
	}
}

// names checks a list of names: each is valid and occurs once.
func (a *arguments) names(name string, values []string, valid func(string) error) {
	if !a.ok(name) {
		return
	}
	for i, value := range values {
		if err := valid(value); err != nil {
			a.valid(name, err)
		} else if slices.Contains(values[:i], value) {
			a.d.errorf(a.at(name), "Invalid value", "%q has %q twice.", name, value)
		}
	}
}

// absolute reports whether a path is absolute here or on a host, whose configuration may be
// checked on Windows.
func absolute(p string) bool { return filepath.IsAbs(p) || path.IsAbs(p) }

// path resolves a path of a file that jorc itself uses. A relative path is
// relative to the directory of the configuration file that contains it.
func (a *arguments) path(name string, p *string) {
	if !a.ok(name) {
		return
	}
	rng := a.at(name)
	if !a.d.validPath(rng, name, *p) {
		*p = ""
		return
	}
	if absolute(*p) {
		return
	}
	dir, err := filepath.Abs(filepath.Dir(rng.Filename))
	if err != nil {
		a.d.errorf(rng, "Invalid path", "%q: %v.", name, err)
		return
	}
	*p = dir + "/" + *p // not joined: ".." may follow a symlink
}

// ownPath is path for a file that no template may write.
func (a *arguments) ownPath(name string, p *string, what string) {
	a.path(name, p)
	if a.ok(name) && *p != "" {
		a.d.inputs = append(a.d.inputs, place{value: *p, rng: a.at(name), owner: what})
	}
}

// required reports arguments that are missing.
func (a *arguments) required(what string, names ...string) {
	for _, name := range names {
		if !a.has(name) && !a.broken {
			a.d.errorf(a.def, "Missing argument", "%s needs the argument %q.", what, name)
		}
	}
}

// notBoth reports an argument that is set beside the one that it is another name of.
func (a *arguments) notBoth(name, other string) {
	if a.has(name) && a.has(other) {
		a.d.errorf(a.at(other), "Conflicting arguments", "%q and %q are the same setting: set %q only.", name, other, name)
	}
}

// exactlyOne checks that one of several alternatives is set.
func (a *arguments) exactlyOne(what string, names ...string) {
	var found []string
	for _, name := range names {
		if a.has(name) {
			found = append(found, name)
		}
	}
	switch {
	case len(found) == 0 && !a.broken:
		a.d.errorf(a.def, "Missing argument", "%s needs one of %s.", what, list(names, "or"))
	case len(found) > 1:
		a.d.errorf(a.at(found[1]), "Conflicting arguments", "%s has %s: only one of them is possible.", what, list(found, "and"))
	}
}

// validPath reports paths that no file can have.
func (d *decoder) validPath(rng hcl.Range, name, s string) bool {
	switch {
	case s == "":
		d.errorf(rng, "Invalid path", "%q must not be empty.", name)
	case len(s) > maxPath:
		d.errorf(rng, "Invalid path", "%q has %d bytes, at most %d are possible.", name, len(s), maxPath)
	case strings.ContainsRune(s, 0):
		d.errorf(rng, "Invalid path", "%q contains a zero byte.", name)
	default:
		return true
	}
	return false
}

// claim checks a name and that it is used once within its kind and scope.
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

// limits checks the limits of a number; other types have been reported.
func (d *decoder) limits(expr hcl.Expression, name string, least, most int64) {
	v, ok := constant(expr)
	if !ok || v.IsNull() || v.Type() != cty.Number {
		return
	}
	switch n := v.AsBigFloat(); {
	case n.Cmp(big.NewFloat(0)) < 0 && least >= 0:
		d.errorf(expr.Range(), "Invalid number", "%q must not be negative.", name)
	case n.Cmp(new(big.Float).SetInt64(least)) < 0:
		d.errorf(expr.Range(), "Invalid number", "%q must be at least %d.", name, least)
	case n.Cmp(new(big.Float).SetInt64(most)) > 0:
		d.errorf(expr.Range(), "Invalid number", "%q must be at most %d.", name, most)
	}
}

// whole checks for a whole number that an int holds.
func (d *decoder) whole(expr hcl.Expression, name string) (int, bool) {
	v, ok := d.expect(expr, name, kindNumber)
	if !ok {
		return 0, false
	}
	n, exact := v.AsBigFloat().Int64()
	switch {
	case !v.AsBigFloat().IsInt():
		d.errorf(expr.Range(), "Invalid number", "%q must be a whole number.", name)
		return 0, false
	case exact != big.Exact || n > math.MaxInt || n < math.MinInt:
		d.errorf(expr.Range(), "Invalid number", "%q is too large.", name)
		return 0, false
	}
	return int(n), true
}

func (d *decoder) errorf(rng hcl.Range, summary, format string, args ...any) {
	d.report(hcl.DiagError, rng, summary, fmt.Sprintf(format, args...))
}

func (d *decoder) warnf(rng hcl.Range, summary, format string, args ...any) {
	d.report(hcl.DiagWarning, rng, summary, fmt.Sprintf(format, args...))
}

// fault marks a warning about what the agent starts with and can never work.
type fault struct{}

func (d *decoder) faultf(rng hcl.Range, summary, format string, args ...any) {
	d.warnf(rng, summary, format, args...)
	d.diags[len(d.diags)-1].Extra = fault{}
}

// report records a problem; a range without a file name has no position.
func (d *decoder) report(severity hcl.DiagnosticSeverity, rng hcl.Range, summary, detail string) {
	diag := &hcl.Diagnostic{Severity: severity, Summary: summary, Detail: detail}
	if rng.Filename != "" {
		diag.Subject = &rng
	}
	d.diags = append(d.diags, diag)
}

func (d *decoder) failed() bool { return len(d.errs) > 0 || d.diags.HasErrors() }

// position is "file:line".
func position(r hcl.Range) string { return fmt.Sprintf("%s:%d", r.Filename, r.Start.Line) }

// first returns the first of several arguments that is set, or "".
func (a *arguments) first(names []string) string {
	for _, name := range names {
		if a.has(name) {
			return name
		}
	}
	return ""
}
