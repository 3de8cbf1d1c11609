package profile

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

const (
	// maxCheck bounds the work of checking one value, in steps of very roughly
	// 100 ns; visitCost is what one visit of a schema takes at least. A schema of
	// a few references can ask for 2^60 visits.
	maxCheck  = 2_000_000
	visitCost = 6
	// maxVisits bounds how deep visits nest: each needs room on the stack.
	maxVisits = 10_000
)

// violation is the first thing about a value that its schema refuses.
type violation struct {
	at           Pointer
	rule, reason string
}

// check is one value being checked. A visit that fails sets failed, and all that
// follow return at once.
type check struct {
	left   int
	depth  int
	at     Pointer // of the value that is being visited
	failed *violation
	over   bool // the budget is used up
	seen   *evaluated
}

// evaluated are the parts of one value that some schema has accepted, for
// "unevaluatedItems" and "unevaluatedProperties".
type evaluated struct {
	names map[string]bool
	items map[int]bool
}

func (e *evaluated) add(other *evaluated) {
	maps.Copy(e.names, other.names)
	maps.Copy(e.items, other.items)
}

func newEvaluated() *evaluated { return &evaluated{names: map[string]bool{}, items: map[int]bool{}} }

// check returns a *SchemaError, or ErrTooLarge when the check would take too long.
func (s *schema) check(key string, v Value) error {
	if n, ok := unwieldy(v.tree); ok {
		return &SchemaError{Key: key, Rule: "number", Reason: fmt.Sprintf("a number of %d characters is too long to calculate with", len(n))}
	}
	c := &check{left: maxCheck}
	c.visit(s, v.tree)
	switch {
	case c.over:
		return tooLarge("the schema of param %q asks for more than %d steps to check the value: simplify the schema", key, maxCheck)
	case c.failed != nil:
		return &SchemaError{Key: key, Pointer: c.failed.at.String(), Rule: c.failed.rule, Reason: c.failed.reason}
	}
	return nil
}

func (c *check) spend(n int) {
	if c.left -= n; c.left < 0 {
		c.over = true
	}
}

// stopped reports whether there is nothing left to find out.
func (c *check) stopped() bool { return c.failed != nil || c.over }

func (c *check) fail(rule, reason string) {
	if !c.stopped() {
		c.failed = &violation{slices.Clone(c.at), rule, reason}
	}
}

// visit applies a schema to a value: what refuses the value itself first, then
// what refuses a part of it.
func (c *check) visit(s *schema, value any) {
	c.spend(visitCost)
	if c.depth++; c.depth > maxVisits {
		c.over = true
	}
	defer func() { c.depth-- }()
	if s.never {
		c.fail("false", "no value is allowed here")
	}
	if c.stopped() {
		return
	}
	outer := c.seen
	if s.tracks {
		c.seen = newEvaluated()
		defer func() {
			if outer != nil && !c.stopped() {
				outer.add(c.seen)
			}
			c.seen = outer
		}()
	}
	for _, r := range s.rules {
		if ok, reason := r.apply(c, value); !ok {
			c.fail(r.keyword, reason)
		}
		if c.stopped() {
			return
		}
	}
	if s.ref != nil {
		c.visit(s.ref, value)
	}
	for _, group := range [][]func(*check, any){s.inPlace, s.nested} {
		for _, apply := range group {
			if apply(c, value); c.stopped() {
				return
			}
		}
	}
}

// passes reports whether a schema accepts a value, without failing the check.
func (c *check) passes(s *schema, value any) bool {
	if c.stopped() {
		return false
	}
	c.visit(s, value)
	ok := c.failed == nil
	c.failed = nil
	return ok && !c.over
}

// part applies a schema to a member or item of a value.
func (c *check) part(s *schema, token string, value any) {
	outer := c.seen
	c.at, c.seen = append(c.at, token), nil
	c.visit(s, value)
	c.at, c.seen = c.at[:len(c.at)-1], outer
}

func (c *check) item(s *schema, i int, value any) {
	if c.part(s, strconv.Itoa(i), value); c.seen != nil {
		c.seen.items[i] = true
	}
}

func (c *check) member(s *schema, name string, value any) {
	if c.part(s, name, value); c.seen != nil {
		c.seen.names[name] = true
	}
}

