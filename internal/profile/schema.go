package profile

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net/url"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jorc/jorc/internal/text"
)

const (
	// maxSchema bounds the text of one schema, in bytes, maxSchemaDepth its nesting.
	maxSchema      = 64 << 10
	maxSchemaDepth = 64
	// maxProgram bounds the instructions of one regular expression.
	maxProgram = 10_000
	// maxDigits and maxExponent bound the numbers that schemas calculate with.
	maxDigits   = 1000
	maxExponent = 400
	// keptSchemas is how many compiled schemas an Editor remembers.
	keptSchemas = 256
)

// Drafts of JSON Schema. A schema without "$schema" is of the last one.
const (
	draft4    = 4
	draft6    = 6
	draft7    = 7
	draft2019 = 2019
	draft2020 = 2020
)

// SchemaError is a value that its schema refuses. It is an ErrSchema. It names
// the place and the rule, and not the value, which may be a secret.
type SchemaError struct {
	Key     string // the param
	Pointer string // what in its value, a JSON Pointer; "" is all of it
	Rule    string // the schema's keyword, such as "maximum"
	Reason  string // in words
	Place   string // what holds the value when it is not the cluster's param, such as `role "db"`
}

func (e *SchemaError) Error() string { return e.refusal() + "; nothing was written" }

func (e *SchemaError) refusal() string {
	place := ""
	if e.Place != "" {
		place = " of " + e.Place
	}
	where := ""
	if e.Pointer != "" {
		where = fmt.Sprintf(" at %q", shorten(e.Pointer))
	}
	return fmt.Sprintf("param %q%s%s is refused by its schema: %s: %s", e.Key, place, where, e.Rule, shorten(e.Reason))
}

// Unwrap makes errors.Is find ErrSchema.
func (e *SchemaError) Unwrap() error { return ErrSchema }

// SchemaErrors are values that a new schema refuses. It is an ErrSchema.
type SchemaErrors []*SchemaError

// mostRefusals bounds the values that an error names.
const mostRefusals = 10

func (e SchemaErrors) Error() string { return e.String() + "; nothing was written" }

// String names the values, without them.
func (e SchemaErrors) String() string {
	var parts []string
	for _, one := range e[:min(len(e), mostRefusals)] {
		parts = append(parts, one.refusal())
	}
	return text.FewOf("; ", parts, len(e))
}

// Unwrap makes errors.Is find ErrSchema.
func (e SchemaErrors) Unwrap() error { return ErrSchema }

// schemaCache remembers compiled schemas by their text.
type schemaCache struct {
	mu   sync.Mutex
	kept map[string]*schema
}

// get returns the compiled schema of param key.
func (s *schemaCache) get(key string, text Value) (*schema, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	source := text.String()
	if c, ok := s.kept[source]; ok {
		return c, nil
	}
	c, err := compileSchema(text.tree, source)
	if err != nil {
		return nil, fmt.Errorf("schema of param %q: %w", key, err)
	}
	if s.kept == nil || len(s.kept) >= keptSchemas {
		s.kept = map[string]*schema{}
	}
	s.kept[source] = c
	return c, nil
}

// schema is one compiled schema. It is immutable and safe for concurrent use.
type schema struct {
	never   bool // the schema false
	ref     *schema
	rules   []rule              // about the value itself
	inPlace []func(*check, any) // subschemas that apply to the same value
	nested  []func(*check, any) // subschemas that apply to its parts
	same    []*schema           // all that apply to the same value, to find cycles
	// tracks is set where a schema of the document asks for unevaluated parts.
	tracks bool
}

// rule is a keyword that checks the value itself; ok is false if it refuses the
// value.
type rule struct {
	keyword string
	apply   func(c *check, value any) (ok bool, reason string)
}

