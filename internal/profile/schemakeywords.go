package profile

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"
)

// inDraft reports whether a draft has a keyword of schemas.
func inDraft(draft int, keyword string) bool {
	switch keyword {
	case "const", "contains", "propertyNames":
		return draft >= draft6
	case "if", "then", "else":
		return draft >= draft7
	case "dependentRequired", "dependentSchemas", "minContains", "maxContains", "unevaluatedItems", "unevaluatedProperties":
		return draft >= draft2019
	case "$dynamicRef", "prefixItems":
		return draft >= draft2020
	case "$recursiveRef":
		return draft == draft2019
	case "additionalItems":
		return draft <= draft2019
	case "dependencies":
		return draft <= draft7
	}
	return true
}

// keywords are the members of one schema that the draft knows. The first error
// stays.
type keywords struct {
	*schemaCompiler
	object map[string]any
	at     string
	s      *schema
	err    error
}

// schema compiles the schema at a location.
func (c *schemaCompiler) schema(tree any, at string) (*schema, error) {
	if s, ok := c.done[at]; ok {
		return s, nil
	}
	s := &schema{}
	c.done[at] = s
	switch t := tree.(type) {
	case bool:
		if c.draft >= draft6 || strings.HasSuffix(at, "/additionalProperties") || strings.HasSuffix(at, "/additionalItems") {
			s.never = !t
			return s, nil
		}
	case map[string]any:
		k := &keywords{schemaCompiler: c, object: t, at: at, s: s}
		k.compile()
		return s, k.err
	}
	return nil, fmt.Errorf("%q is %s and not a schema", shorten(at), article(Value{tree: tree}.Kind()))
}

func (k *keywords) compile() {
	if ref, ok := k.object["$ref"]; ok {
		k.reference(ref)
		if k.draft <= draft7 {
			return // its other members have no meaning
		}
	}
	for _, keyword := range []string{"$dynamicRef", "$recursiveRef"} {
		if _, ok := k.get(keyword); ok {
			k.fail(keyword, `is not supported: use "$ref"`)
		}
	}
	k.anyValue()
	k.numbers()
	k.strings()
	k.arrays()
	k.objects()
	k.applicators()
	k.items()
	k.properties()
	k.unevaluated()
	for _, keyword := range []string{"$defs", "definitions"} { // they have to be schemas, used or not
		k.schemaMap(keyword)
	}
}

func (k *keywords) get(keyword string) (any, bool) {
	v, ok := k.object[keyword]
	return v, ok && inDraft(k.draft, keyword)
}

func (k *keywords) fail(keyword, format string, args ...any) {
	if k.err == nil {
		k.err = fmt.Errorf("%q %s", shorten(k.at+"/"+keyword), fmt.Sprintf(format, args...))
	}
}

func (k *keywords) rule(keyword string, apply func(c *check, value any) (bool, string)) {
	k.s.rules = append(k.s.rules, rule{keyword, apply})
}

func (k *keywords) reference(ref any) {
	text, ok := ref.(string)
	if !ok {
		k.fail("$ref", "is not a string")
		return
	}
	to, err := k.refer(text, k.at)
	if err != nil {
		k.fail("$ref", "cannot be followed: %v", err)
		return
	}
	k.s.ref = to
	k.s.same = append(k.s.same, to)
}

// sub compiles the schema below a keyword, nil without that keyword.
func (k *keywords) sub(keyword string) *schema {
	v, ok := k.get(keyword)
	if !ok {
		return nil
	}
	return k.below(v, keyword)
}

func (k *keywords) below(tree any, path string) *schema {
	s, err := k.schema(tree, k.at+"/"+path)
	if err != nil && k.err == nil {
		k.err = err
	}
	return s
}

// list compiles a list of schemas.
func (k *keywords) list(keyword string) []*schema {
	v, ok := k.get(keyword)
	if !ok {
		return nil
	}
	trees, isList := v.([]any)
	if !isList || len(trees) == 0 {
		k.fail(keyword, "is not a list of schemas")
		return nil
	}
	all := make([]*schema, len(trees))
	for i, tree := range trees {
		all[i] = k.below(tree, fmt.Sprintf("%s/%d", keyword, i))
	}
	return all
}

// schemaMap compiles an object of schemas.
func (k *keywords) schemaMap(keyword string) map[string]*schema {
	v, ok := k.get(keyword)
	if !ok {
		return nil
	}
	object, isObject := v.(map[string]any)
	if !isObject {
		k.fail(keyword, "is not an object of schemas")
		return nil
	}
	all := make(map[string]*schema, len(object))
	for name, tree := range object {
		all[name] = k.below(tree, keyword+Pointer{name}.String())
	}
	return all
}

