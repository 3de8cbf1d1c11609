package profile

import (
	"encoding/json"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	// maxCheck bounds the work of checking one value, in steps of very roughly
	// 200 ns; visitCost is what one visit of a schema takes at least. A schema of
	// a few references can ask for 2^60 visits.
	maxCheck  = 2_000_000
	visitCost = 6
	// maxProgram bounds the instructions of one regular expression.
	maxProgram = 10_000
	// maxDigits and maxExponent bound the numbers that schemas calculate with.
	maxDigits   = 1000
	maxExponent = 400
)

// budget counts the steps of a check. The library has no way to be stopped, so
// the step that is too many leaves it with a panic, which recovered ends.
type budget struct{ left int }

type exhausted struct{}

func (b *budget) reset() { b.left = maxCheck }

func (b *budget) spend(n int) {
	if b.left -= n; b.left < 0 {
		panic(exhausted{})
	}
}

// recovered turns a panic below the caller into an error: what the library
// trips over is a schema that jorc does not take.
func (b *budget) recovered(err *error) {
	switch p := recover().(type) {
	case nil:
	case exhausted:
		*err = tooLarge("the schema asks for more than %d steps to check the value: make it simpler", maxCheck)
	default:
		*err = invalid("the schema cannot be used: %v", p)
	}
}

// regexp is the engine for patterns: Go's, whose matching time is linear, and
// what it takes is counted.
func (b *budget) regexp(text string) (jsonschema.Regexp, error) {
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, err
	}
	if len(program.Inst) > maxProgram {
		return nil, fmt.Errorf("pattern of %d steps, more than the limit of %d", len(program.Inst), maxProgram)
	}
	compiled, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	return &meteredRegexp{Regexp: compiled, budget: b, size: len(program.Inst)}, nil
}

type meteredRegexp struct {
	*regexp.Regexp
	budget *budget
	size   int
}

// MatchString matches; its worst case is one step per instruction and byte.
func (r *meteredRegexp) MatchString(s string) bool {
	r.budget.spend(1 + len(s)*r.size/16)
	return r.Regexp.MatchString(s)
}

// meter makes every schema that root leads to count its visits. Each visit
// that can lead to others passes by the format check.
func (b *budget) meter(root *jsonschema.Schema) error {
	seen := map[*jsonschema.Schema]bool{}
	todo := []*jsonschema.Schema{root}
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if s == nil || seen[s] {
			continue
		}
		seen[s] = true
		if !strings.HasPrefix(s.Location, schemaURL+"#") {
			return invalid("it refers to %q: %v", shorten(s.Location), errRemote)
		}
		if s.DynamicRef != nil || s.RecursiveRef != nil {
			return invalid(`"$dynamicRef" and "$recursiveRef" are not supported: use "$ref"`)
		}
		b.count(s)
		todo = append(todo, children(s)...)
	}
	return nil
}

// count puts the counter in front of the schema's own format, if any.
func (b *budget) count(s *jsonschema.Schema) {
	name, next := "any", func(any) error { return nil }
	if s.Format != nil {
		name, next = s.Format.Name, s.Format.Validate
	}
	each := 1 + len(s.PatternProperties)
	s.Format = &jsonschema.Format{Name: name, Validate: func(v any) error {
		cost := visitCost
		switch v := v.(type) {
		case map[string]any:
			cost += len(v) * each
		case []any:
			cost += len(v)
		case string:
			cost += len(v) / 64
		}
		b.spend(cost)
		return next(v)
	}}
}

// children returns the schemas that s applies to a value or its parts.
func children(s *jsonschema.Schema) []*jsonschema.Schema {
	all := []*jsonschema.Schema{
		s.Ref, s.Not, s.If, s.Then, s.Else, s.PropertyNames, s.UnevaluatedProperties,
		s.Contains, s.Items2020, s.UnevaluatedItems, s.ContentSchema,
	}
	for _, list := range [][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf, s.PrefixItems} {
		all = append(all, list...)
	}
	for _, members := range []map[string]*jsonschema.Schema{s.Properties, s.DependentSchemas} {
		for _, c := range members {
			all = append(all, c)
		}
	}
	for _, c := range s.PatternProperties {
		all = append(all, c)
	}
	either := []any{s.AdditionalProperties, s.Items, s.AdditionalItems}
	for _, d := range s.Dependencies {
		either = append(either, d)
	}
	for _, e := range either {
		switch c := e.(type) {
		case *jsonschema.Schema:
			all = append(all, c)
		case []*jsonschema.Schema:
			all = append(all, c...)
		}
	}
	return all
}

// unwieldy returns a number of tree that the library would take for ever, or
// no memory, to calculate with.
func unwieldy(tree any) (string, bool) {
	switch t := tree.(type) {
	case json.Number:
		// The spelling counts: 0e999999999 is computed before it is zero.
		text := string(t)
		if len(text) > maxDigits {
			return text, true
		}
		if i := strings.IndexAny(text, "eE"); i >= 0 {
			exponent, err := strconv.Atoi(text[i+1:])
			return text, err != nil || exponent > maxExponent || exponent < -maxExponent
		}
	case []any:
		for _, e := range t {
			if n, ok := unwieldy(e); ok {
				return n, true
			}
		}
	case map[string]any:
		for _, e := range t {
			if n, ok := unwieldy(e); ok {
				return n, true
			}
		}
	}
	return "", false
}
