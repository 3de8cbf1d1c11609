package cluster

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jorc/jorc/internal/profile"
)

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
