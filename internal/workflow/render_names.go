package workflow

import (
	"fmt"
	"text/template"
	syntax "text/template/parse"
)

// defined returns an error for a template that a text includes and that does not
// exist: executing the text finds it only if it gets there.
func defined(t *template.Template) error {
	if t.Tree == nil {
		return nil // nothing but blanks
	}
	return definedIn(t, t.Root)
}

func definedIn(t *template.Template, n syntax.Node) error {
	switch n := n.(type) {
	case *syntax.TemplateNode:
		if t.Lookup(n.Name) == nil {
			return fmt.Errorf("line %d: there is no template %q: cluster-utilities.tmpl and setup.tmpl exist", n.Line, n.Name)
		}
	case *syntax.IfNode:
		return definedInBranch(t, &n.BranchNode)
	case *syntax.RangeNode:
		return definedInBranch(t, &n.BranchNode)
	case *syntax.WithNode:
		return definedInBranch(t, &n.BranchNode)
	case *syntax.ListNode:
		if n == nil {
			return nil
		}
		for _, inner := range n.Nodes {
			if err := definedIn(t, inner); err != nil {
				return err
			}
		}
	}
	return nil
}

func definedInBranch(t *template.Template, b *syntax.BranchNode) error {
	if err := definedIn(t, b.List); err != nil {
		return err
	}
	return definedIn(t, b.ElseList)
}
