package profile

import "encoding/json"

// Equal tells whether both are the same JSON value: numbers by what they are
// worth (1 = 1.0 = 10e-1, exactly, whatever their size), objects without
// order, arrays with, strings by their characters.
func (v Value) Equal(w Value) bool { return equalTrees(v.tree, w.tree) }

func equalTrees(a, b any) bool {
	switch a := a.(type) {
	case nil:
		return b == nil
	case bool:
		other, ok := b.(bool)
		return ok && a == other
	case string:
		other, ok := b.(string)
		return ok && a == other
	case json.Number:
		other, ok := b.(json.Number)
		return ok && equalNumbers(a, other)
	case []any:
		other, ok := b.([]any)
		if !ok || len(a) != len(other) {
			return false
		}
		for i := range a {
			if !equalTrees(a[i], other[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		other, ok := b.(map[string]any)
		if !ok || len(a) != len(other) {
			return false
		}
		for name, v := range a {
			if w, ok := other[name]; !ok || !equalTrees(v, w) {
				return false
			}
		}
		return true
	}
	return false
}