func (k *keywords) same(s *schema) *schema {
	if s != nil {
		k.s.same = append(k.s.same, s)
	}
	return s
}

func (k *keywords) apply(f func(c *check, value any)) { k.s.inPlace = append(k.s.inPlace, f) }

// applicators compiles the keywords whose schemas apply to the value itself.
func (k *keywords) applicators() {
	for _, s := range k.list("allOf") {
		k.same(s)
		k.apply(func(c *check, value any) { c.visit(s, value) })
	}
	if some := k.list("anyOf"); len(some) > 0 {
		for _, s := range some {
			k.same(s)
		}
		k.apply(func(c *check, value any) {
			limit := 1
			if c.seen != nil {
				limit = len(some) // each that matches adds what it has evaluated
			}
			if c.count(some, value, limit) == 0 {
				c.fail("anyOf", "matches none of the alternatives")
			}
		})
	}
	if one := k.list("oneOf"); len(one) > 0 {
		for _, s := range one {
			k.same(s)
		}
		k.apply(func(c *check, value any) {
			switch c.count(one, value, 2) {
			case 0:
				c.fail("oneOf", "matches none of the alternatives")
			case 2:
				c.fail("oneOf", "matches more than one of the alternatives")
			}
		})
	}
	if not := k.same(k.sub("not")); not != nil {
		k.apply(func(c *check, value any) {
			outer := c.seen
			c.seen = nil
			if c.passes(not, value) {
				c.fail("not", "matches the schema that it must not match")
			}
			c.seen = outer
		})
	}
	condition, then, otherwise := k.same(k.sub("if")), k.same(k.sub("then")), k.same(k.sub("else"))
	if condition != nil {
		k.apply(func(c *check, value any) {
			next := otherwise
			if c.passes(condition, value) {
				next = then
			}
			if next != nil && !c.over {
				c.visit(next, value)
			}
		})
	}
	for name, s := range sorted(k.schemaMap("dependentSchemas")) {
		k.dependentSchema(name, s)
	}
	if v, ok := k.get("dependencies"); ok {
		k.dependents("dependencies", v)
	}
}

// count returns how many of the schemas accept a value, and stops at limit.
func (c *check) count(all []*schema, value any, limit int) (n int) {
	for _, s := range all {
		if c.passes(s, value) {
			if n++; n == limit {
				break
			}
		}
	}
	return n
}

func (k *keywords) dependentSchema(trigger string, s *schema) {
	k.same(s)
	k.apply(func(c *check, value any) {
		if object, ok := value.(map[string]any); ok && contains(object, trigger) {
			c.visit(s, value)
		}
	})
}

// sorted returns the members in order of their names.
func sorted[V any](m map[string]V) func(yield func(string, V) bool) {
	names := slices.Sorted(maps.Keys(m))
	return func(yield func(string, V) bool) {
		for _, name := range names {
			if !yield(name, m[name]) {
				return
			}
		}
	}
}

// part compiles a keyword whose schemas apply to items or members.
func (k *keywords) part(f func(c *check, value any)) { k.s.nested = append(k.s.nested, f) }

// items compiles the keywords about the items of a list.
func (k *keywords) items() {
	var first []*schema
	var rest *schema
	if v, ok := k.get("items"); ok && k.draft < draft2020 && (Value{tree: v}).Kind() == "array" {
		if len(v.([]any)) > 0 {
			first = k.list("items")
		}
		rest = k.sub("additionalItems")
	} else {
		first, rest = k.list("prefixItems"), k.sub("items")
	}
	if len(first) > 0 || rest != nil {
		k.part(func(c *check, value any) {
			list, _ := value.([]any)
			c.spend(len(list))
			for i, e := range list {
				s := rest
				if i < len(first) {
					s = first[i]
				}
				if s == nil || c.stopped() {
					return
				}
				c.item(s, i, e)
			}
		})
	}
	k.contains()
}

