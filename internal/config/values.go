package config

import (
	"math/big"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// kind is what a value in a file is.
type kind string

const (
	kindNull    kind = "null"
	kindString  kind = "a string"
	kindNumber  kind = "a number"
	kindBool    kind = "true or false"
	kindList    kind = "a list"
	kindObject  kind = "an object"
	kindUnknown kind = "an expression" // not a constant
)

// kindOf tells what an expression is without evaluating more than a constant.
func kindOf(expr hcl.Expression) kind {
	if _, diags := hcl.ExprList(expr); !diags.HasErrors() {
		return kindList
	}
	if _, diags := hcl.ExprMap(expr); !diags.HasErrors() {
		return kindObject
	}
	v, ok := constant(expr)
	switch {
	case !ok:
		return kindUnknown
	case v.IsNull():
		return kindNull
	case v.Type() == cty.String:
		return kindString
	case v.Type() == cty.Number:
		return kindNumber
	case v.Type() == cty.Bool:
		return kindBool
	}
	return kindUnknown
}

// constant evaluates a string, number, bool or null. Everything else that
// HCL can compute is refused before it is evaluated, so that a small file
// cannot ask for endless work.
func constant(expr hcl.Expression) (cty.Value, bool) {
	switch e := expr.(type) {
	case *hclsyntax.LiteralValueExpr:
		return e.Val, true
	case *hclsyntax.TemplateExpr:
		for _, part := range e.Parts {
			if _, literal := part.(*hclsyntax.LiteralValueExpr); !literal {
				return cty.NilVal, false
			}
		}
	case *hclsyntax.UnaryOpExpr:
		if lit, ok := e.Val.(*hclsyntax.LiteralValueExpr); !ok || e.Op != hclsyntax.OpNegate || lit.Val.Type() != cty.Number {
			return cty.NilVal, false
		}
	case *hclsyntax.ObjectConsKeyExpr:
		if word := hcl.ExprAsKeyword(e.Wrapped); word != "" && !e.ForceNonLiteral {
			return cty.StringVal(word), true
		}
		return constant(e.Wrapped)
	case hclsyntax.Expression:
		return cty.NilVal, false
	}
	v, diags := expr.Value(nil)
	return v, !diags.HasErrors() && v.IsKnown()
}

// expect reads a constant of one kind, or reports what is there instead.
func (d *decoder) expect(expr hcl.Expression, name string, want kind) (cty.Value, bool) {
	got := kindOf(expr)
	if got == want {
		v, ok := constant(expr)
		return v, ok
	}
	d.mismatch(expr, name, got, string(want))
	return cty.NilVal, false
}

func (d *decoder) mismatch(expr hcl.Expression, name string, got kind, want string) {
	if got == kindUnknown {
		hint := ""
		switch expr.(type) {
		case *hclsyntax.TemplateExpr, *hclsyntax.TemplateWrapExpr:
			hint = " For a literal ${ or %{ in a string write $${ or %%{."
		}
		d.errorf(expr.Range(), "Not a constant", "%q must be %s written out: there are no variables, functions or calculations here.%s", name, want, hint)
		return
	}
	d.errorf(expr.Range(), "Wrong type", "%q must be %s, not %s.", name, want, got)
}

func (d *decoder) str(expr hcl.Expression, name string) (string, bool) {
	v, ok := d.expect(expr, name, kindString)
	if !ok {
		return "", false
	}
	return v.AsString(), true
}

// whole reads a whole number between least and most.
func (d *decoder) whole(expr hcl.Expression, name string, least, most int64) (int, bool) {
	v, ok := d.expect(expr, name, kindNumber)
	if !ok {
		return 0, false
	}
	n, exact := v.AsBigFloat().Int64()
	switch {
	case exact != big.Exact:
		d.errorf(expr.Range(), "Invalid number", "%q must be a whole number.", name)
		return 0, false
	case n < 0 && least >= 0:
		d.errorf(expr.Range(), "Invalid number", "%q must not be negative.", name)
		return 0, false
	case n < least:
		d.errorf(expr.Range(), "Invalid number", "%q must be at least %d.", name, least)
		return 0, false
	case n > most:
		d.errorf(expr.Range(), "Invalid number", "%q must be at most %d.", name, most)
		return 0, false
	}
	return int(n), true
}

// elements are the parts of a list.
func (d *decoder) elements(expr hcl.Expression, name string) ([]hcl.Expression, bool) {
	items, diags := hcl.ExprList(expr)
	if diags.HasErrors() {
		d.mismatch(expr, name, kindOf(expr), "a list")
		return nil, false
	}
	return items, true
}

// members calls set for each key of an object; a key that comes twice is an
// error.
func (d *decoder) members(expr hcl.Expression, name string, set func(key string, value hcl.Expression)) {
	pairs, diags := hcl.ExprMap(expr)
	if diags.HasErrors() {
		d.mismatch(expr, name, kindOf(expr), "an object")
		return
	}
	seen := map[string]hcl.Range{}
	for _, p := range pairs {
		key, ok := d.str(p.Key, name)
		if !ok {
			continue
		}
		if before, twice := seen[key]; twice {
			d.errorf(p.Key.Range(), "Duplicate key", "%q is already at %s.", key, position(before))
			continue
		}
		seen[key] = p.Key.Range()
		set(key, p.Value)
	}
}

// anything reads a value of any kind as encoding/json would, whole numbers as
// int64.
func (d *decoder) anything(expr hcl.Expression, name string) any {
	switch kindOf(expr) {
	case kindList:
		items, _ := d.elements(expr, name)
		all := make([]any, 0, len(items))
		for _, item := range items {
			all = append(all, d.anything(item, name))
		}
		return all
	case kindObject:
		all := map[string]any{}
		d.members(expr, name, func(key string, v hcl.Expression) { all[key] = d.anything(v, key) })
		return all
	case kindUnknown:
		d.mismatch(expr, name, kindUnknown, "a value")
		return nil
	}
	v, _ := constant(expr)
	switch {
	case v.IsNull():
		return nil
	case v.Type() == cty.String:
		return v.AsString()
	case v.Type() == cty.Bool:
		return v.True()
	}
	if n, exact := v.AsBigFloat().Int64(); exact == big.Exact {
		return n
	}
	f, _ := v.AsBigFloat().Float64()
	return f
}