// number returns a keyword's number, nil without that keyword.
func (k *keywords) number(keyword string) *big.Rat {
	v, ok := k.get(keyword)
	if !ok {
		return nil
	}
	n, isNumber := v.(json.Number)
	if !isNumber {
		k.fail(keyword, "is not a number")
		return nil
	}
	return rational(n)
}

// bound adds a rule about a size that a keyword bounds.
func (k *keywords) bound(keyword, reason string, size func(value any) (int, bool), ok func(size, limit int) bool) {
	r := k.number(keyword)
	if r == nil {
		return
	}
	if !r.IsInt() || r.Sign() < 0 {
		k.fail(keyword, "is not a whole number of at least 0")
		return
	}
	limit := MaxInput // more than anything has
	if r.Num().IsInt64() && r.Num().Int64() < MaxInput {
		limit = int(r.Num().Int64())
	}
	k.rule(keyword, func(_ *check, value any) (bool, string) {
		n, applies := size(value)
		return !applies || ok(n, limit), fmt.Sprintf(reason, limit)
	})
}

func atLeast(size, limit int) bool { return size >= limit }
func atMost(size, limit int) bool  { return size <= limit }

// names returns a keyword's list of strings.
func (k *keywords) names(keyword string, v any) []string {
	list, ok := v.([]any)
	names := make([]string, len(list))
	for i, e := range list {
		names[i], ok = e.(string)
		if !ok {
			break
		}
	}
	if !ok {
		k.fail(keyword, "is not a list of strings")
	}
	return names
}

func (k *keywords) anyValue() {
	if v, ok := k.get("type"); ok {
		k.types(v)
	}
	if v, ok := k.get("enum"); ok {
		list, isList := v.([]any)
		if !isList {
			k.fail("enum", "is not a list")
		}
		cost := len(Value{tree: v}.JSON()) / 64
		k.rule("enum", func(c *check, value any) (bool, string) {
			c.spend(1 + len(list) + cost)
			return slices.ContainsFunc(list, func(e any) bool { return equalTrees(e, value) }), "not one of the allowed values"
		})
	}
	if v, ok := k.get("const"); ok {
		cost := len(Value{tree: v}.JSON()) / 64
		k.rule("const", func(c *check, value any) (bool, string) {
			c.spend(1 + cost)
			return equalTrees(v, value), "not the required value"
		})
	}
}

func (k *keywords) types(v any) {
	wanted := []string{}
	if one, ok := v.(string); ok {
		wanted = append(wanted, one)
	} else {
		wanted = k.names("type", v)
	}
	for _, t := range wanted {
		if !slices.Contains([]string{"null", "boolean", "number", "integer", "string", "array", "object"}, t) {
			k.fail("type", "names %q, which is not a type", shorten(t))
		}
	}
	k.rule("type", func(_ *check, value any) (bool, string) {
		kind := Value{tree: value}.Kind()
		if slices.Contains(wanted, kind) || kind == "number" && slices.Contains(wanted, "integer") && isInteger(value.(json.Number)) {
			return true, ""
		}
		return false, fmt.Sprintf("is %s, want %s", article(kind), strings.Join(wanted, " or "))
	})
}

// isInteger reports whether n is a whole number, such as 1.0.
func isInteger(n json.Number) bool {
	return !strings.ContainsAny(string(n), ".eE") || rational(n).IsInt()
}

func (k *keywords) numbers() {
	compare := func(keyword, reason string, ok func(order int) bool) {
		limit := k.number(keyword)
		if limit == nil {
			return
		}
		text := reason + " " + string(k.object[keyword].(json.Number))
		k.rule(keyword, func(_ *check, value any) (bool, string) {
			n, isNumber := value.(json.Number)
			return !isNumber || ok(rational(n).Cmp(limit)), text
		})
	}
	notLess := func(order int) bool { return order >= 0 }
	notMore := func(order int) bool { return order <= 0 }
	more := func(order int) bool { return order > 0 }
	less := func(order int) bool { return order < 0 }
	if k.draft == draft4 { // "exclusive…" is a boolean that belongs to the limit
		for _, b := range []struct {
			keyword, exclusive, reason, strictReason string
			ok, strict                               func(int) bool
		}{
			{"minimum", "exclusiveMinimum", "less than", "not more than", notLess, more},
			{"maximum", "exclusiveMaximum", "more than", "not less than", notMore, less},
		} {
			if k.object[b.exclusive] != true {
				compare(b.keyword, b.reason, b.ok)
				continue
			}
			at := len(k.s.rules)
			compare(b.keyword, b.strictReason, b.strict)
			if len(k.s.rules) > at {
				k.s.rules[at].keyword = b.exclusive
			}
		}
	} else {
		compare("minimum", "less than", notLess)
		compare("maximum", "more than", notMore)
		compare("exclusiveMinimum", "not more than", more)
		compare("exclusiveMaximum", "not less than", less)
	}
	if step := k.number("multipleOf"); step != nil {
		if step.Sign() <= 0 {
			k.fail("multipleOf", "is not more than 0")
			return
		}
		text := "not a multiple of " + string(k.object["multipleOf"].(json.Number))
		k.rule("multipleOf", func(_ *check, value any) (bool, string) {
			n, isNumber := value.(json.Number)
			return !isNumber || new(big.Rat).Quo(rational(n), step).IsInt(), text
		})
	}
}

