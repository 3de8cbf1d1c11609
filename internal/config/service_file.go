package config

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/json"
	"github.com/zclconf/go-cty/cty"
)

// Keys of Consul's service definitions that jorc does not support.
var unsupportedKeys = sync.OnceValue(func() map[string][]string {
	return map[string][]string{
		"a service": {
			"connect", "proxy", "token", "kind", "namespace", "partition", "socket_path", "locality", "ports",
			"agent_id", "replace_existing_checks", "datacenter",
		},
		"a check": {
			"alias_node", "docker_container_id", "shell", "os_service", "output_max_size", "disable_redirects",
			"tcp_use_tls", "h2ping_use_tls", "service_id", "service_name", "node", "proxy_http", "proxy_grpc",
		},
	}
})

// Other names of arguments and blocks in Consul's files.
var consulNames = sync.OnceValue(func() map[string]map[string]string {
	return map[string]map[string]string{
		"a service file": {"services": "service"},
		"a service":      {"checks": "check"},
		"a check":        {"args": "script", "scriptargs": "script", "checkid": "id"},
	}
})

// ParseServiceFile reads a service definition file of Consul: JSON, or HCL when
// its name ends in .hcl, with "service", "services", or one definition by
// itself; keys in snake_case or CamelCase. A check whose script is a string
// becomes Check.Shell. Errors are of type *Error.
func ParseServiceFile(path string) ([]Service, error) {
	d := newDecoder()
	d.consulFile = true
	src, err := readFile(path)
	if err != nil {
		d.errs = append(d.errs, err)
		return nil, d.err()
	}
	var services []Service
	if root := d.object(path, src); root != nil {
		services = d.serviceFile(root)
	}
	if d.failed() {
		return nil, d.err()
	}
	return services, nil
}

// object parses a file of either syntax into one object.
func (d *decoder) object(name string, src []byte) hcl.Expression {
	if filepath.Ext(name) == ".hcl" {
		if f := d.parse(name, src); f != nil {
			return bodyObject(f.Body.(*hclsyntax.Body))
		}
		return nil
	}
	d.files[name] = &hcl.File{Bytes: src}
	if rng, err := nestingJSON(name, src); err != nil {
		d.errorf(rng, "Invalid syntax", "%v.", err)
		return nil
	}
	expr, diags := json.ParseExpression(src, name)
	d.diags = append(d.diags, diags...)
	if diags.HasErrors() {
		return nil
	}
	return expr
}

func (d *decoder) serviceFile(root hcl.Expression) []Service {
	var services []Service
	read := func(b *hcl.Block) { services = append(services, d.service(b)) }
	file := d.objectBody(root, "a service file")
	schema := &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{{Type: "service", LabelNames: []string{"name"}}}}
	content, _, _ := file.PartialContent(schema)
	if file.get("name") != nil || file.get("id") != nil {
		if len(content.Blocks) == 0 { // one definition by itself
			file.what = "a service"
			d.blocks(file.block("service", root, schema.Blocks[0].LabelNames), nested{"service": {read: read}})
			return services
		}
	}
	d.decode(file, root.Range(), &struct{}{}, nil, nested{"service": {label: "name", read: read}})
	if !d.failed() && len(services) == 0 {
		d.errorf(root.Range(), "No service", `A service file holds "service": {…} or "services": […].`)
	}
	return services
}

// objectBody is an object of a service file as a body: its keys may be in
// CamelCase, its blocks are objects or lists of them, and the name of a service
// is the block's label.
type objectBody struct {
	d      *decoder
	what   string // "a service"
	rng    hcl.Range
	pairs  []pair
	label  string   // the key that is the block's label
	hidden []string // keys that another decoder reads
	diags  hcl.Diagnostics
}

type pair struct {
	name  string // in snake_case without underscores, as jorc's configuration calls it
	key   string // as written
	rng   hcl.Range
	value hcl.Expression
}