func (k *keywords) contains() {
	s := k.sub("contains")
	least, most := 1, -1
	for keyword, to := range map[string]*int{"minContains": &least, "maxContains": &most} {
		if r := k.number(keyword); r != nil {
			if !r.IsInt() || r.Sign() < 0 {
				k.fail(keyword, "is not a whole number of at least 0")
			}
			*to = MaxInput
			if r.Num().IsInt64() {
				*to = int(min(r.Num().Int64(), MaxInput))
			}
		}
	}
	if s == nil {
		return
	}
	k.part(func(c *check, value any) {
		list, isList := value.([]any)
		if !isList {
			return
		}
		n := 0
		for i, e := range list {
			outer := c.seen
			c.seen = nil
			ok := c.passes(s, e)
			if c.seen = outer; !ok {
				continue
			}
			if n++; c.seen != nil && k.draft >= draft2020 {
				c.seen.items[i] = true
			}
		}
		switch {
		case n < least && least == 1:
			c.fail("contains", "no item matches")
		case n < least:
			c.fail("minContains", fmt.Sprintf("fewer than %d items match", least))
		case most >= 0 && n > most:
			c.fail("maxContains", fmt.Sprintf("more than %d items match", most))
		}
	})
}

// patternSchema is a schema for the members that a pattern names.
type patternSchema struct {
	pattern *pattern
	schema  *schema
}

// properties compiles the keywords about the members of an object.
func (k *keywords) properties() {
	named := k.schemaMap("properties")
	var patterns []patternSchema
	for text, s := range sorted(k.schemaMap("patternProperties")) {
		p, err := compilePattern(text)
		if err != nil {
			k.fail("patternProperties", "has a pattern that jorc does not support: %v", err)
		}
		patterns = append(patterns, patternSchema{p, s})
	}
	rest := k.sub("additionalProperties")
	names := k.sub("propertyNames")
	if len(named)+len(patterns) == 0 && rest == nil && names == nil {
		return
	}
	k.part(func(c *check, value any) {
		object, _ := value.(map[string]any)
		c.spend(len(object) * (1 + len(patterns)))
		for name, e := range sorted(object) {
			if c.stopped() {
				return
			}
			c.name(names, name)
			s, known := named[name]
			if known {
				c.member(s, name, e)
			}
			for _, p := range patterns {
				if !c.stopped() && p.pattern.match(c, name) {
					known = true
					c.member(p.schema, name, e)
				}
			}
			switch {
			case known || rest == nil || c.stopped():
			case rest.never:
				c.fail("additionalProperties", fmt.Sprintf("the member %q is not allowed", shorten(name)))
			default:
				c.member(rest, name, e)
			}
		}
	})
}

// name checks the name of a member against "propertyNames".
func (c *check) name(s *schema, name string) {
	if s == nil {
		return
	}
	outer := c.seen
	c.seen = nil
	if c.visit(s, name); c.failed != nil {
		c.failed = &violation{slices.Clone(c.at), "propertyNames", fmt.Sprintf("the name %q is refused: %s: %s", shorten(name), c.failed.rule, c.failed.reason)}
	}
	c.seen = outer
}

// unevaluated compiles the keywords about what no other keyword has evaluated;
// they come last.
func (k *keywords) unevaluated() {
	if s := k.sub("unevaluatedItems"); s != nil {
		k.tracks = true
		k.part(func(c *check, value any) {
			list, _ := value.([]any)
			for i, e := range list {
				if !c.seen.items[i] && !c.stopped() {
					c.item(s, i, e)
				}
			}
		})
	}
	if s := k.sub("unevaluatedProperties"); s != nil {
		k.tracks = true
		k.part(func(c *check, value any) {
			object, _ := value.(map[string]any)
			for name, e := range sorted(object) {
				if !c.seen.names[name] && !c.stopped() {
					c.member(s, name, e)
				}
			}
		})
	}
}

// appendCanonical appends tree so that equal values have equal texts.
func appendCanonical(out []byte, tree any) []byte {
	switch t := tree.(type) {
	case json.Number:
		d := decimalOf(string(t))
		if d.digits == "" {
			return append(out, '0')
		}
		if d.negative {
			out = append(out, '-')
		}
		return append(append(append(out, d.digits...), 'e'), d.exponent.String()...)
	case []any:
		out = append(out, '[')
		for _, e := range t {
			out = append(appendCanonical(out, e), ',')
		}
		return append(out, ']')
	case map[string]any:
		out = append(out, '{')
		for name, e := range sorted(t) {
			out = append(appendCanonical(append(appendText(out, name), ':'), e), ',')
		}
		return append(out, '}')
	}
	return appendJSON(out, tree)
}
