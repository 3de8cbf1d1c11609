package watch

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"text/template/parse"
)

// Names of the functions that instrumented templates call: tick at every turn
// of a range, enter at the start of every template. They end an execution that
// goes on for ever or without bound; text/template itself cannot be
// interrupted, and what calls itself by executeTemplate overflows the stack,
// which ends the process.
const (
	tick  = "jorcTick"
	enter = "jorcEnter"
)

// insertion is what instrument put into a template.
type insertion struct {
	at, length int // in the template as it was written; bytes
}

// instrument inserts calls of tick into the source of a template. The output
// stays as it was: the insertion takes over the trim marker of its neighbour.
func instrument(text, left, right string) (string, []insertion, error) {
	if left == "" {
		left = "{{"
	}
	if right == "" {
		right = "}}"
	}
	trees := map[string]*parse.Tree{}
	root := parse.New("")
	root.Mode = parse.SkipFuncCheck
	if _, err := root.Parse(text, left, right, trees); err != nil {
		return "", nil, fmt.Errorf(parsing+"%w", err)
	}
	var w walker
	for _, tree := range trees {
		w.enter(enter, tree.Root)
		w.list(tree.Root)
	}
	slices.SortFunc(w.places, func(a, b place) int { return a.at - b.at })
	var b strings.Builder
	inserted := make([]insertion, 0, len(w.places))
	last := 0
	for _, p := range w.places {
		at := p.at
		b.WriteString(text[last:at])
		before := b.Len()
		b.WriteString(left)
		if trims(text[at:], left) {
			b.WriteString("-")
		}
		fmt.Fprintf(&b, " %s %d ", p.function, p.weight)
		b.WriteString(right)
		inserted = append(inserted, insertion{at: at, length: b.Len() - before})
		last = at
	}
	b.WriteString(text[last:])
	return b.String(), inserted, nil
}

// trims reports whether text begins with an action that trims the space before it.
func trims(text, left string) bool {
	rest, ok := strings.CutPrefix(text, left+"-")
	return ok && rest != "" && strings.ContainsRune(" \t\r\n", rune(rest[0]))
}

// place is where a call goes, and how many bytes of text every turn writes.
type place struct {
	at, weight int
	function   string
}

// walker collects the places: the starts of bodies.
type walker struct {
	places []place
}

func (w *walker) list(l *parse.ListNode) {
	if l == nil {
		return
	}
	for _, n := range l.Nodes {
		switch n := n.(type) {
		case *parse.RangeNode:
			w.enter(tick, n.List)
			w.branch(&n.BranchNode)
		case *parse.IfNode:
			w.branch(&n.BranchNode)
		case *parse.WithNode:
			w.branch(&n.BranchNode)
		}
	}
}

func (w *walker) branch(b *parse.BranchNode) {
	w.list(b.List)
	w.list(b.ElseList)
}

// enter notes the start of a body: the list's position is that of its first
// token, which for an action is its left delimiter.
func (w *walker) enter(function string, l *parse.ListNode) {
	if l != nil {
		w.places = append(w.places, place{at: int(l.Position()), weight: weigh(l), function: function})
	}
}

// weigh counts the text of a body, without that of nested branches.
func weigh(l *parse.ListNode) int {
	n := 0
	for _, node := range l.Nodes {
		if t, ok := node.(*parse.TextNode); ok {
			n += len(t.Text)
		}
	}
	return n
}

// maxFrames bounds how deep templates call each other: some hundred levels.
const maxFrames = 5_000

// enter is called at the start of every template.
func (x *execution) enter(weight int) (string, error) {
	var pc [1]uintptr
	if runtime.Callers(maxFrames, pc[:]) > 0 {
		x.unbounded = true
	}
	return x.tick(weight)
}
