package profile

import (
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// schemaError picks, from everything that a value violates, the same one every
// time: the first place, and the first rule there.
func schemaError(key string, v Value, all *jsonschema.ValidationError) *SchemaError {
	var found []*jsonschema.ValidationError
	collect(all, &found)
	first := slices.MinFunc(found, func(a, b *jsonschema.ValidationError) int {
		if c := slices.Compare(a.InstanceLocation, b.InstanceLocation); c != 0 {
			return c
		}
		if c := strings.Compare(rule(a), rule(b)); c != 0 {
			return c
		}
		return strings.Compare(reason(a), reason(b))
	})
	pointer := Pointer(first.InstanceLocation)
	at, err := v.Lookup(pointer)
	if err != nil {
		at = v // a place that the schema made up, such as inside decoded content
	}
	return &SchemaError{Key: key, Pointer: pointer.String(), Rule: rule(first), Reason: reason(first), Value: at}
}

// collect finds what failed by itself. Of alternatives none is to blame: the
// choice as a whole is.
func collect(e *jsonschema.ValidationError, found *[]*jsonschema.ValidationError) {
	switch e.ErrorKind.(type) {
	case *kind.AnyOf, *kind.OneOf, *kind.PropertyNames, *kind.ContentSchema:
		*found = append(*found, e)
		return
	}
	if len(e.Causes) == 0 {
		*found = append(*found, e)
	}
	for _, cause := range e.Causes {
		collect(cause, found)
	}
}

func rule(e *jsonschema.ValidationError) string {
	if path := e.ErrorKind.KeywordPath(); len(path) > 0 {
		return path[0]
	}
	switch e.ErrorKind.(type) {
	case *kind.FalseSchema:
		return "false"
	case *kind.Not:
		return "not"
	case *kind.RefCycle:
		return "$ref"
	}
	return "schema"
}

// reason returns the library's words, which are made for a member of a list.
func reason(e *jsonschema.ValidationError) string {
	alone := *e
	alone.Causes = nil
	text := strings.Join(strings.Fields(alone.Error()), " ")
	if _, words, ok := strings.Cut(text, "': "); ok {
		text = words
	}
	text = strings.TrimPrefix(text, rule(e)+": ")
	return strings.ReplaceAll(text, schemaURL, "")
}
