package profile

import (
	"fmt"
	"slices"
)

// maxWork bounds what one patch may copy and walk through, in parts of trees:
// a second's worth, and far more than a profile holds.
const maxWork = 2_000_000

// work is a document while a patch is applied: a tree of its own, changed in
// place.
type work struct {
	root any
	left int
}

func (w *work) spend(n int) error {
	if w.left -= n; w.left < 0 {
		return tooLarge("the patch copies or moves too much")
	}
	return nil
}

// copy returns a tree that shares nothing with tree. Bytes of strings count: a
// copy is written out in the end.
func (w *work) copy(tree any) (any, error) {
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

func (w *work) apply(o operation) error {
	switch o.op {
	case "add":
		value, err := w.copy(o.value)
		if err != nil {
			return err
		}
		return w.add(o.path, value)
	case "remove":
		_, err := w.remove(o.path)
		return err
	case "replace":
		value, err := w.copy(o.value)
		if err != nil {
			return err
		}
		return w.replace(o.path, value)
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
		value, err := w.copy(found)
		if err != nil {
			return err
		}
		return w.add(o.path, value)
	}
	return w.test(o.path, o.value)
}

// find returns what p names.
func (w *work) find(p Pointer) (any, error) {
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

// test compares; what cannot be found is not equal to anything, not even null.
func (w *work) test(p Pointer, want any) error {
	have, err := w.find(p)
	if err != nil {
		return &classed{ErrMismatch, err.Error()}
	}
	if !equalTrees(have, want) {
		return &classed{ErrMismatch, fmt.Sprintf("it is %s and not %s", Value{tree: have}.short(), Value{tree: want}.short())}
	}
	return nil
}
