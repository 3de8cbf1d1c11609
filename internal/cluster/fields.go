package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/hashicorp/go-bexpr/grammar"

	"github.com/jorc/jorc/internal/profile"
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

// known is a list of names that is missing where it is nil.
func known(list []string) operand {
	if list == nil {
		return operand{}
	}
	return operand{kind: names, names: list}
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
	"Workflows":  {names, 0, func(m *Member) operand { return known(m.Workflows) }},
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

// Column is one field of members, or one entry below it, to be shown or sorted
// by: "Zone", "params.disks", `Params["cluster/db"]`.
type Column struct {
	Name string // as it was given
	Key  string // in JSON: the field in snake_case, and what of it, such as "params.disks"
	need Need
	get  func(*Member) operand
}

// ParseColumn reads the name of a column; the case of a field's name and its
// underscores do not matter. It returns ErrInvalid.
func ParseColumn(name string) (Column, error) {
	base, rest := name, ""
	if i := strings.IndexAny(name, ".["); i >= 0 {
		base, rest = name[:i], strings.TrimPrefix(name[i:], ".")
	}
	if inner, ok := strings.CutPrefix(rest, "["); ok {
		rest = strings.Trim(strings.TrimSuffix(inner, "]"), `"'`)
	}
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "")) }
	for _, known := range FieldNames() {
		f := fields[known]
		if plain(base) != plain(known) {
			continue
		}
		if rest == "" {
			return Column{Name: name, Key: snake(known), need: f.need, get: f.get}, nil
		}
		if f.kind == textual || f.kind == names {
			return Column{}, fmt.Errorf("field %q: %w: there is nothing below %s", name, ErrInvalid, known)
		}
		get := func(m *Member) operand { return f.get(m).descend([]string{rest}) }
		return Column{Name: name, Key: snake(known) + "." + rest, need: f.need, get: get}, nil
	}
	return Column{}, fmt.Errorf("field %q: %w: it does not exist; fields are %s", name, ErrInvalid, strings.Join(FieldNames(), ", "))
}

