package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

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
	return Column{}, fmt.Errorf("field %q: %w: there is none, %s are", name, ErrInvalid, strings.Join(FieldNames(), ", "))
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
