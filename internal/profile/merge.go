package profile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Conflict is a place that both sides changed since base, in different ways.
// A nil Value means that there is nothing.
type Conflict struct {
	Pointer            Pointer
	Base, Mine, Theirs *Value
}

// String returns the conflict for people, on four lines.
func (c Conflict) String() string {
	side := func(v *Value) string {
		if v == nil {
			return "(nothing)"
		}
		return v.short()
	}
	return fmt.Sprintf("%s\n  it was  %s\n  yours   %s\n  theirs  %s", c.Pointer.visible(), side(c.Base), side(c.Mine), side(c.Theirs))
}

// ConflictsError are the places that both sides changed; it is an ErrConflicts.
type ConflictsError struct{ Conflicts []Conflict }

func (e *ConflictsError) Error() string {
	places := make([]string, len(e.Conflicts))
	for i, c := range e.Conflicts {
		places[i] = c.Pointer.visible()
	}
	return fmt.Sprintf("%v: %s; nothing was written", ErrConflicts, shorten(strings.Join(places, ", ")))
}

// Unwrap makes errors.Is find ErrConflicts.
func (e *ConflictsError) Unwrap() error { return ErrConflicts }

// Report returns all conflicts for people.
func (e *ConflictsError) Report() string {
	var b strings.Builder
	for _, c := range e.Conflicts {
		b.WriteString(c.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// Merge returns theirs with what changed between base and mine. Differences
// are found down to members of objects; an array counts as a whole. It
// returns a *ConflictsError when both sides changed the same thing in different
// ways, else what every change returns.
func (e *Editor) Merge(base, mine, theirs Document) (Document, error) {
	m := merger{}
	merged, _ := m.merge(Pointer{}, present(base.tree()), present(mine.tree()), present(theirs.tree()))
	if len(m.conflicts) > 0 {
		return Document{}, &ConflictsError{Conflicts: m.conflicts}
	}
	return e.replace(theirs, Value{tree: merged})
}

// optional is a tree that may not exist.
type optional struct {
	tree any
	ok   bool
}

func present(tree any) optional { return optional{tree, true} }

func (m optional) equal(o optional) bool { return m.ok == o.ok && equalTrees(m.tree, o.tree) }

func (m optional) value() *Value {
	if !m.ok {
		return nil
	}
	return &Value{tree: m.tree}
}

// members returns the members of an object; of what is not there, none.
func (m optional) members() (map[string]any, bool) {
	object, ok := m.tree.(map[string]any)
	return object, ok || !m.ok
}

type merger struct{ conflicts []Conflict }

// merge returns what the place at p is to hold, and whether it holds anything.
func (m *merger) merge(p Pointer, base, mine, theirs optional) (tree any, ok bool) {
	switch {
	case mine.equal(base):
		return theirs.tree, theirs.ok
	case theirs.equal(base), mine.equal(theirs):
		return mine.tree, mine.ok
	}
	b, isObject := base.members()
	my, mineToo := mine.members()
	their, theirsToo := theirs.members()
	if !isObject || !mineToo || !theirsToo || !mine.ok || !theirs.ok {
		m.conflicts = append(m.conflicts, Conflict{p, base.value(), mine.value(), theirs.value()})
		return theirs.tree, theirs.ok
	}
	names := map[string]bool{}
	for _, object := range []map[string]any{b, my, their} {
		for name := range object {
			names[name] = true
		}
	}
	merged := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		at := func(object map[string]any) optional {
			v, ok := object[name]
			return optional{v, ok}
		}
		if v, ok := m.merge(append(slices.Clip(p), name), at(b), at(my), at(their)); ok {
			merged[name] = v
		}
	}
	return merged, true
}