func (d *decoder) objectBody(expr hcl.Expression, what string) *objectBody {
	b := &objectBody{d: d, what: what, rng: expr.Range()}
	pairs, diags := hcl.ExprMap(expr)
	if diags.HasErrors() {
		b.errorf(expr.Range(), "Wrong type", "%s must be an object, not %s.", what, kindOf(expr))
		return b
	}
	seen := map[string]hcl.Range{}
	for _, p := range pairs {
		if kindOf(p.Key) != kindString {
			b.errorf(p.Key.Range(), "Not a constant", "A key in %s must be a string written out.", what)
			continue
		}
		v, _ := constant(p.Key)
		key := v.AsString()
		if key == "//" {
			continue
		}
		name := normal(key)
		if before, twice := seen[name]; twice {
			b.errorf(p.Key.Range(), "Duplicate key", "%q is already at %s.", key, position(before))
			continue
		}
		seen[name] = p.Key.Range()
		b.pairs = append(b.pairs, pair{name: cmp.Or(consulNames()[what][name], name), key: key, rng: p.Key.Range(), value: p.Value})
	}
	return b
}

func (b *objectBody) errorf(rng hcl.Range, summary, format string, args ...any) {
	b.diags = append(b.diags, &hcl.Diagnostic{Severity: hcl.DiagError, Subject: &rng, Summary: summary, Detail: fmt.Sprintf(format, args...)})
}

// get returns the first pair of a name.
func (b *objectBody) get(name string) *pair {
	if i := slices.IndexFunc(b.pairs, func(p pair) bool { return p.name == name }); i >= 0 {
		return &b.pairs[i]
	}
	return nil
}

// Content implements hcl.Body. Keys that are not in the schema are errors.
func (b *objectBody) Content(schema *hcl.BodySchema) (*hcl.BodyContent, hcl.Diagnostics) {
	content, _, diags := b.PartialContent(schema)
	diags = append(diags, b.diags...)
	var known []string
	names := map[string]bool{}
	if b.label != "" {
		names[b.label] = true
	}
	for _, a := range schema.Attributes {
		if !b.d.consulFile || a.Name != "on_stop" {
			known = append(known, a.Name)
			names[normal(a.Name)] = true
		}
	}
	for _, t := range schema.Blocks {
		known = append(known, t.Type)
		names[normal(t.Type)] = true
	}
	slices.Sort(known)
	for _, p := range b.pairs {
		if names[p.name] || slices.Contains(b.hidden, p.name) {
			continue
		}
		diag := &hcl.Diagnostic{Severity: hcl.DiagError, Subject: &p.rng, Summary: "Unknown key"}
		diag.Detail = strconv.Quote(p.key) + " is not known in " + b.what + "." + didYouMean(p.key, known)
		for _, name := range unsupportedKeys()[b.what] {
			if normal(name) == p.name {
				diag.Summary, diag.Detail = "Unsupported key", "Consul accepts "+strconv.Quote(p.key)+" in "+b.what+", jorc does not support it."
			}
		}
		diags = append(diags, diag)
	}
	return content, diags
}

// PartialContent implements hcl.Body.
func (b *objectBody) PartialContent(schema *hcl.BodySchema) (*hcl.BodyContent, hcl.Body, hcl.Diagnostics) {
	content := &hcl.BodyContent{Attributes: hcl.Attributes{}, MissingItemRange: b.MissingItemRange()}
	rest := *b
	var diags hcl.Diagnostics
	for _, a := range schema.Attributes {
		first := true
		for _, p := range b.pairs {
			if p.name != normal(a.Name) || slices.Contains(b.hidden, p.name) {
				continue
			}
			if !first {
				diags = append(diags, &hcl.Diagnostic{
					Severity: hcl.DiagError, Subject: &p.rng, Summary: "Conflicting arguments",
					Detail: strconv.Quote(p.key) + " and " + strconv.Quote(b.get(p.name).key) + " mean the same.",
				})
				continue
			}
			first = false
			content.Attributes[a.Name] = &hcl.Attribute{Name: p.key, Expr: p.value, Range: p.value.Range(), NameRange: p.rng}
		}
		rest.hidden = append(slices.Clip(rest.hidden), normal(a.Name))
	}
	for _, t := range schema.Blocks {
		for _, p := range b.pairs {
			if p.name != t.Type || slices.Contains(b.hidden, p.name) || kindOf(p.value) == kindNull {
				continue
			}
			items, listDiags := hcl.ExprList(p.value)
			if listDiags.HasErrors() {
				items = []hcl.Expression{p.value}
			}
			for _, item := range items {
				content.Blocks = append(content.Blocks, b.block(t.Type, item, t.LabelNames)...)
			}
		}
		rest.hidden = append(slices.Clip(rest.hidden), t.Type)
	}
	return content, &rest, diags
}