// snake returns the name of a field as JSON has it: NodeMeta is node_meta.
func snake(field string) string {
	var b strings.Builder
	for i, r := range field {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// Need says what has to be read for the column.
func (c Column) Need() Need { return c.need }

// Text returns the column of m for people.
func (c Column) Text(m *Member) string {
	o := c.get(m)
	switch o.kind {
	case names:
		return strings.Join(o.names, ",")
	case labels, params:
		var parts []string
		for _, e := range o.elements() {
			parts = append(parts, e.key.text+"="+e.value.plain())
		}
		return strings.Join(parts, ",")
	}
	return o.plain()
}

// JSON returns the column of m as something that encodes to JSON.
func (c Column) JSON(m *Member) any {
	o := c.get(m)
	switch o.kind {
	case missing:
		return nil
	case textual:
		return o.text
	case names:
		return append([]string{}, o.names...)
	case labels:
		return o.labels
	case params:
		return o.params
	}
	return o.value
}

// Sort orders members by the column, numbers by their value and before texts;
// equal ones keep their order.
func (c Column) Sort(all []Member, descending bool) {
	slices.SortStableFunc(all, func(a, b Member) int {
		if n := compare(c.get(&a), c.get(&b), c.Text(&a), c.Text(&b)); descending {
			return -n
		} else {
			return n
		}
	})
}

func compare(a, b operand, textA, textB string) int {
	x, numberA := a.float()
	y, numberB := b.float()
	switch {
	case numberA && numberB:
		return cmp.Compare(x, y)
	case numberA:
		return -1
	case numberB:
		return 1
	}
	return cmp.Compare(textA, textB)
}

func (o operand) float() (float64, bool) {
	if o.kind != value || o.value.Kind() != "number" {
		return 0, false
	}
	switch n := o.value.Plain().(type) {
	case int64:
		return float64(n), true
	case float64:
		return n, true
	case fmt.Stringer:
		var f float64
		_, err := fmt.Sscan(n.String(), &f)
		return f, err == nil
	}
	return 0, false
}

// kind is what an operand is.
type kind int

const (
	missing kind = iota // not there, or null: false and empty
	textual
	names  // a list of texts
	labels // texts by name
	params // JSON values by name
	value  // a JSON value that is neither text nor null
)

// operand is what a selector found.
type operand struct {
	kind   kind
	text   string
	names  []string
	labels map[string]string
	params profile.Params
	value  profile.Value
}

func textOperand(s string) operand { return operand{kind: textual, text: s} }

func number(n int) operand {
	v, _ := profile.Of(n) // an int is JSON
	return operand{kind: value, value: v}
}

func jsonOperand(v profile.Value) operand {
	switch v.Kind() {
	case "null":
		return operand{}
	case "string":
		return textOperand(v.Raw())
	}
	return operand{kind: value, value: v}
}

// descend returns what path names below o.
func (o operand) descend(path []string) operand {
	for i, name := range path {
		switch o.kind {
		case labels:
			if v, ok := o.labels[name]; ok {
				o = textOperand(v)
				continue
			}
		case params:
			if v, ok := o.params[name]; ok {
				o = jsonOperand(v)
				continue
			}
		case names:
			if n, err := strconv.Atoi(name); err == nil && n >= 0 && n < len(o.names) {
				o = textOperand(o.names[n])
				continue
			}
		case value:
			if v, err := o.value.Lookup(profile.Pointer(path[i:])); err == nil {
				return jsonOperand(v)
			}
		}
		return operand{}
	}
	return o
}

// literal is a value in a filter; go-bexpr does not distinguish words from quoted
// texts.
type literal struct {
	raw    string
	scalar profile.Value // what raw is when it is a number, true or false
	plain  bool          // neither of them
}

func newLiteral(raw string) literal {
	v, err := profile.ParseJSON([]byte(raw))
	k := v.Kind()
	if err != nil || k != "number" && k != "boolean" {
		return literal{raw: raw, plain: true}
	}
	return literal{raw: raw, scalar: v}
}

func (o operand) equals(l literal) bool {
	switch o.kind {
	case missing:
		return l.raw == "" || l.raw == "false"
	case textual:
		return o.text == l.raw
	case value:
		return !l.plain && o.value.Equal(l.scalar)
	}
	return false
}

func (o operand) contains(l literal) bool {
	switch o.kind {
	case textual:
		return strings.Contains(o.text, l.raw)
	case names:
		return slices.Contains(o.names, l.raw)
	case labels:
		_, ok := o.labels[l.raw]
		return ok
	case params:
		_, ok := o.params[l.raw]
		return ok
	case value:
		return slices.ContainsFunc(o.elements(), func(e element) bool {
			if e.key.kind == textual {
				return e.key.text == l.raw
			}
			return e.value.equals(l)
		})
	}
	return false
}

func (o operand) empty() bool {
	switch o.kind {
	case missing:
		return true
	case textual:
		return o.text == ""
	case value:
		k := o.value.Kind()
		return (k == "array" || k == "object") && len(o.elements()) == 0
	}
	return len(o.names)+len(o.labels)+len(o.params) == 0
}

// plain is the text for a regular expression.
func (o operand) plain() string {
	if o.kind == value {
		return o.value.String()
	}
	return o.text
}

// element is one of a list, without a key, or of a map.
type element struct{ key, value operand }

func (o operand) elements() []element {
	var all []element
	switch o.kind {
	case names:
		for _, n := range o.names {
			all = append(all, element{value: textOperand(n)})
		}
	case labels:
		for _, k := range slices.Sorted(maps.Keys(o.labels)) {
			all = append(all, element{textOperand(k), textOperand(o.labels[k])})
		}
	case params:
		for _, k := range o.params.Keys() {
			all = append(all, element{textOperand(k), jsonOperand(o.params[k])})
		}
	case value:
		if object, err := o.value.Params(); err == nil {
			return operand{kind: params, params: object}.elements()
		}
		if o.value.Kind() != "array" {
			return nil
		}
		for {
			v, err := o.value.Lookup(profile.Pointer{strconv.Itoa(len(all))})
			if err != nil {
				return all // behind the last
			}
			all = append(all, element{value: jsonOperand(v)})
		}
	}
	return all
}
