package profile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// List and Object are arrays and objects as templates see them: they can be
// ranged over and indexed, and print as JSON.
type (
	List   []any
	Object map[string]any
)

func (l List) String() string   { return jsonOf([]any(l)) }
func (o Object) String() string { return jsonOf(map[string]any(o)) }

func jsonOf(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // it came from JSON
	return strings.TrimSuffix(b.String(), "\n")
}

// ForTemplate returns the value for templates: nil, bool, string, List, Object
// of the caller's own; a number is an int64 or a float64 when that prints as
// the number is spelled (1.10 does not become 1.1), else a json.Number.
func (v Value) ForTemplate() any { return forTemplate(v.tree) }

func forTemplate(tree any) any {
	switch t := tree.(type) {
	case json.Number:
		if i, err := t.Int64(); err == nil && fmt.Sprint(i) == t.String() {
			return i
		}
		if f, err := t.Float64(); err == nil && fmt.Sprint(f) == t.String() {
			return f
		}
	case []any:
		l := make(List, len(t))
		for i, e := range t {
			l[i] = forTemplate(e)
		}
		return l
	case map[string]any:
		o := make(Object, len(t))
		for k, e := range t {
			o[k] = forTemplate(e)
		}
		return o
	}
	return tree
}
