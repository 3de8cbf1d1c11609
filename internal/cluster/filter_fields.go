package cluster

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/go-bexpr/grammar"
)

// field is one of a member's fields that filters know.
type field struct {
	kind kind
	need Need
	get  func(*Member) operand
}

func list(get func(*Member) []string) func(*Member) operand {
	return func(m *Member) operand { return operand{kind: names, names: get(m)} }
}

func texts(get func(*Member) map[string]string) func(*Member) operand {
	return func(m *Member) operand { return operand{kind: labels, labels: get(m)} }
}

func single(get func(*Member) string) func(*Member) operand {
	return func(m *Member) operand { return textOperand(get(m)) }
}

// fields never change.
var fields = map[string]field{
	"Node":       {textual, 0, single(func(m *Member) string { return m.Node })},
	"Address":    {textual, NeedCatalog, single(func(m *Member) string { return m.Address })},
	"Datacenter": {textual, NeedDatacenter, single(func(m *Member) string { return m.Datacenter })},
	"Zone":       {textual, 0, single(func(m *Member) string { return m.Zone })},
	"Roles":      {names, 0, list(func(m *Member) []string { return m.Roles })},
	"Params":     {params, 0, func(m *Member) operand { return operand{kind: params, params: m.Params} }},
	"Meta":       {params, 0, func(m *Member) operand { return operand{kind: params, params: m.Meta} }},
	"NodeMeta":   {labels, NeedCatalog, texts(func(m *Member) map[string]string { return m.NodeMeta })},
	"Services":   {names, NeedServices, list(func(m *Member) []string { return m.Services })},
	"Version":    {textual, NeedReports, single(func(m *Member) string { return m.Version })},
	"Status":     {labels, NeedReports, texts(func(m *Member) map[string]string { return m.Status })},
	"Health":     {textual, NeedHealth, single(func(m *Member) string { return m.Health })},
	"Agent":      {textual, NeedAgent, single(func(m *Member) string { return m.Agent })},
}

// FieldNames returns the names of the fields that filters know, sorted.
func FieldNames() []string { return slices.Sorted(maps.Keys(fields)) }

// selector compiles what stands left of an operator. known is its kind when
// that does not depend on the member.
func (c *compiler) selector(s grammar.Selector, bound []string) (get func(*Member, *binding) operand, known kind, err error) {
	if len(s.Path) == 0 {
		return nil, 0, c.errorf(0, "a comparison needs a field: %s", strings.Join(FieldNames(), ", "))
	}
	name, path := s.Path[0], s.Path[1:]
	if slices.Contains(bound, name) {
		return func(_ *Member, b *binding) operand { return b.lookup(name).descend(path) }, missing, nil
	}
	f, ok := fields[name]
	if !ok {
		return nil, 0, c.errorf(c.find(name), "there is no field %q: %s are", name, strings.Join(FieldNames(), ", "))
	}
	if f.kind == textual && len(path) > 0 {
		return nil, 0, c.errorf(c.find(name), "%s is a text and has nothing below it", name)
	}
	c.need |= f.need
	known = f.kind
	if len(path) > 0 {
		known = missing
	}
	return func(m *Member, _ *binding) operand { return f.get(m).descend(path) }, known, nil
}

// comparison compiles one term.
func (c *compiler) comparison(e *grammar.MatchExpression, bound []string) (predicate, error) {
	get, known, err := c.selector(e.Selector, bound)
	if err != nil {
		return nil, err
	}
	var l literal
	if e.Value != nil {
		l = newLiteral(e.Value.Raw)
	}
	test, negated := func(operand) bool { return false }, false
	switch e.Operator {
	case grammar.MatchEqual, grammar.MatchNotEqual:
		negated = e.Operator == grammar.MatchNotEqual
		if known != missing && known != textual {
			return nil, c.errorf(c.find(e.Selector.Path[0]), "%s has many values: say %q in %s", e.Selector.Path[0], l.raw, e.Selector.Path[0])
		}
		test = func(o operand) bool { return o.equals(l) }
	case grammar.MatchIn, grammar.MatchNotIn, grammar.MatchContains, grammar.MatchNotContains:
		negated = e.Operator == grammar.MatchNotIn || e.Operator == grammar.MatchNotContains
		test = func(o operand) bool { return o.contains(l) }
	case grammar.MatchIsEmpty, grammar.MatchIsNotEmpty:
		negated = e.Operator == grammar.MatchIsNotEmpty
		test = operand.empty
	case grammar.MatchIsNil, grammar.MatchIsNotNil:
		negated = e.Operator == grammar.MatchIsNotNil
		test = func(o operand) bool { return o.kind == missing }
	case grammar.MatchMatches, grammar.MatchNotMatches:
		negated = e.Operator == grammar.MatchNotMatches
		pattern, err := regexp.Compile(l.raw)
		if err != nil {
			return nil, c.errorf(c.find(l.raw), "%v", err)
		}
		test = func(o operand) bool { return pattern.MatchString(o.plain()) }
	}
	return func(m *Member, b *binding) bool { return test(get(m, b)) != negated }, nil
}