// schemaCompiler compiles one document. Schemas are found by their location in
// it, a JSON Pointer, so that each is compiled once and may refer to itself.
type schemaCompiler struct {
	root    any
	draft   int
	done    map[string]*schema
	bases   map[string]*url.URL // by location, of every schema that there is
	targets map[string]string   // absolute URI of an "$id" or anchor → location
	tracks  bool
}

// compileSchema returns ErrInvalid for a value that is not a schema or needs more
// than its own text, and ErrTooLarge.
func compileSchema(tree any, source string) (*schema, error) {
	if len(source) > maxSchema {
		return nil, &SizeError{What: "the schema", Bytes: len(source), Limit: maxSchema}
	}
	if depth(tree, maxSchemaDepth+1) > maxSchemaDepth {
		return nil, tooLarge("it nests deeper than %d levels", maxSchemaDepth)
	}
	if n, ok := unwieldy(tree); ok {
		return nil, invalid("the number %s is too long to calculate with", shorten(n))
	}
	c := &schemaCompiler{root: tree, draft: draft2020, done: map[string]*schema{}, bases: map[string]*url.URL{}, targets: map[string]string{}}
	if object, ok := tree.(map[string]any); ok {
		if id, ok := object["$schema"].(string); ok {
			if c.draft = draftOf(id); c.draft == 0 {
				return nil, invalid(`"$schema" is %q: %s`, shorten(id), remoteSchema)
			}
		}
	}
	if err := c.index(tree, "", &url.URL{}); err != nil {
		return nil, invalid("it is not a JSON Schema that jorc supports: %v", err)
	}
	s, err := c.schema(tree, "")
	if err == nil {
		err = c.cycle()
	}
	if err != nil {
		return nil, invalid("it is not a JSON Schema that jorc supports: %v", err)
	}
	for _, each := range c.done {
		each.tracks = c.tracks
	}
	return s, nil
}

const remoteSchema = `only references inside the schema are followed ("#/…"): put it into "$defs"`

// draftOf returns the draft that "$schema" names, 0 for any other schema.
func draftOf(id string) int {
	id = strings.TrimPrefix(strings.TrimPrefix(id, "http://"), "https://")
	switch strings.TrimSuffix(id, "#") {
	case "json-schema.org/draft-04/schema":
		return draft4
	case "json-schema.org/draft-06/schema":
		return draft6
	case "json-schema.org/draft-07/schema":
		return draft7
	case "json-schema.org/draft/2019-09/schema":
		return draft2019
	case "json-schema.org/draft/2020-12/schema", "json-schema.org/schema":
		return draft2020
	}
	return 0
}

// keywordsOfSchemas are the keywords below which schemas stand: in the value
// itself, in a list, or as members of an object.
var keywordsOfSchemas = []string{
	"$defs", "definitions", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies",
	"prefixItems", "items", "additionalItems", "contains", "unevaluatedItems",
	"properties", "patternProperties", "additionalProperties", "propertyNames", "unevaluatedProperties",
}