// block makes a block of an object. A label that is missing or wrong becomes "",
// without a range.
func (b *objectBody) block(typ string, expr hcl.Expression, labels []string) hcl.Blocks {
	what := "a " + typ
	if typ == "weights" {
		what = typ
	}
	body := b.d.objectBody(expr, what)
	block := &hcl.Block{Type: typ, Body: body, TypeRange: expr.StartRange(), DefRange: expr.StartRange()}
	for _, label := range labels {
		body.label = label
		value, rng := "", hcl.Range{}
		p := body.get(label)
		switch {
		case p != nil && kindOf(p.value) == kindString:
			v, _ := constant(p.value)
			value, rng = v.AsString(), p.value.Range()
		case p != nil:
			before := len(b.d.diags)
			b.d.mismatch(p.value, p.key, kindOf(p.value), string(kindString))
			body.diags = append(body.diags, b.d.diags[before:]...)
			b.d.diags = b.d.diags[:before]
		case len(body.diags) == 0:
			body.errorf(expr.StartRange(), "Missing argument", "A %s needs the argument %q.", typ, label)
		}
		block.Labels = append(block.Labels, value)
		block.LabelRanges = append(block.LabelRanges, rng)
	}
	return hcl.Blocks{block}
}

// JustAttributes implements hcl.Body; no decoder of this package uses it.
func (b *objectBody) JustAttributes() (hcl.Attributes, hcl.Diagnostics) {
	return hcl.Attributes{}, nil
}

// MissingItemRange implements hcl.Body.
func (b *objectBody) MissingItemRange() hcl.Range { return b.rng }

// normal makes CamelCase and snake_case equal.
func normal(key string) string { return strings.ToLower(strings.ReplaceAll(key, "_", "")) }

// bodyObject converts a body into the object that is the same configuration in
// JSON: blocks of one type become an object, or a list when there are several.
func bodyObject(b *hclsyntax.Body) *hclsyntax.ObjectConsExpr {
	obj := &hclsyntax.ObjectConsExpr{SrcRange: b.Range(), OpenRange: b.Range()}
	for name, a := range b.Attributes {
		obj.Items = append(obj.Items, hclsyntax.ObjectConsItem{KeyExpr: literal(name, a.NameRange), ValueExpr: a.Expr})
	}
	types := map[string][]*hclsyntax.Block{}
	for _, blk := range b.Blocks {
		types[blk.Type] = append(types[blk.Type], blk)
	}
	for _, typ := range slices.Sorted(maps.Keys(types)) {
		blocks := types[typ]
		value := hclsyntax.Expression(blockObject(blocks[0]))
		if len(blocks) > 1 {
			list := &hclsyntax.TupleConsExpr{SrcRange: blocks[0].DefRange(), OpenRange: blocks[0].OpenBraceRange}
			for _, blk := range blocks {
				list.Exprs = append(list.Exprs, blockObject(blk))
			}
			value = list
		}
		obj.Items = append(obj.Items, hclsyntax.ObjectConsItem{KeyExpr: literal(typ, blocks[0].TypeRange), ValueExpr: value})
	}
	slices.SortFunc(obj.Items, func(x, y hclsyntax.ObjectConsItem) int {
		return cmp.Compare(x.KeyExpr.Range().Start.Byte, y.KeyExpr.Range().Start.Byte)
	})
	return obj
}

// blockObject converts one block. The label of a service is its name, as in
// jorc's own configuration; other labels are keys.
func blockObject(b *hclsyntax.Block) *hclsyntax.ObjectConsExpr {
	obj := bodyObject(b.Body)
	if b.Type == "service" && len(b.Labels) == 1 {
		obj.Items = append(obj.Items, hclsyntax.ObjectConsItem{
			KeyExpr: literal("name", b.LabelRanges[0]), ValueExpr: literal(b.Labels[0], b.LabelRanges[0]),
		})
		return obj
	}
	for i := len(b.Labels) - 1; i >= 0; i-- {
		obj = &hclsyntax.ObjectConsExpr{
			SrcRange: b.Body.Range(), OpenRange: b.OpenBraceRange,
			Items: []hclsyntax.ObjectConsItem{{KeyExpr: literal(b.Labels[i], b.LabelRanges[i]), ValueExpr: obj}},
		}
	}
	return obj
}

func literal(s string, rng hcl.Range) *hclsyntax.LiteralValueExpr {
	return &hclsyntax.LiteralValueExpr{Val: cty.StringVal(s), SrcRange: rng}
}
