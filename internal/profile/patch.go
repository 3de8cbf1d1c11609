package profile

import (
	"errors"
	"fmt"
	"slices"
)

// maxOperations bounds the operations of one patch.
const maxOperations = 10000

// Patch is a JSON Patch (RFC 6902). Every pointer, and whether an operation has
// what it needs, was checked when it was parsed.
type Patch []operation

// operation is one step: apply does it.
type operation struct {
	op       string
	path     Pointer
	from     Pointer
	value    any
	hasValue bool
}

// PatchError is an operation that could not be carried out; none was then. It
// is an ErrMismatch for a "test" that failed, else ErrInvalid or ErrTooLarge.
type PatchError struct {
	Index  int    // of the operation, from 0
	Op     string // its name
	Path   string // as in the patch
	Reason string

	class error
}

func (e *PatchError) Error() string {
	where := fmt.Sprintf("operation %d of the patch", e.Index)
	if e.Op != "" {
		where += fmt.Sprintf(" (%s %q)", shorten(e.Op), shorten(e.Path))
	}
	return where + ": " + e.Reason + "; nothing was changed"
}

// Unwrap returns the class of failure.
func (e *PatchError) Unwrap() error { return e.class }

// ParsePatch reads the JSON text of a patch. It returns a *SyntaxError, a
// *PatchError or ErrTooLarge. Members of operations that RFC 6902 does not know
// are ignored, as it asks.
func ParsePatch(data []byte) (Patch, error) {
	tree, err := parseTree(data, maxValueDepth+2)
	if err != nil {
		return nil, err
	}
	list, ok := tree.([]any)
	if !ok {
		return nil, invalid("a patch is an array of operations and not %s", article((Value{tree: tree}).Kind()))
	}
	if len(list) > maxOperations {
		return nil, tooLarge("the patch has %d operations, more than the limit of %d: apply it in parts", len(list), maxOperations)
	}
	patch := make(Patch, len(list))
	for i, e := range list {
		object, ok := e.(map[string]any)
		if !ok {
			return nil, &PatchError{Index: i, Reason: "it is not an object", class: ErrInvalid}
		}
		if patch[i], err = parseOperation(object); err != nil {
			op, _ := object["op"].(string)
			path, _ := object["path"].(string)
			return nil, &PatchError{Index: i, Op: op, Path: path, Reason: err.Error(), class: ErrInvalid}
		}
	}
	return patch, nil
}

func parseOperation(object map[string]any) (operation, error) {
	var o operation
	var ok bool
	if o.op, ok = object["op"].(string); !ok {
		return o, errors.New(`its "op" is missing or not a string`)
	}
	var needsValue, needsFrom bool
	switch o.op {
	case "add", "replace", "test":
		needsValue = true
	case "move", "copy":
		needsFrom = true
	case "remove":
	default:
		return o, fmt.Errorf("unknown operation %q: add, remove, replace, move, copy and test exist", shorten(o.op))
	}
	var err error
	if o.path, err = pointerMember(object, "path"); err != nil {
		return o, err
	}
	if needsFrom {
		if o.from, err = pointerMember(object, "from"); err != nil {
			return o, err
		}
		if o.op == "move" && o.from.contains(o.path) {
			return o, fmt.Errorf("%q cannot be moved into itself", shorten(o.from.String()))
		}
	}
	if o.value, o.hasValue = object["value"]; needsValue && !o.hasValue {
		return o, errors.New(`its "value" is missing; it may be null`)
	}
	return o, nil
}

func pointerMember(object map[string]any, name string) (Pointer, error) {
	text, ok := object[name].(string)
	if !ok {
		return nil, fmt.Errorf("its %q is missing or not a string", name)
	}
	return ParsePointer(text)
}

// Apply returns v with all operations carried out in order, or a *PatchError.
func (p Patch) Apply(v Value) (Value, error) {
	w := patcher{left: maxSteps}
	root, err := w.copy(v.tree)
	if err != nil {
		return Value{}, err
	}
	w.root = root
	for i, o := range p {
		if err := w.apply(o); err != nil {
			class := ErrInvalid
			for _, c := range []error{ErrMismatch, ErrTooLarge} {
				if errors.Is(err, c) {
					class = c
				}
			}
			return Value{}, &PatchError{Index: i, Op: o.op, Path: o.path.String(), Reason: err.Error(), class: class}
		}
	}
	return Value{tree: w.root}, nil
}

// maxSteps bounds what one patch may copy and walk through, in parts of trees:
// about a second, and far more than a profile holds.
const maxSteps = 2_000_000

// patcher is a document while a patch is applied: a copy, changed in place. Steps
// are counted, so that no patch runs or grows without bound.
type patcher struct {
	root any
	left int
}

func (w *patcher) spend(n int) error {
	if w.left -= n; w.left < 0 {
		return tooLarge("the patch copies or moves too much")
	}
	return nil
}

// copy returns a tree that shares nothing with tree. Bytes of strings count: a
// copy is written out in the end.
func (w *patcher) copy(tree any) (any, error) {
	switch t := tree.(type) {
	case string:
		return t, w.spend(1 + len(t)/16)
	case []any:
		if err := w.spend(1 + len(t)); err != nil {
			return nil, err
		}
		list := make([]any, len(t))
		for i, e := range t {
			var err error
			if list[i], err = w.copy(e); err != nil {
				return nil, err
			}
		}
		return list, nil
	case map[string]any:
		if err := w.spend(1 + len(t)); err != nil {
			return nil, err
		}
		object := make(map[string]any, len(t))
		for name, e := range t {
			var err error
			if object[name], err = w.copy(e); err != nil {
				return nil, err
			}
		}
		return object, nil
	}
	return tree, w.spend(1)
}

