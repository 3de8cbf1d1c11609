package config

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// kind is the type of a value in a file.
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

// kindOf returns the kind of an expression. It evaluates constants only.
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

// constant evaluates a string, number, bool or null. It refuses every other
// expression without evaluating it: nested loops in a small file would take
// unbounded time.
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

// expect returns a constant of one kind, or reports the kind that it has.
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

// elements returns the elements of a list.
func (d *decoder) elements(expr hcl.Expression, name string) ([]hcl.Expression, bool) {
	items, diags := hcl.ExprList(expr)
	if diags.HasErrors() {
		d.mismatch(expr, name, kindOf(expr), "a list")
		return nil, false
	}
	return items, true
}

// nth is the name of an element of a list in messages.
func nth(name string, i int) string { return name + "[" + strconv.Itoa(i) + "]" }

// members calls set for each key of an object. A duplicate key is an error.
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

// anyMap decodes an object with values of any type.
func (d *decoder) anyMap(p *map[string]any) func(*hcl.Attribute) {
	return func(a *hcl.Attribute) {
		all := map[string]any{}
		d.members(a.Expr, a.Name, func(key string, v hcl.Expression) { all[key] = d.anything(v, key) })
		*p = all
	}
}

// anything decodes a value of any type as encoding/json does, but whole numbers
// as int64.
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

// duration decodes a duration such as "30s"; zero is possible.
func (d *decoder) duration(p *time.Duration) func(*hcl.Attribute) {
	return func(a *hcl.Attribute) { d.readDuration(a, p, false) }
}

// interval decodes a duration above zero.
func (d *decoder) interval(p *time.Duration) func(*hcl.Attribute) {
	return func(a *hcl.Attribute) { d.readDuration(a, p, true) }
}

func (d *decoder) readDuration(a *hcl.Attribute, p *time.Duration, positive bool) {
	if kindOf(a.Expr) == kindNumber {
		example := "30"
		v, _ := constant(a.Expr)
		if !positive && v.AsBigFloat().Sign() == 0 {
			*p = 0
			return
		}
		if n, _ := v.AsBigFloat().Int64(); n > 0 && n < math.MaxInt32 {
			example = strconv.FormatInt(n, 10)
		}
		d.errorf(a.Expr.Range(), "Invalid duration", "%q needs a unit: write it as a string such as %q.", a.Name, example+"s")
		return
	}
	s, ok := d.str(a.Expr, a.Name)
	if !ok {
		return
	}
	v, err := parseDuration(s)
	switch {
	case err != nil:
		d.errorf(a.Expr.Range(), "Invalid duration", "%q: %v.", a.Name, err)
	case v == 0 && positive:
		d.errorf(a.Expr.Range(), "Invalid duration", "%q must be more than zero.", a.Name)
	default:
		*p = v
	}
}

// wait decodes a quiescence window.
func (d *decoder) wait(p *Wait) func(*hcl.Attribute) {
	return func(a *hcl.Attribute) {
		s, ok := d.str(a.Expr, a.Name)
		if !ok {
			return
		}
		w, err := parseWait(s)
		if err != nil {
			d.errorf(a.Expr.Range(), "Invalid wait", `%v. Write "min" or "min:max", such as "50ms:2s".`, err)
			return
		}
		*p = w
	}
}

// command decodes a program with its arguments. A string is an error, which
// shows the list to write instead: no shell would split the string.
func (d *decoder) command(p *[]string) func(*hcl.Attribute) {
	return func(a *hcl.Attribute) {
		if kindOf(a.Expr) == kindString {
			v, _ := constant(a.Expr)
			d.errorf(a.Expr.Range(), "Command is not a list", "A command is a list of arguments, and no shell splits it: write %s = %s", a.Name, asList(v.AsString()))
			return
		}
		d.argv(a, p)
	}
}

// program decodes a command, or the path of a program as a string.
func (d *decoder) program(p *[]string) func(*hcl.Attribute) {
	return func(a *hcl.Attribute) {
		switch got := kindOf(a.Expr); got {
		case kindList:
			d.argv(a, p)
		case kindString:
			path, _ := d.str(a.Expr, a.Name)
			if path == "" {
				d.errorf(a.Expr.Range(), "Empty value", "%q must not be empty.", a.Name)
				return
			}
			*p = []string{path}
		default:
			d.mismatch(a.Expr, a.Name, got, "the path of a program or a list with its arguments")
		}
	}
}

func (d *decoder) argv(a *hcl.Attribute, p *[]string) {
	items, ok := d.elements(a.Expr, a.Name)
	if !ok {
		return
	}
	if len(items) == 0 {
		d.errorf(a.Expr.Range(), "Empty command", "%q names no program: leave it out, or write %s = [\"program\", \"argument\"]", a.Name, a.Name)
		return
	}
	args := make([]string, 0, len(items))
	for i, item := range items {
		s, ok := d.str(item, nth(a.Name, i))
		switch {
		case !ok:
			return
		case i == 0 && strings.TrimSpace(s) == "":
			d.errorf(item.Range(), "Empty command", "The first element of %q is the program and must not be empty.", a.Name)
			return
		case strings.ContainsRune(s, 0):
			d.errorf(item.Range(), "Invalid command", "An argument cannot contain a zero byte.")
			return
		}
		args = append(args, s)
	}
	*p = args
}

// asList writes a command line as a list.
func asList(line string) string {
	parts := strings.Fields(line)
	if len(parts) == 0 {
		parts = []string{"nginx", "-t"}
	}
	if strings.ContainsAny(line, "|&;<>()$`\\\"'*?~") && !strings.Contains(line, "{{") {
		parts = []string{"/bin/sh", "-c", line}
	}
	for i, part := range parts {
		parts[i] = strings.ReplaceAll(strconv.Quote(part), "${", "$${")
	}
	return fmt.Sprintf("[%s]", strings.Join(parts, ", "))
}
