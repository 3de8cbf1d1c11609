package profile

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	// maxSchema bounds the text of one schema, in bytes, maxSchemaDepth its nesting.
	maxSchema      = 64 << 10
	maxSchemaDepth = 64
	// keptSchemas is how many compiled schemas an Editor remembers.
	keptSchemas = 256
	// schemaURL is the address of every schema; nothing is ever fetched from it.
	schemaURL = "jorc:///schema"
)

// SchemaError is a value that its schema refuses. It is an ErrSchema.
type SchemaError struct {
	Key     string // the param
	Pointer string // what in its value, a JSON Pointer; "" is all of it
	Rule    string // the schema's keyword, such as "maximum"
	Reason  string // in words
	Value   Value  // what the pointer names
	Place   string // what holds the value when it is not the cluster's param, such as `role "db"`
}

func (e *SchemaError) Error() string {
	place := ""
	if e.Place != "" {
		place = " of " + e.Place
	}
	where := ""
	if e.Pointer != "" {
		where = fmt.Sprintf(" at %q", shorten(e.Pointer))
	}
	return fmt.Sprintf("param %q%s%s is refused by its schema: %s: %s; the value is %s; nothing was written",
		e.Key, place, where, e.Rule, shorten(e.Reason), e.Value.short())
}

// Unwrap makes errors.Is find ErrSchema.
func (e *SchemaError) Unwrap() error { return ErrSchema }

// schemas remembers what was compiled, by text.
type schemas struct {
	mu   sync.Mutex
	kept map[string]*schema
}

// schema is a compiled one. Only one value at a time is checked with it,
// because the budget belongs to it.
type schema struct {
	mu     sync.Mutex
	root   *jsonschema.Schema
	budget *budget
}

// get returns the compiled schema of param key.
func (s *schemas) get(key string, text Value) (*schema, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	source := text.String()
	if c, ok := s.kept[source]; ok {
		return c, nil
	}
	c, err := compile(text, source)
	if err != nil {
		return nil, fmt.Errorf("schema of param %q: %w", key, err)
	}
	if s.kept == nil || len(s.kept) >= keptSchemas {
		s.kept = map[string]*schema{}
	}
	s.kept[source] = c
	return c, nil
}

// compile returns ErrInvalid or ErrTooLarge for what is no schema, or one that
// needs more than its own text.
func compile(text Value, source string) (c *schema, err error) {
	if len(source) > maxSchema {
		return nil, &SizeError{What: "the schema", Bytes: len(source), Limit: maxSchema}
	}
	if depth(text.tree, maxSchemaDepth+1) > maxSchemaDepth {
		return nil, tooLarge("it nests deeper than %d levels", maxSchemaDepth)
	}
	if n, ok := unwieldy(text.tree); ok {
		return nil, invalid("the number %s is too long to calculate with", shorten(n))
	}
	b := &budget{}
	b.reset()
	defer b.recovered(&err)
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	compiler.UseLoader(nothing{})
	compiler.UseRegexpEngine(b.regexp)
	if err := compiler.AddResource(schemaURL, text.tree); err != nil {
		return nil, invalid("it cannot be used: %s", oneLine(err))
	}
	root, err := compiler.Compile(schemaURL)
	if err != nil {
		return nil, invalid("it is no JSON Schema that jorc takes: %s", oneLine(err))
	}
	if err := b.meter(root); err != nil {
		return nil, err
	}
	return &schema{root: root, budget: b}, nil
}

// oneLine is err in one line, without the address that schemas are given.
func oneLine(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	return shorten(strings.ReplaceAll(text, schemaURL, ""))
}

// nothing is a loader that finds nothing.
type nothing struct{}

var errRemote = errors.New("only references inside the schema are followed (\"#/…\"): put it into \"$defs\"")

func (nothing) Load(string) (any, error) { return nil, errRemote }

// check returns a *SchemaError, or ErrTooLarge when the check would take too
// long.
func (c *schema) check(key string, v Value) (err error) {
	if n, ok := unwieldy(v.tree); ok {
		return &SchemaError{Key: key, Rule: "number", Reason: "the number " + shorten(n) + " is too long to calculate with", Value: v}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.budget.reset()
	defer c.budget.recovered(&err)
	failed := c.root.Validate(v.tree)
	if failed == nil {
		return nil
	}
	var first *jsonschema.ValidationError
	if !errors.As(failed, &first) {
		return invalid("param %q cannot be checked: %s", key, oneLine(failed))
	}
	return schemaError(key, v, first)
}
