package profile

import (
	"errors"
	"fmt"
	"slices"
)

// add inserts an element, sets a member or takes the place of the document.
func (w *work) add(p Pointer, value any) error {
	// Nesting is bounded on the way, so that no patch builds what cannot be walked.
	if err := w.shallow(len(p), value); err != nil {
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

func (w *work) shallow(above int, value any) error {
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

// depth is as the function of that name, and what it walks through counts.
func (w *work) depth(tree any, limit int) int {
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
func (w *work) remove(p Pointer) (removed any, err error) {
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

// replace puts value in the place of what p names, which must be there.
func (w *work) replace(p Pointer, value any) error {
	if _, err := w.find(p); err != nil {
		return err
	}
	if err := w.shallow(len(p), value); err != nil {
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

// edit calls change with what holds the last token of p and puts what it
// returns in that place; root is called for the whole document.
func (w *work) edit(p Pointer, change func(holder any, token string) (any, error), root func()) error {
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
	// An array that grew or shrank is another one: its own holder needs to know.
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