func (k *keywords) strings() {
	length := func(value any) (int, bool) {
		s, ok := value.(string)
		return utf8.RuneCountInString(s), ok
	}
	k.bound("minLength", "shorter than %d characters", length, atLeast)
	k.bound("maxLength", "longer than %d characters", length, atMost)
	if v, ok := k.get("pattern"); ok {
		text, _ := v.(string)
		p, err := compilePattern(text)
		if _, isText := v.(string); !isText || err != nil {
			k.fail("pattern", "is not a pattern that jorc supports: %v", err)
			return
		}
		k.rule("pattern", func(c *check, value any) (bool, string) {
			s, isText := value.(string)
			return !isText || p.match(c, s), fmt.Sprintf("does not match the pattern %q", shorten(text))
		})
	}
	if v, ok := k.get("format"); ok {
		name, isText := v.(string)
		if !isText {
			k.fail("format", "is not a string")
		}
		if valid := formatOf(name); valid != nil {
			k.rule("format", func(c *check, value any) (bool, string) {
				s, isText := value.(string)
				c.spend(len(s) / 64)
				return !isText || valid(s), "not a valid " + name
			})
		}
	}
}

func (k *keywords) arrays() {
	length := func(value any) (int, bool) {
		list, ok := value.([]any)
		return len(list), ok
	}
	k.bound("minItems", "fewer than %d items", length, atLeast)
	k.bound("maxItems", "more than %d items", length, atMost)
	if v, ok := k.get("uniqueItems"); ok {
		unique, isBool := v.(bool)
		if !isBool {
			k.fail("uniqueItems", "is not true or false")
		}
		if unique {
			k.rule("uniqueItems", distinct)
		}
	}
}

// distinct refuses a list that has an item twice.
func distinct(c *check, value any) (bool, string) {
	list, _ := value.([]any)
	seen := make(map[string]int, len(list))
	for i, e := range list {
		text := string(appendCanonical(nil, e))
		if c.spend(1 + len(text)/16); c.over {
			break
		}
		if first, twice := seen[text]; twice {
			return false, fmt.Sprintf("the items %d and %d are equal", first, i)
		}
		seen[text] = i
	}
	return true, ""
}

func (k *keywords) objects() {
	size := func(value any) (int, bool) {
		object, ok := value.(map[string]any)
		return len(object), ok
	}
	k.bound("minProperties", "fewer than %d members", size, atLeast)
	k.bound("maxProperties", "more than %d members", size, atMost)
	if v, ok := k.get("required"); ok {
		names := slices.Sorted(slices.Values(k.names("required", v)))
		k.rule("required", func(c *check, value any) (bool, string) { return has(c, value, names) })
	}
	if v, ok := k.get("dependentRequired"); ok {
		k.dependents("dependentRequired", v)
	}
}

// has refuses an object that lacks one of the members.
func has(c *check, value any, names []string) (bool, string) {
	object, isObject := value.(map[string]any)
	if !isObject {
		return true, ""
	}
	c.spend(len(names))
	for _, name := range names {
		if _, ok := object[name]; !ok {
			return false, fmt.Sprintf("the member %q is missing", shorten(name))
		}
	}
	return true, ""
}

// dependents adds the rules of members that need others; a dependency on a
// schema is returned.
func (k *keywords) dependents(keyword string, v any) {
	object, ok := v.(map[string]any)
	if !ok {
		k.fail(keyword, "is not an object")
		return
	}
	for _, trigger := range slices.Sorted(maps.Keys(object)) {
		if list, isList := object[trigger].([]any); isList {
			names := slices.Sorted(slices.Values(k.names(keyword, list)))
			k.rule(keyword, func(c *check, value any) (bool, string) {
				if o, isObject := value.(map[string]any); !isObject || !contains(o, trigger) {
					return true, ""
				}
				return has(c, value, names)
			})
		} else if keyword == "dependencies" {
			k.dependentSchema(trigger, k.below(object[trigger], keyword+Pointer{trigger}.String()))
		} else {
			k.fail(keyword, "is not an object of lists")
		}
	}
}

func contains(object map[string]any, name string) bool {
	_, ok := object[name]
	return ok
}
