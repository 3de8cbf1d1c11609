package profile

import (
	"errors"
	"fmt"
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
	Path   string // as it stands in the patch
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
		return o, errors.New(`its "op" is missing or no string`)
	}
	var needsValue, needsFrom bool
	switch o.op {
	case "add", "replace", "test":
		needsValue = true
	case "move", "copy":
		needsFrom = true
	case "remove":
	default:
		return o, fmt.Errorf("no operation is called %q: add, remove, replace, move, copy and test are", shorten(o.op))
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
		return nil, fmt.Errorf("its %q is missing or no string", name)
	}
	return ParsePointer(text)
}

// Apply returns v with all operations carried out in order, or v's successor
// is not there: a *PatchError.
func (p Patch) Apply(v Value) (Value, error) {
	w := work{left: maxWork}
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