func (w *patcher) apply(o operation) error {
	source := o.value
	switch o.op {
	case "test":
		return w.test(o.path, o.value)
	case "remove":
		_, err := w.remove(o.path)
		return err
	case "move":
		if _, err := w.find(o.from); err != nil {
			return err
		}
		if slices.Equal(o.from, o.path) {
			return nil
		}
		value, err := w.remove(o.from)
		if err != nil {
			return err
		}
		return w.add(o.path, value)
	case "copy":
		found, err := w.find(o.from)
		if err != nil {
			return err
		}
		source = found
	}
	value, err := w.copy(source)
	if err != nil {
		return err
	}
	if o.op == "replace" {
		return w.replace(o.path, value)
	}
	return w.add(o.path, value)
}

// find returns what p names.
func (w *patcher) find(p Pointer) (any, error) {
	if err := w.spend(len(p)); err != nil {
		return nil, err
	}
	tree := w.root
	for i, token := range p {
		var err error
		if tree, err = child(tree, token); err != nil {
			return nil, fmt.Errorf("%s at %q", err, shorten(p[:i+1].String()))
		}
	}
	return tree, nil
}

// test compares; a value that does not exist is not equal to anything, not even null.
func (w *patcher) test(p Pointer, want any) error {
	have, err := w.find(p)
	if err != nil {
		return &classed{ErrMismatch, err.Error()}
	}
	if !equalTrees(have, want) {
		return &classed{ErrMismatch, "the value is another one"}
	}
	return nil
}

// add inserts an element, sets a member or takes the place of the document.
func (w *patcher) add(p Pointer, value any) error {
	// Nesting is bounded on the way, so that no patch builds what cannot be walked.
	if err := w.checkDepth(len(p), value); err != nil {
		return err
	}
	return w.edit(p, func(holder any, token string) (any, error) {
		switch h := holder.(type) {
		case map[string]any:
			h[token] = value
			return h, nil
		case []any:
			i := len(h)
			if token != "-" {
				var err error
				if i, err = arrayIndex(token, len(h)+1); err != nil {
					return nil, err
				}
			}
			return slices.Insert(h, i, value), w.spend(1 + len(h)/16)
		}
		return nil, fmt.Errorf("nothing can be added to %s", article(Value{tree: holder}.Kind()))
	}, func() { w.root = value })
}

func (w *patcher) checkDepth(above int, value any) error {
	switch value.(type) {
	case []any, map[string]any:
	default:
		value = nil
	}
	if above > maxDepth || value != nil && above+w.depth(value, maxDepth-above+1) > maxDepth {
		return tooLarge("the result would nest deeper than %d levels", maxDepth)
	}
	return w.spend(0)
}

// depth is like the function of that name, and counts steps.
func (w *patcher) depth(tree any, limit int) int {
	if limit == 0 || w.left < 0 {
		return 0
	}
	w.left--
	deepest := -1
	each := func(e any) { deepest = max(deepest, w.depth(e, limit-1)) }
	switch t := tree.(type) {
	case []any:
		deepest = 0
		for _, e := range t {
			each(e)
		}
	case map[string]any:
		deepest = 0
		for _, e := range t {
			each(e)
		}
	}
	return deepest + 1
}

// remove takes out what p names and returns it. What would be left of a
// document without its root is null.
func (w *patcher) remove(p Pointer) (removed any, err error) {
	if removed, err = w.find(p); err != nil {
		return nil, err
	}
	err = w.edit(p, func(holder any, token string) (any, error) {
		switch h := holder.(type) {
		case map[string]any:
			delete(h, token)
			return h, nil
		case []any:
			i, err := arrayIndex(token, len(h))
			if err != nil {
				return nil, err
			}
			return slices.Delete(h, i, i+1), w.spend(1 + len(h)/16)
		}
		return nil, errors.New("nothing can be removed here")
	}, func() { w.root = nil })
	return removed, err
}

// replace replaces what p names, which must exist, by value.
func (w *patcher) replace(p Pointer, value any) error {
	if _, err := w.find(p); err != nil {
		return err
	}
	if err := w.checkDepth(len(p), value); err != nil {
		return err
	}
	return w.edit(p, func(holder any, token string) (any, error) {
		switch h := holder.(type) {
		case map[string]any:
			h[token] = value
		case []any:
			i, err := arrayIndex(token, len(h))
			if err != nil {
				return nil, err
			}
			h[i] = value
		}
		return holder, nil
	}, func() { w.root = value })
}

// edit calls change with the array or object that holds the last token of p and
// stores the result in its place; root is called for the whole document.
func (w *patcher) edit(p Pointer, change func(holder any, token string) (any, error), root func()) error {
	if len(p) == 0 {
		root()
		return nil
	}
	last := len(p) - 1
	holder, err := w.find(p[:last])
	if err != nil {
		return err
	}
	changed, err := change(holder, p[last])
	if err != nil {
		return err
	}
	if _, array := holder.([]any); !array {
		return nil
	}
	// An array that grew or shrank is another slice: its holder has to hold that.
	if last == 0 {
		w.root = changed
		return nil
	}
	above, err := w.find(p[:last-1])
	if err != nil {
		return err
	}
	switch a := above.(type) {
	case map[string]any:
		a[p[last-1]] = changed
	case []any:
		i, err := arrayIndex(p[last-1], len(a))
		if err != nil {
			return err
		}
		a[i] = changed
	}
	return nil
}