// index finds all schemas of the document with their base URIs and anchors.
func (c *schemaCompiler) index(tree any, at string, base *url.URL) error {
	object, ok := tree.(map[string]any)
	if !ok {
		return nil
	}
	_, hasRef := object["$ref"]
	idKeyword := "$id"
	if c.draft == draft4 {
		idKeyword = "id"
	}
	if id, ok := object[idKeyword].(string); ok && (c.draft > draft7 || !hasRef) {
		u, err := url.Parse(id)
		if err != nil {
			return fmt.Errorf("%s%s is not a URI", at, "/"+idKeyword)
		}
		u = base.ResolveReference(u)
		if c.draft <= draft7 && u.Fragment != "" {
			c.targets[u.String()] = at
		} else {
			u.Fragment = ""
			base = u
			c.targets[u.String()] = at
		}
	}
	for _, keyword := range []string{"$anchor", "$dynamicAnchor"} {
		if anchor, ok := object[keyword].(string); ok && c.draft >= draft2019 {
			u := *base
			u.Fragment = anchor
			c.targets[u.String()] = at
		}
	}
	c.bases[at] = base
	for _, keyword := range keywordsOfSchemas {
		below := at + "/" + keyword
		switch t := object[keyword].(type) {
		case []any:
			for i, e := range t {
				if err := c.index(e, below+"/"+strconv.Itoa(i), base); err != nil {
					return err
				}
			}
		case map[string]any:
			if !isMapOfSchemas(keyword) {
				if err := c.index(t, below, base); err != nil {
					return err
				}
				continue
			}
			for name, e := range t {
				if err := c.index(e, below+Pointer{name}.String(), base); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func isMapOfSchemas(keyword string) bool {
	switch keyword {
	case "$defs", "definitions", "dependentSchemas", "dependencies", "properties", "patternProperties":
		return true
	}
	return false
}

// cycle returns an error when a schema applies to the same value as itself
// without an end.
func (c *schemaCompiler) cycle() error {
	const open, closed = 1, 2
	state := map[*schema]int{}
	var visit func(s *schema) bool
	visit = func(s *schema) bool {
		switch state[s] {
		case open:
			return false
		case closed:
			return true
		}
		state[s] = open
		for _, next := range s.same {
			if !visit(next) {
				return false
			}
		}
		state[s] = closed
		return true
	}
	for _, at := range slices.Sorted(maps.Keys(c.done)) {
		if !visit(c.done[at]) {
			return fmt.Errorf(`the schema at %q refers to itself without end`, shorten(at))
		}
	}
	return nil
}

// refer returns the schema that a "$ref" at a location names.
func (c *schemaCompiler) refer(ref, at string) (*schema, error) {
	u, err := url.Parse(ref)
	if err != nil {
		return nil, fmt.Errorf("%q is not a reference", shorten(ref))
	}
	base := c.bases[at]
	if base == nil {
		base = &url.URL{}
	}
	u = base.ResolveReference(u)
	if target, ok := c.targets[u.String()]; ok {
		return c.locate(target, nil)
	}
	fragment := u.Fragment
	u.Fragment, u.RawFragment = "", ""
	target, ok := c.targets[u.String()]
	switch {
	case ok:
	case u.String() == "":
		target = ""
	default:
		return nil, fmt.Errorf("%q: %s", shorten(ref), remoteSchema)
	}
	if fragment != "" && fragment[0] != '/' {
		return nil, fmt.Errorf("there is no anchor %q", shorten(fragment))
	}
	p, err := ParsePointer(fragment)
	if err != nil {
		return nil, err
	}
	return c.locate(target, p)
}

// locate returns the schema that p names below a location.
func (c *schemaCompiler) locate(at string, p Pointer) (*schema, error) {
	start, err := ParsePointer(at)
	if err != nil {
		return nil, err
	}
	whole := append(start, p...)
	v, err := Value{tree: c.root}.Lookup(whole)
	if err != nil {
		return nil, fmt.Errorf("the reference %q names nothing: %w", shorten(whole.String()), err)
	}
	return c.schema(v.tree, whole.String())
}

// compilePattern compiles a pattern, Go's, whose matching time is linear. The size is
// the number of its instructions.
func compilePattern(text string) (*pattern, error) {
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
	return &pattern{Regexp: compiled, size: len(program.Inst)}, err
}

type pattern struct {
	*regexp.Regexp
	size int
}

// match reports whether the pattern matches; its worst case is one step for each
// instruction and byte.
func (p *pattern) match(c *check, s string) bool {
	c.spend(1 + len(s)*p.size/16)
	return !c.over && p.MatchString(s)
}

// unwieldy returns a number of tree that is too long to be calculated with.
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

// rational returns the number exactly.
func rational(n json.Number) *big.Rat {
	r, _ := new(big.Rat).SetString(string(n)) // JSON's numbers are among its own
	return r
}
